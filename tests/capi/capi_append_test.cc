// fa4_append: new keys and values into caches, dense and paged.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "small_attention.h"

namespace {

constexpr int64_t kBatch = 3, kNew = 4, kHeads = 2, kDim = 16, kDimV = 8, kRoom = 12;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// New rows for a cache that holds 0, 5 and 8 keys.
struct Fixture {
  explicit Fixture(bool paged) {
    problem.dtype = FA4_F32;
    problem.batch = kBatch;
    problem.seqlen_q = kNew;
    problem.seqlen_k = kRoom;
    problem.heads_q = problem.heads_kv = kHeads;
    problem.head_dim = kDim;
    problem.head_dim_v = kDimV;
    if (paged) {
      problem.layout_kv = FA4_PAGED;
      problem.page_size = 5;
      problem.pages_per_seq = 3;
      problem.num_pages = 11;
    }
    const size_t rows = paged ? 11 * 5 : kBatch * kRoom;
    k = small::values(kBatch * kNew * kHeads * kDim, 1);
    v = small::values(kBatch * kNew * kHeads * kDimV, 2);
    k_cache.assign(rows * kHeads * kDim, kNan);
    v_cache.assign(rows * kHeads * kDimV, kNan);
    args.k = k.data();
    args.v = v.data();
    args.k_cache = k_cache.data();
    args.v_cache = v_cache.data();
    args.positions = positions;
    if (paged) args.page_table = table;
  }

  // The cache's row of key `n`.
  int64_t row_of(int64_t b, int64_t n) const {
    if (problem.layout_kv != FA4_PAGED) return b * kRoom + n;
    return table[b * 3 + n / 5] * 5 + n % 5;
  }
  float key(int64_t b, int64_t n, int64_t h, int64_t d) const {
    return k_cache[static_cast<size_t>((row_of(b, n) * kHeads + h) * kDim + d)];
  }
  float value(int64_t b, int64_t n, int64_t h, int64_t d) const {
    return v_cache[static_cast<size_t>((row_of(b, n) * kHeads + h) * kDimV + d)];
  }
  float new_key(int64_t b, int64_t i, int64_t h, int64_t d) const {
    return k[static_cast<size_t>(((b * kNew + i) * kHeads + h) * kDim + d)];
  }
  float new_value(int64_t b, int64_t i, int64_t h, int64_t d) const {
    return v[static_cast<size_t>(((b * kNew + i) * kHeads + h) * kDimV + d)];
  }
  size_t written() const {
    const auto is_written = [](float x) { return !std::isnan(x); };
    return static_cast<size_t>(std::count_if(k_cache.begin(), k_cache.end(), is_written)) / kDim +
           static_cast<size_t>(std::count_if(v_cache.begin(), v_cache.end(), is_written)) / kDimV;
  }

