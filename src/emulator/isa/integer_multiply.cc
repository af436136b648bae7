// Products and sums with carry ("Integer Arithmetic Instructions": mul, mad, mul24, mad24;
// "Extended-Precision Integer Arithmetic Instructions"; PTX ISA 9.7.1, 9.7.2).
#include <limits>
#include <type_traits>

#include "emulator/isa/alu.h"
#include "emulator/isa/builder.h"
#include "emulator/isa/lanes.h"

namespace ptxemu {
namespace {

template <class T>
struct WideOf;
template <>
struct WideOf<uint16_t> {
  using type = uint32_t;
};
template <>
struct WideOf<uint32_t> {
  using type = uint64_t;
};
template <>
struct WideOf<uint64_t> {
  using type = unsigned __int128;
};
template <>
struct WideOf<int16_t> {
  using type = int32_t;
};
template <>
struct WideOf<int32_t> {
  using type = int64_t;
};
template <>
struct WideOf<int64_t> {
  using type = __int128;
};
template <class T>
using Wide = typename WideOf<T>::type;
template <class T>
inline constexpr int kBits = static_cast<int>(sizeof(T) * 8);

struct Lo {
  template <class T>
  PTXEMU_INLINE static T apply(T a, T b) {
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  }
  template <class T>
  PTXEMU_INLINE static T apply(T a, T b, T c) {
    return static_cast<T>(static_cast<uint64_t>(apply(a, b)) + static_cast<uint64_t>(c));
  }
};
struct Hi {
  template <class T>
  PTXEMU_INLINE static T apply(T a, T b) {
    return static_cast<T>((static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b)) >> kBits<T>);
  }
  template <class T>
  PTXEMU_INLINE static T apply(T a, T b, T c) {
    return static_cast<T>(static_cast<uint64_t>(apply(a, b)) + static_cast<uint64_t>(c));
  }
};
struct WideProduct {
  template <class T>
  PTXEMU_INLINE static Wide<T> apply(T a, T b) {
    return static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b);
  }
  template <class T>
  PTXEMU_INLINE static Wide<T> apply(T a, T b, Wide<T> c) {
    return static_cast<Wide<T>>(static_cast<uint64_t>(apply(a, b)) + static_cast<uint64_t>(c));
  }
};
PTXEMU_INLINE int32_t saturate(int64_t value) {
  constexpr int64_t kLeast = std::numeric_limits<int32_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  return static_cast<int32_t>(value < kLeast ? kLeast : value > kMost ? kMost : value);
}
struct HiSat {
  PTXEMU_INLINE static int32_t apply(int32_t a, int32_t b, int32_t c) {
    return saturate(static_cast<int64_t>(Hi::apply(a, b)) + c);
  }
};

// The product of the low 24 bits of both: 48 bits.
template <class T>
PTXEMU_INLINE int64_t product_24(T a, T b) {
  if constexpr (std::is_signed_v<T>) {
    const int64_t sa = static_cast<int32_t>(static_cast<uint32_t>(a) << 8) >> 8;
    const int64_t sb = static_cast<int32_t>(static_cast<uint32_t>(b) << 8) >> 8;
    return sa * sb;
  } else {
    return static_cast<int64_t>(a & 0xffffff) * static_cast<int64_t>(b & 0xffffff);
  }
}
template <bool kHigh>
struct Product24 {
  template <class T>
  PTXEMU_INLINE static T apply(T a, T b) {
    return static_cast<T>(product_24(a, b) >> (kHigh ? 16 : 0));
  }
  template <class T>
  PTXEMU_INLINE static T apply(T a, T b, T c) {
    return static_cast<T>(static_cast<uint32_t>(apply(a, b)) + static_cast<uint32_t>(c));
  }
};
struct Hi24Sat {
  PTXEMU_INLINE static int32_t apply(int32_t a, int32_t b, int32_t c) {
    return saturate(static_cast<int64_t>(Product24<true>::apply(a, b)) + c);
  }
};

template <class T>
using MulLo = Map2<Lo, T>;
template <class T>
using MulHi = Map2<Hi, T>;
template <class T>
using MadLo = Map3<Lo, T>;
template <class T>
using MadHi = Map3<Hi, T>;

enum class Half : uint8_t { kNone, kLo, kHi, kWide };
Half take_half(Decoder& decoder) {
  return decoder.take_one<Half>({{"lo", Half::kLo}, {"hi", Half::kHi}, {"wide", Half::kWide}},
                                Half::kNone);
}

Type twice(const Decoder& decoder, Type type) {
  switch (type) {
    case Type::kU16: return Type::kU32;
    case Type::kS16: return Type::kS32;
    case Type::kU32: return Type::kU64;
    case Type::kS32: return Type::kS64;
    default: decoder.fail(".wide of another type; accepted: .u16, .u32, .s16, .s32");
  }
}

