// cvt between single values ("Data Movement and Conversion Instructions: cvt"; PTX ISA 9.7.9.21).
// The frequent forms vectorise; the others go lane by lane through convert_value.cc. Packed formats
// are in convert_packed.cc.
#include "emulator/isa/convert.h"

#include <cmath>

#include "emulator/isa/alu_rows.h"
#include "emulator/isa/rounding.h"

namespace ptxemu {
namespace {

// --- Integers of T's range to a register of D: sign or zero extension, or fewer bits
// ----------------
template <class S, class T, class D>
struct Extend {
  PTXEMU_INLINE static D apply(S a) { return static_cast<D>(static_cast<T>(a)); }
};

template <class T, class S>
Handler extend_to(int d_bits) {
  switch (d_bits) {
    case 16: return handler<Map1<Extend<S, T, uint16_t>, uint16_t, S>>();
    case 32: return handler<Map1<Extend<S, T, uint32_t>, uint32_t, S>>();
    default: return handler<Map1<Extend<S, T, uint64_t>, uint64_t, S>>();
  }
}
template <class T>
Handler extend_from(int s_bits, int d_bits) {
  if constexpr (sizeof(T) <= 2) {
    if (s_bits == 16) return extend_to<T, uint16_t>(d_bits);
  }
  if constexpr (sizeof(T) <= 4) {
    if (s_bits == 32) return extend_to<T, uint32_t>(d_bits);
  }
  return extend_to<T, uint64_t>(d_bits);
}
Handler extend(Type type, int s_bits, int d_bits) {
  switch (type) {
    case Type::kU8: return extend_from<uint8_t>(s_bits, d_bits);
    case Type::kS8: return extend_from<int8_t>(s_bits, d_bits);
    case Type::kU16: return extend_from<uint16_t>(s_bits, d_bits);
    case Type::kS16: return extend_from<int16_t>(s_bits, d_bits);
    case Type::kU32: return extend_from<uint32_t>(s_bits, d_bits);
    case Type::kS32: return extend_from<int32_t>(s_bits, d_bits);
    case Type::kU64: return extend_from<uint64_t>(s_bits, d_bits);
    default: return extend_from<int64_t>(s_bits, d_bits);
  }
}

// Without .sat. A narrower result keeps the low bits, a wider one is extended as the source's type
// says and then as the result's.
Handler integer_handler(const ConvertForm& form) {
  const int from = bits_of(form.from), to = bits_of(form.to);
  if (to <= from) return extend(form.to, form.source_bits, form.dest_bits);
  const bool two_steps =
      is_signed(form.from) && !is_signed(form.to) && form.dest_bits > to && to != from;
  return two_steps ? nullptr : extend(form.from, form.source_bits, form.dest_bits);
}

// --- Floats
// -----------------------------------------------------------------------------------------
template <class Format, bool kRelu>
struct ToSixteen {
  PTXEMU_INLINE static uint16_t apply(float a) {
    const uint16_t r = Format::store(a);
    return kRelu && (r & 0x8000) ? uint16_t{0} : r;
  }
};
template <class Format>
struct FromSixteen {
  PTXEMU_INLINE static float apply(uint16_t a) { return canonical(Format::load(a)); }
};
// The upper half of the result, NaN too.
struct FromBfloat {
  PTXEMU_INLINE static uint32_t apply(uint16_t a) { return static_cast<uint32_t>(a) << 16; }
};
template <bool kFlush, bool kSat>
struct SameFloat {
  PTXEMU_INLINE static float apply(float a) {
    const float r = flush_if<kFlush>(a);
    return kSat ? saturate_unit(r) : canonical(r);
  }
};
template <bool kFlush>
struct ToDouble {
  PTXEMU_INLINE static double apply(float a) { return kFlush ? canonical(flush(a)) : a; }
};
template <bool kFlush>
struct FromDouble {
  PTXEMU_INLINE static float apply(double a) {
    const uint64_t bits = std::bit_cast<uint64_t>(a);
    const bool tiny = kFlush && std::fabs(a) < kLeastUnflushed;
    const float r = tiny ? std::copysign(0.0f, static_cast<float>(a)) : static_cast<float>(a);
    return a == a ? r : float_of_bits(nan_of_double(bits, 23));
  }
};
template <class D, class S>
struct Number {
  PTXEMU_INLINE static D apply(S a) { return static_cast<D>(a); }
};

// float to an integer of 32 bits, clamped, NaN to 0.
template <class T, Round kRound, bool kFlush>
struct ToInteger {
  PTXEMU_INLINE static T apply(float a) {
    const double x = flush_if<kFlush>(a);
    double r;
    switch (kRound) {
      case Round::kNearest: r = __builtin_nearbyint(x); break;
      case Round::kZero: r = __builtin_trunc(x); break;
      case Round::kDown: r = __builtin_floor(x); break;
      case Round::kUp: r = __builtin_ceil(x); break;
    }
    constexpr double kLeast = std::is_signed_v<T> ? -2147483648.0 : 0.0;
    constexpr double kMost = std::is_signed_v<T> ? 2147483647.0 : 4294967295.0;
    r = r > kLeast ? r : kLeast;
    r = r < kMost ? r : kMost;
    r = a == a ? r : 0.0;
    return static_cast<T>(static_cast<int64_t>(r));
  }
};

template <class T>
Handler to_integer_handler(Round round, bool ftz) {
  return by_round(round, [&](auto r) {
    return by_bool(ftz, [&](auto f) {
      return handler<Map1<ToInteger<T, decltype(r)::value, decltype(f)::value>, T, float>>();
    });
  });
}

Handler number_handler(const ConvertForm& form) {
  const bool to_float = form.to == Type::kF32;
  switch (form.from) {
    case Type::kS32:
      return to_float ? handler<Map1<Number<float, int32_t>, float, int32_t>>()
                      : handler<Map1<Number<double, int32_t>, double, int32_t>>();
    case Type::kU32:
      return to_float ? handler<Map1<Number<float, uint32_t>, float, uint32_t>>()
                      : handler<Map1<Number<double, uint32_t>, double, uint32_t>>();
    case Type::kS64:
      return to_float ? handler<Map1<Number<float, int64_t>, float, int64_t>>()
                      : handler<Map1<Number<double, int64_t>, double, int64_t>>();
    case Type::kU64:
      return to_float ? handler<Map1<Number<float, uint64_t>, float, uint64_t>>()
                      : handler<Map1<Number<double, uint64_t>, double, uint64_t>>();
    default: return nullptr;
  }
}

bool is_sixteen(Type type) { return type == Type::kF16 || type == Type::kBF16; }

// Between floating-point types, to nearest or exact.
Handler float_handler(const ConvertForm& form) {
  if (form.integral || form.finite || form.rounding != SmallRound::kNearest) return nullptr;
  if (form.from == Type::kF32 && form.to == Type::kF32 && !form.relu) {
    return by_bool(form.ftz, [&](auto f) {
      return by_bool(form.sat, [&](auto s) {
        return handler<Map1<SameFloat<decltype(f)::value, decltype(s)::value>, float>>();
      });
    });
  }
  if (form.sat) return nullptr;
  if (form.from == Type::kF32 && is_sixteen(form.to) && !form.ftz) {
    return by_bool(form.relu, [&](auto relu) {
      constexpr bool kRelu = decltype(relu)::value;
      return form.to == Type::kF16
                 ? handler<Map1<ToSixteen<HalfFormat, kRelu>, uint16_t, float>>()
                 : handler<Map1<ToSixteen<BfloatFormat, kRelu>, uint16_t, float>>();
    });
  }
  if (form.relu) return nullptr;
  if (is_sixteen(form.from) && form.to == Type::kF32 && !form.ftz) {
    return form.from == Type::kF16 ? handler<Map1<FromSixteen<HalfFormat>, float, uint16_t>>()
                                   : handler<Map1<FromBfloat, uint32_t, uint16_t>>();
  }
  if (form.from == Type::kF32 && form.to == Type::kF64) {
    return form.ftz ? handler<Map1<ToDouble<true>, double, float>>()
                    : handler<Map1<ToDouble<false>, double, float>>();
  }
  if (form.from == Type::kF64 && form.to == Type::kF32) {
    return form.ftz ? handler<Map1<FromDouble<true>, float, double>>()
                    : handler<Map1<FromDouble<false>, float, double>>();
  }
  return nullptr;
}

// Null where only the slow way knows.
Handler fast_handler(const ConvertForm& form) {
  const bool from_float = is_float(form.from), to_float = is_float(form.to);
  if (!from_float && !to_float) return form.sat ? nullptr : integer_handler(form);
  const auto register_bits = [](Type type) { return std::max(bits_of(type), 16); };
  if (form.source_bits != register_bits(form.from) || form.dest_bits != register_bits(form.to)) {
    return nullptr;
  }
  if (from_float && to_float) return float_handler(form);
  if (to_float) {
    const bool direct = form.to == Type::kF32 || form.to == Type::kF64;
    return direct && !form.sat && form.rounding == SmallRound::kNearest ? number_handler(form)
                                                                        : nullptr;
  }
  if (form.from != Type::kF32) return nullptr;
  const auto round = static_cast<Round>(form.rounding);
  if (form.to == Type::kS32) return to_integer_handler<int32_t>(round, form.ftz);
  if (form.to == Type::kU32) return to_integer_handler<uint32_t>(round, form.ftz);
  return nullptr;
}

struct Slow {
  static void run(const Exec& exec, const Insn& insn) {
    const ConvertForm& form = insn.form<ConvertForm>();
    exec.for_lanes([&](int i) {
      const uint64_t raw = load_lane(exec, insn.a, form.source_bits, i);
      store_lane(exec, insn.d, form.dest_bits, i, convert_value(form, raw));
    });
  }
};

bool is_value(Type type) {
  switch (type) {
    case Type::kU8:
    case Type::kU16:
    case Type::kU32:
    case Type::kU64:
    case Type::kS8:
    case Type::kS16:
    case Type::kS32:
    case Type::kS64:
    case Type::kF16:
    case Type::kBF16:
    case Type::kF32:
    case Type::kF64: return true;
    default: return false;
  }
}

void take_rounding(Decoder& decoder, ConvertForm* form) {
  constexpr int kIntegral = 16;
  const int none = -1;
  const int mode = decoder.take_one<int>({{"rn", 0},
                                          {"rz", 1},
                                          {"rm", 2},
                                          {"rp", 3},
                                          {"rna", 4},
                                          {"rs", 5},
                                          {"rni", kIntegral + 0},
                                          {"rzi", kIntegral + 1},
                                          {"rmi", kIntegral + 2},
                                          {"rpi", kIntegral + 3}},
                                         none);
  form->has_rounding = mode != none;
  form->integral = mode >= kIntegral;
  if (form->has_rounding) form->rounding = static_cast<SmallRound>(mode % kIntegral);
}

// Where the manual demands a rounding, and where it forbids one.
void check_rounding(const Decoder& decoder, const ConvertForm& form) {
  const bool from_float = is_float(form.from), to_float = is_float(form.to);
  if (!from_float && !to_float && form.has_rounding) {
    decoder.fail("a rounding between integers; accepted: none");
  }
  if (from_float && !to_float && !form.integral) {
    decoder.fail(
        "a conversion to an integer without its rounding; accepted: .rni, .rzi, .rmi, .rpi");
  }
  if (!from_float && to_float && (!form.has_rounding || form.integral)) {
    decoder.fail("a conversion of an integer without its rounding; accepted: .rn, .rz, .rm, .rp");
  }
  if (!from_float || !to_float) return;
  const bool same = bits_of(form.from) == bits_of(form.to);
  const bool narrower = bits_of(form.to) < bits_of(form.from);
  if (form.integral && !same)
    decoder.fail("rounding to an integer between types of two sizes; accepted: .rn, .rz, .rm, .rp");
  if (narrower && !form.has_rounding) {
    decoder.fail("a conversion to fewer bits without its rounding; accepted: .rn, .rz, .rm, .rp");
  }
  const bool plain = form.rounding < SmallRound::kNearestAway;
  if (!plain)
    decoder.fail("a rounding that does not go with these types; accepted: .rn, .rz, .rm, .rp");
}

// Whether every value of an integer type is one of another.
bool fits(Type from, Type to) {
  const bool from_signed = is_signed(from), to_signed = is_signed(to);
  if (from_signed == to_signed) return bits_of(from) <= bits_of(to);
  return to_signed && bits_of(from) < bits_of(to);
}

// What the manual's syntax has and no assembler takes.
void check_assembler(const Decoder& decoder, const ConvertForm& form) {
  const bool from_float = is_float(form.from), to_float = is_float(form.to);
  const bool same = form.from == form.to;
  if (from_float && to_float && form.has_rounding) {
    const bool wider = bits_of(form.to) > bits_of(form.from) && form.from != Type::kBF16;
    if (!form.integral && (same || wider))
      decoder.fail("a rounding of an exact conversion; accepted: none");
    if (form.integral && !same)
      decoder.fail("rounding to an integer between two types; accepted: one type");
  }
  const auto with_byte = [](Type one, Type other) {
    return one == Type::kBF16 && !is_float(other) && bits_of(other) == 8;
  };
  if (with_byte(form.from, form.to) || with_byte(form.to, form.from)) {
    decoder.fail("no conversion between .bf16 and 8 bits; accepted: types of 16 to 64 bits");
  }
  const bool bfloat = form.from == Type::kBF16 || form.to == Type::kBF16;
  if (form.sat && bfloat) decoder.fail(".sat of a conversion with .bf16; accepted: none");
  if (form.sat && !from_float && !to_float && fits(form.from, form.to)) {
    decoder.fail(".sat of a conversion to a type that holds every value; accepted: none");
  }
}

void decode_value(Decoder& decoder, Insn& insn, ConvertForm form) {
  if (!is_value(form.from) || !is_value(form.to)) {
    decoder.fail("no conversion from ." + std::string(name_of(form.from)) + " to ." +
                 std::string(name_of(form.to)) +
                 "; accepted: .u8 to .u64, .s8 to .s64, .f16, .bf16, .f32, .f64");
  }
  check_rounding(decoder, form);
  if (form.from == Type::kF32 || form.to == Type::kF32) form.ftz = decoder.take("ftz");
  // Which flushes nothing on the way to .f16: ptxas 13.0 makes the same machine instruction with it
  // and without, and an H200 rounds subnormal inputs.
  if (form.to == Type::kF16) form.ftz = false;
  if (form.from == Type::kF32 && is_sixteen(form.to)) {
    form.relu = decoder.take("relu");
    form.finite = decoder.take("satfinite");
  }
  form.sat = decoder.take("sat");
  check_assembler(decoder, form);
  decoder.need_operands(2, 2);
  insn.a = decoder.source_any(decoder.operand(1), form.from, &form.source_bits);
  insn.d = decoder.dest_any(decoder.operand(0), form.to, &form.dest_bits);
  if (form.source_bits < bits_of(form.from) || form.dest_bits < bits_of(form.to) ||
      form.source_bits > 64 || form.dest_bits > 64) {
    decoder.fail_syntax(
        "a register too narrow for its type, or wider than 64 bits; accepted: the type's bits to "
        "64");
  }
  insn.run = fast_handler(form);
  if (insn.run != nullptr) return;
  decoder.set_form(insn, form);
  insn.run = plain_handler<Slow>();
}

void decode_cvt(Decoder& decoder, Insn& insn) {
  ConvertForm form;
  take_rounding(decoder, &form);
  form.to = decoder.need_type();
  form.from = decoder.need_type();
  if (is_packed_conversion(form)) return decode_packed(decoder, insn, form);
  decode_value(decoder, insn, form);
}

constexpr InstructionRow kRows[] = {
    {"cvt", decode_cvt, "Data Movement and Conversion Instructions: cvt", ValueFlow::kConverts},
    {"cvt.pack", decode_cvt_pack, "Data Movement and Conversion Instructions: cvt.pack",
     ValueFlow::kConverts},
};

}  // namespace

std::span<const InstructionRow> convert_rows() { return kRows; }

}  // namespace ptxemu
