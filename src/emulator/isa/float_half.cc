// "Half Precision Floating Point Instructions" (PTX ISA 9.7.4): .f16, .bf16 and pairs of them.
// Sums and products of 11-bit numbers are rounded right by way of float; fma goes through a double
// rounded to odd.
#include <cmath>

#include "emulator/isa/alu.h"
#include "emulator/isa/float_decode.h"

namespace ptxemu {
namespace {

template <class Format, bool kFlush>
PTXEMU_INLINE uint16_t flush_half(uint16_t x) {
  static_assert(!kFlush || std::is_same_v<Format, HalfFormat>);
  return kFlush && (x & 0x7c00) == 0 ? static_cast<uint16_t>(x & 0x8000) : x;
}
enum class Clamp : uint8_t { kNone, kSat, kRelu };
PTXEMU_INLINE uint16_t relu_16(uint16_t x, uint16_t infinity) {
  const bool nan = (x & 0x7fff) > infinity;
  return nan ? kNan16 : x & 0x8000 ? uint16_t{0} : x;
}
template <class Format>
inline constexpr uint16_t kInfinity = std::is_same_v<Format, HalfFormat> ? 0x7c00 : 0x7f80;

template <HalfOp kOp, class Format, bool kFlush, Clamp kClamp>
struct Half {
  PTXEMU_INLINE static uint16_t apply(uint16_t a, uint16_t b) { return apply(a, b, 0); }
  PTXEMU_INLINE static uint16_t apply(uint16_t a, uint16_t b, uint16_t c) {
    const float x = Format::load(flush_half<Format, kFlush>(a));
    const float y = Format::load(flush_half<Format, kFlush>(b));
    float r;
    switch (kOp) {
      case HalfOp::kAdd: r = x + y; break;
      case HalfOp::kSub: r = x - y; break;
      case HalfOp::kMul: r = x * y; break;
      case HalfOp::kFma:
        r = float_to_odd(fused_to_odd(x, y, Format::load(flush_half<Format, kFlush>(c))));
        break;
    }
    if (kClamp == Clamp::kSat) r = saturate_unit(r);
    // What is below the normal numbers when it is rounded to 11 bits and any exponent becomes zero,
    // as on an H100.
    if (kFlush) r = std::fabs(r) < 0x1p-14f - 0x1p-26f ? std::copysign(0.0f, r) : r;
    uint16_t h = Format::store(r);
    if (kClamp == Clamp::kRelu) h = relu_16(h, kInfinity<Format>);
    return h;
  }
};

template <HalfOp kOp, class F, int kPer>
using Lanes =
    std::conditional_t<kOp == HalfOp::kFma, Map3<F, uint16_t, uint16_t, uint16_t, uint16_t, kPer>,
                       Map2<F, uint16_t, uint16_t, uint16_t, kPer>>;

template <class F, HalfOp kOp>
Handler lanes(bool pair) {
  return pair ? handler<Lanes<kOp, F, 2>>() : handler<Lanes<kOp, F, 1>>();
}
// Of forms that no compiler writes by itself.
template <class F, HalfOp kOp>
Handler rare_lanes(bool pair) {
  return pair ? plain_handler<Lanes<kOp, F, 2>>() : plain_handler<Lanes<kOp, F, 1>>();
}

template <HalfOp kOp>
Handler half_handler(Type type, bool ftz, Clamp clamp) {
  const bool pair = bits_of(type) == 32;
  if (type == Type::kBF16 || type == Type::kBF16x2) {
    if (clamp == Clamp::kNone) {
      return lanes<Half<kOp, BfloatFormat, false, Clamp::kNone>, kOp>(pair);
    }
    return rare_lanes<Half<kOp, BfloatFormat, false, Clamp::kRelu>, kOp>(pair);
  }
  if (!ftz && clamp == Clamp::kNone) {
    return lanes<Half<kOp, HalfFormat, false, Clamp::kNone>, kOp>(pair);
  }
  return by_bool(ftz, [&](auto flush) {
    constexpr bool kFlush = decltype(flush)::value;
    switch (clamp) {
      case Clamp::kSat: return rare_lanes<Half<kOp, HalfFormat, kFlush, Clamp::kSat>, kOp>(pair);
      case Clamp::kRelu: return rare_lanes<Half<kOp, HalfFormat, kFlush, Clamp::kRelu>, kOp>(pair);
      default: return rare_lanes<Half<kOp, HalfFormat, true, Clamp::kNone>, kOp>(pair);
    }
  });
}

// fma with .oob: zero where a factor is the NaN that tensor copies fill with, of either sign.
template <class F>
struct OutOfBounds {
  PTXEMU_INLINE static uint16_t apply(uint16_t a, uint16_t b, uint16_t c) {
    constexpr uint16_t kFilled = 0x7ff7;
    const bool filled = (a & 0x7fff) == kFilled || (b & 0x7fff) == kFilled;
    return filled ? uint16_t{0} : F::apply(a, b, c);
  }
};
Handler out_of_bounds_handler(Type type, bool relu) {
  const bool pair = bits_of(type) == 32, bfloat = type == Type::kBF16 || type == Type::kBF16x2;
  return by_bool(relu, [&](auto clamped) {
    constexpr Clamp kClamp = decltype(clamped)::value ? Clamp::kRelu : Clamp::kNone;
    using F16 = Half<HalfOp::kFma, HalfFormat, false, kClamp>;
    using BF16 = Half<HalfOp::kFma, BfloatFormat, false, kClamp>;
    return bfloat ? rare_lanes<OutOfBounds<BF16>, HalfOp::kFma>(pair)
                  : rare_lanes<OutOfBounds<F16>, HalfOp::kFma>(pair);
  });
}

// --- abs and neg: the sign bit
// ----------------------------------------------------------------------
template <class Format, bool kFlush, bool kNegate>
struct Sign {
  PTXEMU_INLINE static uint16_t apply(uint16_t a) {
    const uint16_t x = flush_half<Format, kFlush>(a);
    const auto r = static_cast<uint16_t>(kNegate ? x ^ 0x8000 : x & 0x7fff);
    return (x & 0x7fff) > kInfinity<Format> ? kNan16 : r;
  }
};
template <class F>
Handler sign_handler(bool pair) {
  return pair ? handler<Map1<F, uint16_t, uint16_t, 2>>() : handler<Map1<F, uint16_t>>();
}
template <bool kNegate>
void decode_sign(Decoder& decoder, Insn& insn, Type type) {
  const bool is_f16 = type == Type::kF16 || type == Type::kF16x2;
  const bool ftz = is_f16 && decoder.take("ftz");
  const bool pair = bits_of(type) == 32;
  operands_1(decoder, insn, type);
  if (!is_f16) {
    insn.run = sign_handler<Sign<BfloatFormat, false, kNegate>>(pair);
  } else {
    insn.run = ftz ? sign_handler<Sign<HalfFormat, true, kNegate>>(pair)
                   : sign_handler<Sign<HalfFormat, false, kNegate>>(pair);
  }
}

// --- min and max
// ------------------------------------------------------------------------------------ Numbers of
// either format as integers in the same order, -0 below +0.
PTXEMU_INLINE int order(uint16_t x) {
  const int magnitude = x & 0x7fff;
  return x & 0x8000 ? -magnitude - 1 : magnitude;
}
struct MinMaxFlags {
  bool is_max, nan, xorsign;
};
template <class Format, bool kFlush>
struct MinMax {
  static uint16_t apply(uint16_t a, uint16_t b, MinMaxFlags flags) {
    a = flush_half<Format, kFlush>(a);
    b = flush_half<Format, kFlush>(b);
    const auto sign = static_cast<uint16_t>((a ^ b) & 0x8000);
    if (flags.xorsign) {
      a &= 0x7fff;
      b &= 0x7fff;
    }
    const bool a_nan = (a & 0x7fff) > kInfinity<Format>, b_nan = (b & 0x7fff) > kInfinity<Format>;
    if ((a_nan && b_nan) || (flags.nan && (a_nan || b_nan))) return kNan16;
    uint16_t r = a_nan ? b : a;
    if (!a_nan && !b_nan) r = (order(a) < order(b)) != flags.is_max ? a : b;
    return flags.xorsign ? static_cast<uint16_t>((r & 0x7fff) | sign) : r;
  }
};
template <class Format, bool kFlush, int kPer>
struct MinMaxLanes {
  static void run(const Exec& exec, const Insn& insn) {
    const auto *a = exec.lanes<uint16_t>(insn.a), *b = exec.lanes<uint16_t>(insn.b);
    const MinMaxFlags flags = insn.form<MinMaxFlags>();
    each_lane<kPer>(exec.mask, exec.lanes<uint16_t>(insn.d),
                    [=](int i) { return MinMax<Format, kFlush>::apply(a[i], b[i], flags); });
  }
};

}  // namespace

bool is_half(Type type) {
  return type == Type::kF16 || type == Type::kF16x2 || type == Type::kBF16 || type == Type::kBF16x2;
}

void decode_half(Decoder& decoder, Insn& insn, Type type, HalfOp op) {
  const FloatForm form = take_float_form(decoder, type);
  if (form.round != Round::kNearest)
    decoder.fail("another rounding of half precision; accepted: .rn");
  if (op == HalfOp::kFma && !form.has_round) decoder.fail("fma without a rounding; accepted: .rn");
  const bool bounds = op == HalfOp::kFma && !form.ftz && !form.sat && decoder.take("oob");
  const bool relu = op == HalfOp::kFma && decoder.take("relu");
  if (relu && form.sat) decoder.fail(".sat and .relu together; accepted: one of them");
  const Clamp clamp = form.sat ? Clamp::kSat : relu ? Clamp::kRelu : Clamp::kNone;
  if (op == HalfOp::kFma) {
    operands_3(decoder, insn, type);
  } else {
    operands_2(decoder, insn, type);
  }
  if (bounds) {
    insn.run = out_of_bounds_handler(type, relu);
    return;
  }
  switch (op) {
    case HalfOp::kAdd: insn.run = half_handler<HalfOp::kAdd>(type, form.ftz, clamp); break;
    case HalfOp::kSub: insn.run = half_handler<HalfOp::kSub>(type, form.ftz, clamp); break;
    case HalfOp::kMul: insn.run = half_handler<HalfOp::kMul>(type, form.ftz, clamp); break;
    case HalfOp::kFma: insn.run = half_handler<HalfOp::kFma>(type, form.ftz, clamp); break;
  }
}

void decode_half_abs(Decoder& decoder, Insn& insn, Type type) {
  decode_sign<false>(decoder, insn, type);
}
void decode_half_neg(Decoder& decoder, Insn& insn, Type type) {
  decode_sign<true>(decoder, insn, type);
}

void decode_half_min_max(Decoder& decoder, Insn& insn, Type type, bool is_max) {
  const bool is_f16 = type == Type::kF16 || type == Type::kF16x2;
  const bool ftz = is_f16 && decoder.take("ftz");
  const bool nan = decoder.take("NaN"), xorsign = decoder.take("xorsign");
  if (xorsign && !decoder.take("abs"))
    decoder.fail(".xorsign without .abs; accepted: .xorsign.abs");
  operands_2(decoder, insn, type);
  decoder.set_form(insn, MinMaxFlags{is_max, nan, xorsign});
  const bool pair = bits_of(type) == 32;
  if (!is_f16) {
    insn.run = pair ? plain_handler<MinMaxLanes<BfloatFormat, false, 2>>()
                    : plain_handler<MinMaxLanes<BfloatFormat, false, 1>>();
  } else {
    insn.run = by_bool(ftz, [&](auto flush) {
      constexpr bool kFlush = decltype(flush)::value;
      return pair ? plain_handler<MinMaxLanes<HalfFormat, kFlush, 2>>()
                  : plain_handler<MinMaxLanes<HalfFormat, kFlush, 1>>();
    });
  }
}

}  // namespace ptxemu