  fa4::Problem problem;
  std::vector<float> k, v, k_cache, v_cache;
  int32_t positions[kBatch] = {0, 5, 8};
  // Entries that no new key goes to are garbage.
  int32_t table[9] = {7, 2147480000, -1, -5, 10, 2147480000, 99, 3, 0};
  fa4::AppendArgs args;
};

TEST(Append, PutsRowsWhereTheirKeysBelong) {
  const fa4::Device device("cpu");
  for (const bool paged : {false, true}) {
    Fixture f(paged);
    fa4::append(device, f.problem, f.args);
    for (int64_t b = 0; b < kBatch; ++b) {
      for (int64_t i = 0; i < kNew; ++i) {
        for (int64_t h = 0; h < kHeads; ++h) {
          for (int64_t d = 0; d < kDim; ++d) {
            EXPECT_EQ(f.key(b, f.positions[b] + i, h, d), f.new_key(b, i, h, d));
          }
          for (int64_t d = 0; d < kDimV; ++d) {
            EXPECT_EQ(f.value(b, f.positions[b] + i, h, d), f.new_value(b, i, h, d));
          }
        }
      }
    }
    EXPECT_EQ(f.written(), 2u * kBatch * kNew * kHeads);  // and nothing else
  }
}

TEST(Append, TurnsPairsByTheirPosition) {
  const fa4::Device device("cpu");
  constexpr int64_t kRotary = 12;  // the last four numbers stay
  std::vector<float> cosine, sine;
  for (int64_t n = 0; n < kRoom; ++n) {
    for (int64_t i = 0; i < kRotary / 2; ++i) {
      cosine.push_back(std::cos(static_cast<float>(n) / static_cast<float>(i + 1)));
      sine.push_back(std::sin(static_cast<float>(n) / static_cast<float>(i + 1)));
    }
  }
  for (const bool interleaved : {false, true}) {
    Fixture f(true);
    f.args.cos = cosine.data();
    f.args.sin = sine.data();
    f.args.rotary_dim = kRotary;
    f.args.rotary_rows = kRoom;
    f.args.rotary_pairs = interleaved ? FA4_ROTARY_INTERLEAVED : FA4_ROTARY_HALVES;
    fa4::append(device, f.problem, f.args);
    for (int64_t b = 0; b < kBatch; ++b) {
      const int64_t n = f.positions[b] + 3;
      for (int64_t i = 0; i < kRotary / 2; ++i) {
        const int64_t at = n * kRotary / 2 + i;
        const int64_t first = interleaved ? 2 * i : i;
        const int64_t second = interleaved ? 2 * i + 1 : i + kRotary / 2;
        const float x = f.new_key(b, 3, 1, first), y = f.new_key(b, 3, 1, second);
        EXPECT_NEAR(f.key(b, n, 1, first), x * cosine[at] - y * sine[at], 1e-6);
        EXPECT_NEAR(f.key(b, n, 1, second), y * cosine[at] + x * sine[at], 1e-6);
      }
      for (int64_t d = kRotary; d < kDim; ++d) {
        EXPECT_EQ(f.key(b, n, 1, d), f.new_key(b, 3, 1, d));
      }
      EXPECT_EQ(f.value(b, n, 1, 3), f.new_value(b, 3, 1, 3));
    }
  }
}

// bf16 keys with factors in f32: one rounding.
TEST(Append, TurnsSixteenBitsByFactorsInF32) {
  const fa4::Device device("cpu");
  fa4::Problem problem;
  problem.dtype = FA4_BF16;
  problem.batch = problem.seqlen_q = problem.seqlen_k = problem.heads_q = problem.heads_kv = 1;
  problem.head_dim = 8;
  const uint16_t ones[8] = {0x3f80, 0x3f80, 0x3f80, 0x3f80, 0x3f80, 0x3f80, 0x3f80, 0x3f80};
  uint16_t k_cache[8] = {}, v_cache[8] = {};
  const float cosine[1] = {0.6f}, sine[1] = {0.8f};
  const int32_t position = 0;
  fa4::AppendArgs args;
  args.k = args.v = ones;
  args.k_cache = k_cache;
  args.v_cache = v_cache;
  args.positions = &position;
  args.cos = cosine;
  args.sin = sine;
  args.rotary_dtype = FA4_F32;
  args.rotary_dim = 2;
  args.rotary_rows = 1;
  fa4::append(device, problem, args);
  EXPECT_EQ(k_cache[0], 0xbe4d);  // -0.2
  EXPECT_EQ(k_cache[1], 0x3fb3);  // 1.4
  EXPECT_EQ(k_cache[2], 0x3f80);
}

// The value of an e4m3 without NaN.
float value_of(uint8_t byte) {
  const int exponent = byte >> 3 & 15, mantissa = byte & 7;
  const float magnitude = exponent == 0
                              ? std::ldexp(static_cast<float>(mantissa), -9)
                              : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return byte > 127 ? -magnitude : magnitude;
}

// No byte is nearer to a number over its descale than the one that was stored.
TEST(Append, QuantisesToTheNearestByte) {
  const fa4::Device device("cpu");
  for (const bool paged : {false, true}) {
    Fixture f(paged);
    f.problem.kv_dtype = FA4_E4M3;
    f.problem.has_descales = 1;
    f.problem.k_descale_strides[0] = 2, f.problem.k_descale_strides[2] = 1;
    const std::vector<float> k_descale{0.5f, 0.002f, 0.1f, 3.0f, 0.01f, 0.03f}, v_descale{0.004f};
    f.args.k_descale = k_descale.data();
    f.args.v_descale = v_descale.data();
    f.v[0] = 100;  // beyond 448 descales
    std::vector<uint8_t> keys(f.k_cache.size(), 0x7f), values(f.v_cache.size(), 0x7f);
    f.args.k_cache = keys.data();
    f.args.v_cache = values.data();
    fa4::append(device, f.problem, f.args);
    const auto expect_nearest = [](uint8_t byte, float number) {
      ASSERT_NE(byte & 127, 127);
      const float error = std::fabs(value_of(byte) - number);
      for (int other = 0; other < 256; ++other) {
        if (other % 128 == 127) continue;
        EXPECT_LE(error, std::fabs(value_of(static_cast<uint8_t>(other)) - number)) << number;
      }
    };
    for (int64_t b = 0; b < kBatch; ++b) {
      for (int64_t i = 0; i < kNew; ++i) {
        const int64_t row = f.row_of(b, f.positions[b] + i);
        for (int64_t h = 0; h < kHeads; ++h) {
          const size_t at = static_cast<size_t>(row * kHeads + h);
          expect_nearest(keys[at * kDim + 5], f.new_key(b, i, h, 5) / k_descale[b * 2 + h]);
          expect_nearest(values[at * kDimV], f.new_value(b, i, h, 0) / v_descale[0]);
        }
      }
    }
    const auto written = [](uint8_t byte) { return byte != 0x7f; };
    EXPECT_EQ(std::count_if(keys.begin(), keys.end(), written), kBatch * kNew * kHeads * kDim);
  }
}

// Quotients beside the middle between two bytes, which a quotient of 24 bits is itself.
TEST(Append, RoundsQuotientsOnce) {
  const fa4::Device device("cpu");
  Fixture f(false);
  f.problem.kv_dtype = FA4_E4M3;
  f.problem.has_descales = 1;
  const float one = 1.0f;
  f.args.k_descale = &one;
  int beside = 0;
  for (int step = 1; step < 40; ++step) {
    const float descale = 1.0f + 0.02499f * static_cast<float>(step);
    f.args.v_descale = &descale;
    for (size_t i = 0; i < f.v.size(); ++i) {
      const auto byte = static_cast<uint8_t>(1 + i % 125);
      const double middle = (value_of(byte) + value_of(static_cast<uint8_t>(byte + 1))) / 2.0;
      f.v[i] = static_cast<float>(middle * descale);
    }
    std::vector<uint8_t> keys(f.k_cache.size()), values(f.v_cache.size());
    f.args.k_cache = keys.data();
    f.args.v_cache = values.data();
    fa4::append(device, f.problem, f.args);
    for (size_t i = 0; i < f.v.size(); ++i) {
      const size_t row = i / (kHeads * kDimV), b = row / kNew;
      const int64_t to =
          f.row_of(static_cast<int64_t>(b), f.positions[b]) + static_cast<int64_t>(row % kNew);
      const uint8_t stored =
          values[static_cast<size_t>(to) * kHeads * kDimV + i % (kHeads * kDimV)];
      const auto byte = static_cast<uint8_t>(1 + i % 125);
      const double middle = (value_of(byte) + value_of(static_cast<uint8_t>(byte + 1))) / 2.0;
      const double quotient = f.v[i] / static_cast<double>(descale);
      if (quotient == middle) continue;  // f32 holds it: to the even one, as any tie
      ++beside;
      EXPECT_EQ(stored, quotient > middle ? byte + 1 : byte) << quotient << " by " << descale;
    }
  }
  EXPECT_GT(beside, 1000);
}

// Sequences of 3, 0 and 1 new rows, packed, out of wider rows.
TEST(Append, TakesPackedRowsByStrides) {
  const fa4::Device device("cpu");
  Fixture f(true);
  f.problem.layout_q = FA4_PACKED;
  f.problem.total_q = 9;
  const int32_t starts[] = {0, 3, 3, 4};
  f.args.cu_seqlens_q = starts;
  f.args.has_totals = 1;
  f.args.total_q = 4;
  f.args.k_strides[1] = 2 * kHeads * kDim, f.args.k_strides[2] = kDim;  // every other row
  fa4::append(device, f.problem, f.args);
  EXPECT_EQ(f.written(), 2u * 4 * kHeads);
  const float* third = &f.k[2 * 3 * kHeads * kDim];
  EXPECT_EQ(f.key(2, 8, 1, 7), third[kDim + 7]);
  EXPECT_EQ(f.value(2, 8, 1, 7), f.v[(3 * kHeads + 1) * kDimV + 7]);
}

// A cache that grew step by step is that of all keys at once, to attention.
TEST(Append, FeedsAttention) {
  const fa4::Device device("cpu");
  const int64_t steps = 70;
  small::Tensors t(1, steps, 1);
  std::vector<float> k_cache(t.k.size(), kNan), v_cache(t.v.size(), kNan);
  fa4::Problem problem = small::dense_problem(1, 1, steps, true);
  problem.has_seqused_k = 1;
  for (int32_t n = 0; n < steps; ++n) {
    fa4::AppendArgs args;
    args.k = &t.k[static_cast<size_t>(n * small::kHeadsKV * small::kHeadDim)];
    args.v = &t.v[static_cast<size_t>(n * small::kHeadsKV * small::kHeadDim)];
    args.k_cache = k_cache.data();
    args.v_cache = v_cache.data();
    args.positions = &n;
    fa4::append(device, problem, args);
  }
  fa4::ForwardArgs args = t.args();
  const int32_t used = steps;
  args.seqused_k = &used;
  args.k = k_cache.data();
  args.v = v_cache.data();
  fa4::forward(device, problem, args);
  EXPECT_LT(small::error_of(t, 0, 1, 0, steps, true), small::kBound);
}

// A call that is right but for what `change` does is refused in words that begin so; it writes
// nothing.
template <class Change>
void expect_refusal(bool paged, const std::string& wanted, const Change& change) {
  const fa4::Device device("cpu");
  Fixture f(paged);
  change(f);
  const fa4_status status = fa4_append(device.get(), &f.problem, &f.args);
  const std::string said = status == FA4_OK ? "accepted" : fa4_last_error();
  EXPECT_EQ(said.substr(0, wanted.size()), wanted);
  EXPECT_EQ(f.written(), 0u);
}

TEST(Append, RefusesWhatItCannotTake) {
  expect_refusal(true, "positions[1] -1 of 4 new rows; accepted: 0 to 8 (seqlen_k 12)",
                 [](Fixture& f) { f.positions[1] = -1; });
  expect_refusal(false, "positions[2] 9 of 4 new rows; accepted: 0 to 8",
                 [](Fixture& f) { f.positions[2] = 9; });
  expect_refusal(false,
                 "seqlen_q 4 of sequence 0; accepted: 0 to 3 (seqlen_k, its room in the cache)",
                 [](Fixture& f) { f.problem.seqlen_k = 3; });
  expect_refusal(true, "page_table[1, 1] 11; accepted: 0 to 10 (num_pages 11)",
                 [](Fixture& f) { f.table[4] = 11; });
  expect_refusal(true, "page_table is NULL", [](Fixture& f) { f.args.page_table = nullptr; });
  expect_refusal(false, "page_table is given, but",
                 [](Fixture& f) { f.args.page_table = f.table; });
  expect_refusal(true, "positions is NULL", [](Fixture& f) { f.args.positions = nullptr; });
  expect_refusal(true, "k is NULL", [](Fixture& f) { f.args.k = nullptr; });
  expect_refusal(true, "v_cache is NULL", [](Fixture& f) { f.args.v_cache = nullptr; });
  expect_refusal(false, "k_cache 0x", [](Fixture& f) { f.args.v = f.args.k_cache; });
  expect_refusal(false, "strides (1, 0, 0) of k_cache overlap",
                 [](Fixture& f) { f.problem.k_strides[0] = 1; });
  expect_refusal(false, "layout_kv packed; accepted for a cache: dense, paged",
                 [](Fixture& f) { f.problem.layout_kv = FA4_PACKED; });
  expect_refusal(true, "descale_block 4; accepted: 0, as has_descales is 0",
                 [](Fixture& f) { f.problem.descale_block = 4; });
  expect_refusal(true, "stream 0x", [](Fixture& f) { f.args.stream = &f; });
}

TEST(Append, RefusesARotaryEmbeddingThatItCannotTake) {
  const float factors[64] = {};
  const auto rotary = [&](Fixture& f, int64_t dim, int64_t rows) {
    f.args.cos = f.args.sin = factors;
    f.args.rotary_dim = dim, f.args.rotary_rows = rows;
  };
  const auto* const off = reinterpret_cast<const char*>(factors) + 1;
  expect_refusal(true, "sin is NULL beside cos; accepted: both, or neither",
                 [&](Fixture& f) { f.args.cos = factors; });
  expect_refusal(true, "cos 0x", [&](Fixture& f) { rotary(f, 4, 12), f.args.cos = off; });
  expect_refusal(true, "sin 0x", [&](Fixture& f) { rotary(f, 4, 12), f.args.sin = off; });
  expect_refusal(true, "rotary_dim 3; accepted: even numbers from 2 to head_dim 16",
                 [&](Fixture& f) { rotary(f, 3, 12); });
  expect_refusal(true,
                 "rotary_rows 11; accepted: at least 12, as positions[2] is 8 and has 4 new rows",
                 [&](Fixture& f) { rotary(f, 4, 11); });
  expect_refusal(true, "rotary_rows 9223372036854775807; accepted: 0 to 2147483647",
                 [&](Fixture& f) { rotary(f, 4, INT64_MAX); });
  expect_refusal(true, "rotary_pairs 2; accepted: 0 (halves), 1",
                 [&](Fixture& f) { rotary(f, 4, 12), f.args.rotary_pairs = 2; });
  expect_refusal(true, "rotary_dtype 2; accepted: 0 (dtype, f32), 1",
                 [&](Fixture& f) { rotary(f, 4, 12), f.args.rotary_dtype = FA4_F16; });
}

TEST(Append, OfFloatsIsRefusedOnAGpu) {
  fa4_device* emulated = nullptr;
  if (fa4_open_device("emulated:h200", &emulated) != FA4_OK) GTEST_SKIP() << fa4_last_error();
  Fixture f(false);
  EXPECT_EQ(fa4_append(emulated, &f.problem, &f.args), FA4_NOT_SUPPORTED);
  EXPECT_STREQ(fa4_last_error(), "fa4_append: dtype f32; accepted on a GPU: bf16, f16");
  fa4_close_device(emulated);
}

}  // namespace