Handler wide_product(const Decoder& decoder, Type type) {
  switch (type) {
    case Type::kU16: return handler<Map2<WideProduct, uint32_t, uint16_t>>();
    case Type::kS16: return handler<Map2<WideProduct, int32_t, int16_t>>();
    case Type::kU32: return handler<Map2<WideProduct, uint64_t, uint32_t>>();
    case Type::kS32: return handler<Map2<WideProduct, int64_t, int32_t>>();
    default: decoder.fail(".wide of another type; accepted: .u16, .u32, .s16, .s32");
  }
}

Handler wide_sum(const Decoder& decoder, Type type) {
  switch (type) {
    case Type::kU16: return handler<Map3<WideProduct, uint32_t, uint16_t, uint16_t, uint32_t>>();
    case Type::kS16: return handler<Map3<WideProduct, int32_t, int16_t, int16_t, int32_t>>();
    case Type::kU32: return handler<Map3<WideProduct, uint64_t, uint32_t, uint32_t, uint64_t>>();
    case Type::kS32: return handler<Map3<WideProduct, int64_t, int32_t, int32_t, int64_t>>();
    default: decoder.fail(".wide of another type; accepted: .u16, .u32, .s16, .s32");
  }
}

// --- Carries: a predicate slot of the function is CC.CF -----------------------------------------
struct CarryForm {
  Slot flag;
  bool in, out, subtract, high;
  bool is_signed = false;
};

template <class T, bool kMultiply>
struct Carry {
  static void run(const Exec& exec, const Insn& insn) {
    const auto& form = insn.form<CarryForm>();
    const T *a = exec.lanes<T>(insn.a), *b = exec.lanes<T>(insn.b);
    const T* c = kMultiply ? exec.lanes<T>(insn.c) : nullptr;
    T* d = exec.lanes<T>(insn.d);
    const uint32_t carry = form.in ? exec.predicate(form.flag) : 0;
    uint32_t next = 0;
    exec.for_lanes([&](int i) {
      T x = a[i], y = b[i];
      if constexpr (kMultiply) {
        x = product(a[i], b[i], form.high, form.is_signed);
        y = c[i];
      }
      const T one = carry >> i & 1;
      const unsigned __int128 sum = form.subtract ? static_cast<unsigned __int128>(x) - y - one
                                                  : static_cast<unsigned __int128>(x) + y + one;
      d[i] = static_cast<T>(sum);
      next |= static_cast<uint32_t>(sum >> kBits<T> & 1) << i;
    });
    if (form.out) exec.set_predicate(form.flag, next);
  }
  static T product(T a, T b, bool high, bool is_signed) {
    if (!high) return Lo::apply(a, b);
    using S = std::make_signed_t<T>;
    return is_signed ? static_cast<T>(Hi::apply(static_cast<S>(a), static_cast<S>(b)))
                     : Hi::apply(a, b);
  }
};

void decode_carry(Decoder& decoder, Insn& insn, Type type, bool multiply, CarryForm form) {
  const bool word = type == Type::kU32 || type == Type::kS32;
  if (!word && type != Type::kU64 && type != Type::kS64) {
    decoder.fail("a carry of ." + std::string(name_of(type)) +
                 "; accepted: .u32, .s32, .u64, .s64");
  }
  if (multiply) {
    operands_3(decoder, insn, type);
  } else {
    operands_2(decoder, insn, type);
  }
  form.flag = decoder.builder().carry_slot();
  if (form.in) decoder.builder().use(form.flag, 4, false);
  if (form.out) decoder.builder().use(form.flag, 4, true);
  form.is_signed = is_signed(type);
  decoder.set_form(insn, form);
  if (bits_of(type) == 32) {
    insn.run =
        multiply ? plain_handler<Carry<uint32_t, true>>() : plain_handler<Carry<uint32_t, false>>();
  } else {
    insn.run =
        multiply ? plain_handler<Carry<uint64_t, true>>() : plain_handler<Carry<uint64_t, false>>();
  }
}

}  // namespace

void decode_mul(Decoder& decoder, Insn& insn) {
  const Half half = take_half(decoder);
  const Type type = decoder.need_type();
  if (is_float(type) && half == Half::kNone) return decode_float_mul(decoder, insn, type);
  if (half == Half::kNone)
    decoder.fail("mul of integers without a half; accepted: .lo, .hi, .wide");
  if (half == Half::kWide) {
    decoder.need_operands(3, 3);
    insn.a = decoder.source(1, type);
    insn.b = decoder.source(2, type);
    insn.d = decoder.dest(0, twice(decoder, type));
    insn.run = wide_product(decoder, type);
    return;
  }
  operands_2(decoder, insn, type);
  insn.run =
      half == Half::kLo ? for_integer<MulLo>(decoder, type) : for_integer<MulHi>(decoder, type);
}

