// Sixteen floats in plain C++, with the semantics of the vector instructions.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace fa4::internal {
namespace {

struct PlainVec {
  struct F {
    float lane[16];
  };
  using Number = float;
  using P = uint16_t;
  static constexpr int kLanes = 16;

  template <class Body>
  static F each(Body body) {
    F result;
    for (int i = 0; i < kLanes; ++i) result.lane[i] = body(i);
    return result;
  }
  static uint32_t bits_of(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
  }

  static F zero() { return set1(0.0f); }
  static F set1(float x) {
    return each([&](int) { return x; });
  }
  static F load(const float* p) {
    return each([&](int i) { return p[i]; });
  }
  static void store(float* p, const F& x) { std::memcpy(p, x.lane, sizeof x.lane); }
  static F add(const F& a, const F& b) {
    return each([&](int i) { return a.lane[i] + b.lane[i]; });
  }
  static F sub(const F& a, const F& b) {
    return each([&](int i) { return a.lane[i] - b.lane[i]; });
  }
  static F mul(const F& a, const F& b) {
    return each([&](int i) { return a.lane[i] * b.lane[i]; });
  }
  static F div(const F& a, const F& b) {
    return each([&](int i) { return a.lane[i] / b.lane[i]; });
  }
  // Rounds twice, unlike the instruction: enough for bf16 results.
  static F fma(const F& a, const F& b, const F& c) { return add(mul(a, b), c); }
  // The second operand when either is NaN.
  static F max(const F& a, const F& b) {
    return each([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static F min(const F& a, const F& b) {
    return each([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static F to_exponent(const F& x) {
    return each([&](int i) {
      const uint32_t bits = bits_of(x.lane[i]) << 23;
      float value;
      std::memcpy(&value, &bits, sizeof value);
      return value;
    });
  }
  static F fms(const F& a, const F& b, const F& c) { return sub(mul(a, b), c); }
  // x - floor(x), rounded down, so that it is below 1; 0 of an infinity.
  static F fraction(const F& x) {
    return each([&](int i) {
      const bool infinite = x.lane[i] - x.lane[i] != 0 && x.lane[i] == x.lane[i];
      const float f = infinite ? 0.0f : x.lane[i] - __builtin_floorf(x.lane[i]);
      return f >= 1.0f ? 0x1.fffffep-1f : f;
    });
  }
  // 32 floats, and which of 32 pieces of [0, 1) a lane lies in; 0 of a NaN.
  struct Table {
    const float* p;
  };
  struct Piece {
    int lane[kLanes];
  };
  static Table table(const float* p) { return {p}; }
  static Piece piece_of(const F& f) {
    Piece piece;
    for (int i = 0; i < kLanes; ++i) {
      piece.lane[i] = f.lane[i] >= 0 ? static_cast<int>(f.lane[i] * 32) : 0;
    }
    return piece;
  }
  static F look_up(const Table& table, const Piece& piece) {
    return each([&](int i) { return table.p[piece.lane[i]]; });
  }
  // x times 2^floor(power).
  static F scale_by_floor(const F& x, const F& power) {
    return each([&](int i) {
      const float n = __builtin_floorf(power.lane[i]);
      return n != n ? n
                    : std::ldexp(x.lane[i], n > 300    ? 300
                                            : n < -300 ? -300
                                                       : static_cast<int>(n));
    });
  }
  // Whether a lane is above its limit, or NaN.
  static bool any_above(const F& x, const F& limit) {
    bool any = false;
    for (int i = 0; i < kLanes; ++i) any |= !(x.lane[i] <= limit.lane[i]);
    return any;
  }
  static float reduce_max(const F& x) {
    float result = x.lane[0];
    for (int i = 1; i < kLanes; ++i) result = result > x.lane[i] ? result : x.lane[i];
    return result;
  }
  static F keep_range(const F& x, int begin, int end) {
    return each([&](int i) { return i >= begin && i < end ? x.lane[i] : -__builtin_inff(); });
  }
  static F keep_or_zero(const F& x, int begin, int end) {
    return each([&](int i) { return i >= begin && i < end ? x.lane[i] : 0.0f; });
  }
  // 2 kLanes columns of a row, rounded.
  struct Row {
    uint16_t column[32];
  };
  static Row round_row(const F& first, const F& second) {
    Row row;
    store_probabilities(row.column, first, second);
    return row;
  }
  static void store_row(uint32_t* to, const Row& row) { std::memcpy(to, &row, sizeof row); }
  // Two rows as pairs, `low`'s first: of every 8 columns four to `to_first`, four to `to_second`.
  static void store_pairs(uint32_t* to_first, uint32_t* to_second, const Row& low,
                          const Row& high) {
    for (int i = 0; i < 32; ++i) {
      uint32_t* to = i / 4 % 2 == 0 ? to_first : to_second;
      to[i / 8 * 4 + i % 4] = low.column[i] | static_cast<uint32_t>(high.column[i]) << 16;
    }
  }
  static void store_probabilities(P* p, const F& first, const F& second) {
    for (int i = 0; i < kLanes; ++i) {
      p[i] = to_bf16(first.lane[i]);
      p[kLanes + i] = to_bf16(second.lane[i]);
    }
  }
  // kLanes columns.
  static F load_probabilities(const P* p) {
    return each([&](int i) {
      const uint32_t bits = static_cast<uint32_t>(p[i]) << 16;
      float value;
      std::memcpy(&value, &bits, sizeof value);
      return value;
    });
  }

 private:
  // To nearest even; a NaN stays one.
  static uint16_t to_bf16(float x) {
    const uint32_t bits = bits_of(x);
    if (x != x) return static_cast<uint16_t>(bits >> 16 | 0x40u);
    return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
  }
};

}  // namespace
}  // namespace fa4::internal
