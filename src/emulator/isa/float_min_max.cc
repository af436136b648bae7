// min, max, abs, neg, copysign, testp of .f32 and .f64 ("Floating Point Instructions"; PTX ISA
// 9.7.3).
#include <cmath>

#include "emulator/isa/alu.h"
#include "emulator/isa/alu_rows.h"
#include "emulator/isa/float_decode.h"

namespace ptxemu {
namespace {

// x < y ? x : y with -0 below +0. No operand is NaN.
template <bool kMax>
PTXEMU_INLINE float lesser(float a, float b) {
  const uint32_t x = bits_of_float(a), y = bits_of_float(b);
  const float chosen = (kMax ? a > b : a < b) ? a : b;
  return a == b ? float_of_bits(kMax ? x & y : x | y) : chosen;
}

template <bool kMax, bool kNan>
PTXEMU_INLINE float min_max(float a, float b) {
  float r = lesser<kMax>(a, b);
  r = b != b ? a : r;
  r = a != a ? b : r;
  const bool is_nan = kNan ? (a != a) | (b != b) : (a != a) & (b != b);
  return is_nan ? float_of_bits(kNan32) : r;
}

PTXEMU_INLINE float magnitude(float x) { return float_of_bits(bits_of_float(x) & 0x7fffffff); }

template <bool kMax, bool kNan, bool kFlush, bool kAbs, bool kXorSign>
struct MinMax {
  PTXEMU_INLINE static float prepare(float x) {
    const float flushed = flush_if<kFlush>(x);
    return kAbs ? magnitude(flushed) : flushed;
  }
  PTXEMU_INLINE static float apply(float a, float b) {
    const float r = min_max<kMax, kNan>(prepare(a), prepare(b));
    if (!kXorSign) return r;
    const uint32_t sign = (bits_of_float(a) ^ bits_of_float(b)) & 0x80000000;
    return r != r ? r : float_of_bits((bits_of_float(r) & 0x7fffffff) | sign);
  }
  PTXEMU_INLINE static float apply(float a, float b, float c) {
    return min_max<kMax, kNan>(min_max<kMax, kNan>(prepare(a), prepare(b)), prepare(c));
  }
};

template <bool kMax>
struct MinMax64 {
  PTXEMU_INLINE static double apply(double a, double b) {
    const auto x = std::bit_cast<uint64_t>(a), y = std::bit_cast<uint64_t>(b);
    double r = (kMax ? a > b : a < b) ? a : b;
    r = a == b ? std::bit_cast<double>(kMax ? x & y : x | y) : r;
    r = b != b ? a : r;
    r = a != a ? b : r;
    return first_nan(r, r, r);  // of two NaN: b, made quiet
  }
};

template <bool kMax>
Handler f32_handler(bool three, bool nan, bool ftz, bool abs, bool xorsign) {
  return by_bool(nan, [&](auto n) {
    return by_bool(ftz, [&](auto f) {
      constexpr bool kNan = decltype(n)::value, kFlush = decltype(f)::value;
      using Plain = MinMax<kMax, kNan, kFlush, false, false>;
      using Abs = MinMax<kMax, kNan, kFlush, true, false>;
      using XorSign = MinMax<kMax, kNan, kFlush, true, true>;
      if (three) return abs ? plain_handler<Map3<Abs, float>>() : handler<Map3<Plain, float>>();
      if (xorsign) return plain_handler<Map2<XorSign, float>>();
      return handler<Map2<Plain, float>>();
    });
  });
}

template <bool kMax>
void decode_min_max(Decoder& decoder, Insn& insn, Type type) {
  if (is_half(type)) return decode_half_min_max(decoder, insn, type, kMax);
  const bool three = decoder.operand_count() == 4;
  if (type == Type::kF64) {
    operands_2(decoder, insn, type);
    insn.run = handler<Map2<MinMax64<kMax>, double>>();
    return;
  }
  if (type != Type::kF32) {
    decoder.fail_type(type, ".f32, .f64, .f16, .f16x2, .bf16, .bf16x2, and integers");
  }
  const bool ftz = decoder.take("ftz"), nan = decoder.take("NaN");
  const bool xorsign = !three && decoder.take("xorsign");
  const bool abs = (three || xorsign) && decoder.take("abs");
  if (xorsign && !abs) decoder.fail(".xorsign without .abs; accepted: .xorsign.abs");
  if (three) {
    operands_3(decoder, insn, type);
  } else {
    operands_2(decoder, insn, type);
  }
  insn.run = f32_handler<kMax>(three, nan, ftz, abs, xorsign);
}

// --- The sign
// ---------------------------------------------------------------------------------------
template <bool kFlush, bool kNegate>
struct Sign32 {
  PTXEMU_INLINE static uint32_t apply(uint32_t a) {
    const uint32_t x = kFlush && (a & 0x7f800000) == 0 ? a & 0x80000000 : a;
    const uint32_t r = kNegate ? x ^ 0x80000000 : x & 0x7fffffff;
    return (a & 0x7fffffff) > 0x7f800000 ? kNan32 : r;
  }
};
template <bool kNegate>
struct Sign64 {
  PTXEMU_INLINE static uint64_t apply(uint64_t a) {
    constexpr uint64_t kSign = uint64_t{1} << 63;
    const bool is_nan = (a & ~kSign) > 0x7ff0000000000000;
    const uint64_t r = kNegate ? a ^ kSign : a & ~kSign;
    return is_nan ? a | kQuietBit : r;
  }
};
template <bool kNegate>
void decode_sign(Decoder& decoder, Insn& insn, Type type) {
  const bool ftz = type == Type::kF32 && decoder.take("ftz");
  operands_1(decoder, insn, type);
  if (type == Type::kF32) {
    insn.run = ftz ? handler<Map1<Sign32<true, kNegate>, uint32_t>>()
                   : handler<Map1<Sign32<false, kNegate>, uint32_t>>();
  } else if (type == Type::kF64) {
    insn.run = handler<Map1<Sign64<kNegate>, uint64_t>>();
  } else {
    decoder.fail_type(type, ".f32, .f64, .f16, .f16x2, .bf16, .bf16x2, .s16, .s32, .s64");
  }
}

// The sign of a with the value of b.
struct CopySign {
  template <class T>
  PTXEMU_INLINE static T apply(T a, T b) {
    constexpr T kSign = T{1} << (sizeof(T) * 8 - 1);
    return (a & kSign) | (b & ~kSign);
  }
};
void decode_copysign(Decoder& decoder, Insn& insn) {
  const Type type = decoder.need_type();
  if (type != Type::kF32 && type != Type::kF64)
    decoder.fail("copysign of another type; accepted: .f32, .f64");
  operands_2(decoder, insn, type);
  insn.run = type == Type::kF32 ? handler<Map2<CopySign, uint32_t>>()
                                : handler<Map2<CopySign, uint64_t>>();
}

// --- testp
// ------------------------------------------------------------------------------------------
enum class Property : uint8_t {
  kNone,
  kFinite,
  kInfinite,
  kNumber,
  kNotANumber,
  kNormal,
  kSubnormal
};
template <class T>
struct Testp {
  static bool holds(Property property, T x) {
    switch (property) {
      case Property::kFinite: return std::isfinite(x);
      case Property::kInfinite: return std::isinf(x);
      case Property::kNumber: return !std::isnan(x);
      case Property::kNotANumber: return std::isnan(x);
      case Property::kNormal: return std::isnormal(x) || x == 0;  // zero too, on an H200
      case Property::kSubnormal: return std::fpclassify(x) == FP_SUBNORMAL;
      default: return false;
    }
  }
  static void run(const Exec& exec, const Insn& insn) {
    const T* a = exec.lanes<T>(insn.a);
    const auto property = insn.form<Property>();
    exec.set_predicate(insn.d, lane_mask([=](int i) { return holds(property, a[i]); }));
  }
};
void decode_testp(Decoder& decoder, Insn& insn) {
  const auto property = decoder.take_one<Property>({{"finite", Property::kFinite},
                                                    {"infinite", Property::kInfinite},
                                                    {"number", Property::kNumber},
                                                    {"notanumber", Property::kNotANumber},
                                                    {"normal", Property::kNormal},
                                                    {"subnormal", Property::kSubnormal}},
                                                   Property::kNone);
  if (property == Property::kNone)
    decoder.fail(
        "testp without a property; accepted: .finite, .infinite, .number, .notanumber, .normal, "
        ".subnormal");
  const Type type = decoder.need_type();
  if (type != Type::kF32 && type != Type::kF64)
    decoder.fail("testp of another type; accepted: .f32, .f64");
  decoder.need_operands(2, 2);
  decoder.set_form(insn, property);
  insn.a = decoder.source(1, type);
  insn.d = decoder.dest(0, Type::kPred);
  insn.run = type == Type::kF32 ? plain_handler<Testp<float>>() : plain_handler<Testp<double>>();
}

constexpr InstructionRow kRows[] = {
    {"copysign", decode_copysign, "Floating Point Instructions: copysign", ValueFlow::kComputes},
    {"testp", decode_testp, "Floating Point Instructions: testp", ValueFlow::kDecides},
};

}  // namespace

void decode_float_min(Decoder& decoder, Insn& insn, Type type) {
  decode_min_max<false>(decoder, insn, type);
}
void decode_float_max(Decoder& decoder, Insn& insn, Type type) {
  decode_min_max<true>(decoder, insn, type);
}
void decode_float_abs(Decoder& decoder, Insn& insn, Type type) {
  if (is_half(type)) return decode_half_abs(decoder, insn, type);
  decode_sign<false>(decoder, insn, type);
}
void decode_float_neg(Decoder& decoder, Insn& insn, Type type) {
  if (is_half(type)) return decode_half_neg(decoder, insn, type);
  decode_sign<true>(decoder, insn, type);
}

std::span<const InstructionRow> sign_rows() { return kRows; }

}  // namespace ptxemu