void decode_mad(Decoder& decoder, Insn& insn) {
  const Half half = take_half(decoder);
  const bool carry = decoder.take("cc");
  const Type type = decoder.need_type();
  if (carry && half != Half::kLo && half != Half::kHi)
    decoder.fail(".cc without a half; accepted: .lo, .hi");
  if (is_float(type) && half == Half::kNone) return decode_float_fma(decoder, insn, type);
  if (half == Half::kNone)
    decoder.fail("mad of integers without a half; accepted: .lo, .hi, .wide");
  if (carry) return decode_mad_carry(decoder, insn, type, half == Half::kHi, false);
  if (half == Half::kWide) {
    decoder.need_operands(4, 4);
    insn.a = decoder.source(1, type);
    insn.b = decoder.source(2, type);
    insn.c = decoder.source(3, twice(decoder, type));
    insn.d = decoder.dest(0, twice(decoder, type));
    insn.run = wide_sum(decoder, type);
    return;
  }
  operands_3(decoder, insn, type);
  if (half == Half::kHi && type == Type::kS32 && decoder.take("sat")) {
    insn.run = handler<Map3<HiSat, int32_t>>();
    return;
  }
  insn.run =
      half == Half::kLo ? for_integer<MadLo>(decoder, type) : for_integer<MadHi>(decoder, type);
}

void decode_mul24(Decoder& decoder, Insn& insn) {
  const Half half = take_half(decoder);
  const Type type = decoder.need_type();
  if (half != Half::kLo && half != Half::kHi)
    decoder.fail("mul24 without a half; accepted: .lo, .hi");
  operands_2(decoder, insn, type);
  const bool high = half == Half::kHi;
  if (type == Type::kU32) {
    insn.run = high ? handler<Map2<Product24<true>, uint32_t>>()
                    : handler<Map2<Product24<false>, uint32_t>>();
  } else if (type == Type::kS32) {
    insn.run = high ? handler<Map2<Product24<true>, int32_t>>()
                    : handler<Map2<Product24<false>, int32_t>>();
  } else {
    decoder.fail("mul24 of another type; accepted: .u32, .s32");
  }
}

void decode_mad24(Decoder& decoder, Insn& insn) {
  const Half half = take_half(decoder);
  const Type type = decoder.need_type();
  if (half != Half::kLo && half != Half::kHi)
    decoder.fail("mad24 without a half; accepted: .lo, .hi");
  operands_3(decoder, insn, type);
  const bool high = half == Half::kHi;
  if (high && type == Type::kS32 && decoder.take("sat")) {
    insn.run = handler<Map3<Hi24Sat, int32_t>>();
  } else if (type == Type::kU32) {
    insn.run = high ? handler<Map3<Product24<true>, uint32_t>>()
                    : handler<Map3<Product24<false>, uint32_t>>();
  } else if (type == Type::kS32) {
    insn.run = high ? handler<Map3<Product24<true>, int32_t>>()
                    : handler<Map3<Product24<false>, int32_t>>();
  } else {
    decoder.fail("mad24 of another type; accepted: .u32, .s32");
  }
}

void decode_add_carry(Decoder& decoder, Insn& insn) {
  decode_carry(decoder, insn, decoder.need_type(), false, {kNoSlot, false, true, false, false});
}
void decode_addc(Decoder& decoder, Insn& insn) {
  const bool out = decoder.take("cc");
  decode_carry(decoder, insn, decoder.need_type(), false, {kNoSlot, true, out, false, false});
}
void decode_sub_carry(Decoder& decoder, Insn& insn) {
  decode_carry(decoder, insn, decoder.need_type(), false, {kNoSlot, false, true, true, false});
}
void decode_subc(Decoder& decoder, Insn& insn) {
  const bool out = decoder.take("cc");
  decode_carry(decoder, insn, decoder.need_type(), false, {kNoSlot, true, out, true, false});
}
void decode_mad_carry(Decoder& decoder, Insn& insn, Type type, bool high, bool carry_in) {
  decode_carry(decoder, insn, type, true, {kNoSlot, carry_in, true, false, high});
}
void decode_madc(Decoder& decoder, Insn& insn) {
  const Half half = take_half(decoder);
  if (half != Half::kLo && half != Half::kHi)
    decoder.fail("madc without a half; accepted: .lo, .hi");
  const bool out = decoder.take("cc");
  decode_carry(decoder, insn, decoder.need_type(), true,
               {kNoSlot, true, out, false, half == Half::kHi});
}

}  // namespace ptxemu
