// cvt of pairs of values, to .tf32 and .ue8m0, and cvt.pack ("Data Movement and Conversion
// Instructions": cvt, cvt.pack; PTX ISA 9.7.9.21, 9.7.9.22). Of two sources the first goes to the
// upper half of the result.
#include <algorithm>
#include <cmath>

#include "emulator/isa/convert.h"

namespace ptxemu {
namespace {

bool is_small_pair(Type type) {
  switch (type) {
    case Type::kE4M3x2:
    case Type::kE5M2x2:
    case Type::kE2M1x2:
    case Type::kE2M3x2:
    case Type::kE3M2x2: return true;
    default: return false;
  }
}
bool is_sixteen_pair(Type type) { return type == Type::kF16x2 || type == Type::kBF16x2; }

// --- f32, f32 -> f16x2, bf16x2
// ---------------------------------------------------------------------
template <class Format, bool kRelu>
struct PairOf {
  PTXEMU_INLINE static uint32_t one(float x) {
    const uint16_t r = Format::store(x);
    return kRelu && (r & 0x8000) ? 0 : r;
  }
  PTXEMU_INLINE static uint32_t apply(float a, float b) { return one(a) << 16 | one(b); }
};

// What a slow conversion of pairs keeps.
struct PairForm {
  SmallFormat format;
  SmallRounding rounding;
  int random_bits;  // of each half
};
struct SlowPair {
  static void run(const Exec& exec, const Insn& insn) {
    const PairForm& form = insn.form<PairForm>();
    const auto *a = exec.lanes<float>(insn.a), *b = exec.lanes<float>(insn.b);
    const bool random = form.rounding.round == SmallRound::kStochastic;
    const auto* bits = random ? exec.lanes<uint32_t>(insn.c) : nullptr;
    exec.for_lanes([&](int i) {
      SmallRounding high = form.rounding, low = form.rounding;
      if (random) {
        const uint32_t mask = (1u << form.random_bits) - 1;
        high.random = std::ldexp(bits[i] >> 16 & mask, -form.random_bits);
        low.random = std::ldexp(bits[i] & mask, -form.random_bits);
      }
      exec.lanes<uint32_t>(insn.d)[i] =
          encode_small(a[i], form.format, high) << 16 | encode_small(b[i], form.format, low);
    });
  }
};

void decode_to_sixteen_pair(Decoder& decoder, Insn& insn, const ConvertForm& form) {
  const bool half = form.to == Type::kF16x2;
  const bool random = form.rounding == SmallRound::kStochastic;
  const bool known = form.rounding == SmallRound::kNearest || form.rounding == SmallRound::kZero;
  if (!form.has_rounding || form.integral || (!known && !random)) {
    decoder.fail("cvt without its rounding; accepted: .rn, .rz, .rs");
  }
  const bool relu = decoder.take("relu"), finite = decoder.take("satfinite");
  decoder.need_operands(random ? 4 : 3, random ? 4 : 3);
  insn.a = decoder.source(1, Type::kF32);
  insn.b = decoder.source(2, Type::kF32);
  if (random) insn.c = decoder.source(3, Type::kB32);
  insn.d = decoder.dest(0, Type::kB32);
  if (form.rounding == SmallRound::kNearest && !finite) {
    insn.run = by_bool(relu, [&](auto r) {
      constexpr bool kRelu = decltype(r)::value;
      return half ? handler<Map2<PairOf<HalfFormat, kRelu>, uint32_t, float>>()
                  : handler<Map2<PairOf<BfloatFormat, kRelu>, uint32_t, float>>();
    });
    return;
  }
  decoder.set_form(
      insn,
      PairForm{half ? kF16Format : kBF16Format, {form.rounding, finite, relu, 0}, half ? 13 : 16});
  insn.run = plain_handler<SlowPair>();
}

// --- To and from pairs of 8, 6 and 4 bits
// ------------------------------------------------------------
template <const SmallFormat& kFormat>
inline constexpr int kHalfBits = kFormat.sign_bit == 8 ? 4 : 8;

template <const SmallFormat& kFormat, bool kRelu>
struct SmallOfFloats {
  PTXEMU_INLINE static uint16_t apply(float a, float b) {
    return static_cast<uint16_t>(encode_finite<kFormat, kRelu>(a) << kHalfBits<kFormat> |
                                 encode_finite<kFormat, kRelu>(b));
  }
};
template <const SmallFormat& kFormat, bool kRelu, class Format>
struct SmallOfSixteens {
  PTXEMU_INLINE static uint16_t apply(uint32_t a) {
    return SmallOfFloats<kFormat, kRelu>::apply(Format::load(static_cast<uint16_t>(a >> 16)),
                                                Format::load(static_cast<uint16_t>(a)));
  }
};
template <const SmallFormat& kFormat, bool kRelu, class Format>
struct SixteensOfSmall {
  PTXEMU_INLINE static uint32_t one(uint32_t code) {
    const uint16_t r = Format::store(decode_small<kFormat>(code));
    return kRelu && (r & 0x8000) ? 0 : r;
  }
  PTXEMU_INLINE static uint32_t apply(uint16_t a) {
    constexpr uint32_t kMask = (1u << kHalfBits<kFormat>)-1;
    return one(a >> kHalfBits<kFormat> & kMask) << 16 | one(a & kMask);
  }
};

// Of the formats of 6 bits and of what .relu clamps there is little.
template <const SmallFormat& kFormat, bool kRelu, class Lanes>
Handler small_handler() {
  constexpr bool kSixBits = kFormat.sign_bit == 0x20;
  if constexpr (kSixBits || kRelu) return plain_handler<Lanes>();
  return handler<Lanes>();
}

template <const SmallFormat& kFormat>
Handler to_small(Type from, bool relu) {
  return by_bool(relu, [&](auto r) {
    constexpr bool kRelu = decltype(r)::value;
    using OfFloats = Map2<SmallOfFloats<kFormat, kRelu>, uint16_t, float>;
    using OfHalves = Map1<SmallOfSixteens<kFormat, kRelu, HalfFormat>, uint16_t, uint32_t>;
    using OfBfloats = Map1<SmallOfSixteens<kFormat, kRelu, BfloatFormat>, uint16_t, uint32_t>;
    if (from == Type::kF32) return small_handler<kFormat, kRelu, OfFloats>();
    return from == Type::kF16x2 ? small_handler<kFormat, kRelu, OfHalves>()
                                : small_handler<kFormat, kRelu, OfBfloats>();
  });
}
template <const SmallFormat& kFormat>
Handler from_small(Type to, bool relu) {
  return by_bool(relu, [&](auto r) {
    constexpr bool kRelu = decltype(r)::value;
    using Halves = Map1<SixteensOfSmall<kFormat, kRelu, HalfFormat>, uint32_t, uint16_t>;
    using Bfloats = Map1<SixteensOfSmall<kFormat, kRelu, BfloatFormat>, uint32_t, uint16_t>;
    return to == Type::kF16x2 ? small_handler<kFormat, kRelu, Halves>()
                              : small_handler<kFormat, kRelu, Bfloats>();
  });
}

void need_nearest(const Decoder& decoder, const ConvertForm& form) {
  if (!form.has_rounding || form.integral || form.rounding != SmallRound::kNearest) {
    decoder.fail("cvt without its rounding; accepted: .rn");
  }
}

void decode_to_small(Decoder& decoder, Insn& insn, const ConvertForm& form) {
  need_nearest(decoder, form);
  if (!decoder.take("satfinite")) decoder.fail("cvt without .satfinite; accepted: .satfinite");
  const bool relu = decoder.take("relu"), two = form.from == Type::kF32;
  decoder.need_operands(two ? 3 : 2, two ? 3 : 2);
  insn.a = decoder.source(1, two ? Type::kF32 : Type::kB32);
  if (two) insn.b = decoder.source(2, Type::kF32);
  insn.d = decoder.dest(0, form.to);
  switch (form.to) {
    case Type::kE4M3x2: insn.run = to_small<kE4M3Format>(form.from, relu); break;
    case Type::kE5M2x2: insn.run = to_small<kE5M2Format>(form.from, relu); break;
    case Type::kE2M1x2: insn.run = to_small<kE2M1Format>(form.from, relu); break;
    case Type::kE2M3x2: insn.run = to_small<kE2M3Format>(form.from, relu); break;
    default: insn.run = to_small<kE3M2Format>(form.from, relu); break;
  }
}

void decode_from_small(Decoder& decoder, Insn& insn, const ConvertForm& form) {
  need_nearest(decoder, form);
  const bool relu = decoder.take("relu");
  decoder.need_operands(2, 2);
  insn.a = decoder.source(1, form.from);
  insn.d = decoder.dest(0, Type::kB32);
  switch (form.from) {
    case Type::kE4M3x2: insn.run = from_small<kE4M3Format>(form.to, relu); break;
    case Type::kE5M2x2: insn.run = from_small<kE5M2Format>(form.to, relu); break;
    case Type::kE2M1x2: insn.run = from_small<kE2M1Format>(form.to, relu); break;
    case Type::kE2M3x2: insn.run = from_small<kE2M3Format>(form.to, relu); break;
    default: insn.run = from_small<kE3M2Format>(form.to, relu); break;
  }
}

// --- tf32
// ------------------------------------------------------------------------------------------
struct ToTf32 {
  static void run(const Exec& exec, const Insn& insn) {
    const PairForm& form = insn.form<PairForm>();
    const auto* a = exec.lanes<float>(insn.a);
    each_lane(exec.mask, exec.lanes<uint32_t>(insn.d), [&](int i) {
      // NaN: .rna cuts it off, as it does everything, and .satfinite takes it for something beyond
      // the largest number and goes one down, as an H100 does; the others give the canonical one.
      const bool cut = form.rounding.round == SmallRound::kNearestAway;
      if (cut && a[i] != a[i]) {
        return (bits_of_float(a[i]) & 0xffffe000) - (form.rounding.finite ? 0x2000 : 0);
      }
      return encode_small(a[i], form.format, form.rounding) << 13;
    });
  }
};
void decode_to_tf32(Decoder& decoder, Insn& insn, const ConvertForm& form) {
  const bool known = form.rounding == SmallRound::kNearest || form.rounding == SmallRound::kZero ||
                     form.rounding == SmallRound::kNearestAway;
  if (form.from != Type::kF32 || !form.has_rounding || form.integral || !known) {
    decoder.fail("another conversion to .tf32; accepted: from .f32 by .rn, .rz, .rna");
  }
  const bool finite = decoder.take("satfinite");
  const bool relu = form.rounding != SmallRound::kNearestAway && decoder.take("relu");
  decoder.need_operands(2, 2);
  insn.a = decoder.source(1, Type::kF32);
  insn.d = decoder.dest(0, Type::kB32);
  decoder.set_form(insn, PairForm{kTF32Format, {form.rounding, finite, relu, 0}, 0});
  insn.run = plain_handler<ToTf32>();
}

// --- ue8m0: powers of two
// --------------------------------------------------------------------------
uint32_t encode_scale(float x, bool up) {
  const uint32_t magnitude = bits_of_float(x) & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0xff;
  const uint32_t exponent = magnitude >> 23;
  // A subnormal is above 2^-127 only when its upper bit and another are set.
  const bool above = exponent == 0 ? magnitude > 0x400000 : (magnitude & 0x7fffff) != 0;
  return std::min(exponent + (up && above ? 1 : 0), 254u);
}
struct ScaleForm {
  bool up, two;
};
struct ToScale {
  static void run(const Exec& exec, const Insn& insn) {
    const ScaleForm& form = insn.form<ScaleForm>();
    exec.for_lanes([&](int i) {
      const uint32_t packed = exec.lanes<uint32_t>(insn.a)[i];
      const float a = form.two ? float_of_bits(packed) : float_of_bits(packed & 0xffff0000);
      const float b = form.two ? exec.lanes<float>(insn.b)[i] : float_of_bits(packed << 16);
      exec.lanes<uint16_t>(insn.d)[i] =
          static_cast<uint16_t>(encode_scale(a, form.up) << 8 | encode_scale(b, form.up));
    });
  }
};
struct FromScale {
  static uint32_t one(uint32_t code) {
    if (code == 0xff) return kNan16;
    return code == 0 ? 0x0040 : code << 7;  // 2^-127 is subnormal
  }
  static uint32_t apply(uint16_t a) { return one(a >> 8) << 16 | one(a & 0xffu); }
};
void decode_to_scale(Decoder& decoder, Insn& insn, const ConvertForm& form) {
  const bool two = form.from == Type::kF32;
  const bool known = form.rounding == SmallRound::kZero || form.rounding == SmallRound::kUp;
  if (!form.has_rounding || form.integral || !known)
    decoder.fail("cvt to .ue8m0x2 without its rounding; accepted: .rz, .rp");
  if (!two && form.from != Type::kBF16x2)
    decoder.fail("another conversion to .ue8m0x2; accepted: from .f32, .bf16x2");
  if (!decoder.take("satfinite")) {
    decoder.fail("cvt to .ue8m0x2 without .satfinite; accepted: .satfinite");
  }
  decoder.need_operands(two ? 3 : 2, two ? 3 : 2);
  insn.a = decoder.source(1, two ? Type::kF32 : Type::kB32);
  if (two) insn.b = decoder.source(2, Type::kF32);
  insn.d = decoder.dest(0, form.to);
  decoder.set_form(insn, ScaleForm{form.rounding == SmallRound::kUp, two});
  insn.run = plain_handler<ToScale>();
}
void decode_from_scale(Decoder& decoder, Insn& insn, const ConvertForm& form) {
  need_nearest(decoder, form);
  if (form.to != Type::kBF16x2)
    decoder.fail("another conversion of .ue8m0x2; accepted: to .bf16x2");
  decoder.need_operands(2, 2);
  insn.a = decoder.source(1, form.from);
  insn.d = decoder.dest(0, Type::kB32);
  insn.run = plain_handler<Map1<FromScale, uint32_t, uint16_t>>();
}

// --- cvt.pack
// ----------------------------------------------------------------------------------------
struct PackForm {
  int bits;
  bool is_signed, has_rest;
};
struct PackIntegers {
  static void run(const Exec& exec, const Insn& insn) {
    const PackForm& form = insn.form<PackForm>();
    const int64_t least = form.is_signed ? -(int64_t{1} << (form.bits - 1)) : 0;
    const int64_t most = (int64_t{1} << (form.bits - (form.is_signed ? 1 : 0))) - 1;
    const uint64_t mask = (uint64_t{1} << form.bits) - 1;
    const auto saturated = [&](int32_t x) {
      return static_cast<uint64_t>(std::clamp<int64_t>(x, least, most)) & mask;
    };
    exec.for_lanes([&](int i) {
      uint64_t value = saturated(exec.lanes<int32_t>(insn.a)[i]) << form.bits |
                       saturated(exec.lanes<int32_t>(insn.b)[i]);
      if (form.has_rest) {
        value |= static_cast<uint64_t>(exec.lanes<uint32_t>(insn.c)[i]) << (2 * form.bits);
      }
      exec.lanes<uint32_t>(insn.d)[i] = static_cast<uint32_t>(value);
    });
  }
};

}  // namespace

void decode_cvt_pack(Decoder& decoder, Insn& insn) {
  if (!decoder.take("sat")) decoder.fail("cvt.pack without .sat; accepted: .sat");
  PackForm form{};
  form.bits = decoder.take_one<int>({{"u2", 2},
                                     {"u4", 4},
                                     {"u8", 8},
                                     {"u16", 16},
                                     {"s2", -2},
                                     {"s4", -4},
                                     {"s8", -8},
                                     {"s16", -16}},
                                    0);
  if (form.bits == 0)
    decoder.fail(
        "cvt.pack without the type to convert to; accepted: .u2, .u4, .u8, .u16, .s2, .s4, .s8, "
        ".s16");
  form.is_signed = form.bits < 0;
  form.bits = std::abs(form.bits);
  if (!decoder.take("s32")) decoder.fail("cvt.pack of another type; accepted: .s32");
  form.has_rest = form.bits != 16;
  if (form.has_rest && !decoder.take("b32"))
    decoder.fail("cvt.pack to 8 bits or fewer without its third type; accepted: .b32");
  decoder.need_operands(form.has_rest ? 4 : 3, form.has_rest ? 4 : 3);
  insn.a = decoder.source(1, Type::kS32);
  insn.b = decoder.source(2, Type::kS32);
  if (form.has_rest) insn.c = decoder.source(3, Type::kB32);
  insn.d = decoder.dest(0, Type::kU32);
  decoder.set_form(insn, form);
  insn.run = plain_handler<PackIntegers>();
}

bool is_packed_conversion(const ConvertForm& form) {
  const auto packed = [](Type type) {
    return is_small_pair(type) || is_sixteen_pair(type) || type == Type::kTF32 ||
           type == Type::kUE8M0x2;
  };
  return packed(form.from) || packed(form.to);
}

void decode_packed(Decoder& decoder, Insn& insn, ConvertForm form) {
  const Type from = form.from, to = form.to;
  if (to == Type::kTF32) return decode_to_tf32(decoder, insn, form);
  if (to == Type::kUE8M0x2) return decode_to_scale(decoder, insn, form);
  if (from == Type::kUE8M0x2) return decode_from_scale(decoder, insn, form);
  if (is_sixteen_pair(to) && from == Type::kF32) return decode_to_sixteen_pair(decoder, insn, form);
  if (is_sixteen_pair(to) && is_small_pair(from)) return decode_from_small(decoder, insn, form);
  if (is_small_pair(to) && (from == Type::kF32 || is_sixteen_pair(from))) {
    return decode_to_small(decoder, insn, form);
  }
  decoder.fail("no conversion from ." + std::string(name_of(from)) + " to ." +
               std::string(name_of(to)) +
               "; accepted: pairs of 4, 6 and 8 bits from and to .f16x2, .bf16x2, from .f32");
}

}  // namespace ptxemu
