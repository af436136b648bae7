// "Integer Arithmetic Instructions" (PTX ISA 9.7.1), those of one result a lane; products are in
// integer_multiply.cc, fields of bits in integer_bits.cc.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "emulator/isa/alu.h"
#include "emulator/isa/lanes.h"

namespace ptxemu {
namespace {

template <class T>
using Unsigned = std::make_unsigned_t<T>;

struct Add {
  template <class T>
  PTXEMU_INLINE static T apply(T a, T b) {
    return static_cast<T>(a + b);
  }
};
struct Sub {
  template <class T>
  PTXEMU_INLINE static T apply(T a, T b) {
    return static_cast<T>(a - b);
  }
};
// .sat of .s32: limits the result to MININT..MAXINT.
template <bool kSubtract>
struct AddSat {
  PTXEMU_INLINE static int32_t apply(int32_t a, int32_t b) {
    const uint32_t ua = static_cast<uint32_t>(a), ub = static_cast<uint32_t>(b);
    const uint32_t sum = kSubtract ? ua - ub : ua + ub;
    const uint32_t overflow = kSubtract ? (ua ^ ub) & (ua ^ sum) : (ua ^ sum) & (ub ^ sum);
    const int32_t limit =
        a < 0 ? std::numeric_limits<int32_t>::min() : std::numeric_limits<int32_t>::max();
    return static_cast<int32_t>(overflow) < 0 ? limit : static_cast<int32_t>(sum);
  }
};
struct Abs {
  template <class T>
  PTXEMU_INLINE static T apply(T a) {
    const auto u = static_cast<Unsigned<T>>(a);
    return a < 0 ? static_cast<T>(0 - u) : a;
  }
};
struct Neg {
  template <class T>
  PTXEMU_INLINE static T apply(T a) {
    return static_cast<T>(0 - static_cast<Unsigned<T>>(a));
  }
};
struct Min {
  template <class T>
  PTXEMU_INLINE static T apply(T a, T b) {
    return a < b ? a : b;
  }
};
struct Max {
  template <class T>
  PTXEMU_INLINE static T apply(T a, T b) {
    return a > b ? a : b;
  }
};
// Clamps to 0 where it is negative.
template <class F>
struct Relu {
  template <class T>
  PTXEMU_INLINE static T apply(T a, T b) {
    const T r = F::apply(a, b);
    return r < 0 ? T{0} : r;
  }
};
struct Sad {
  template <class T>
  PTXEMU_INLINE static T apply(T a, T b, T c) {
    const auto ua = static_cast<Unsigned<T>>(a), ub = static_cast<Unsigned<T>>(b);
    return static_cast<T>(static_cast<Unsigned<T>>(c) + (a < b ? ub - ua : ua - ub));
  }
};
// Division by zero has an unspecified result: an H200 gives all ones, as quotient and as remainder.
// MININT / -1 wraps.
struct Div {
  template <class T>
  PTXEMU_INLINE static T apply(T a, T b) {
    if (b == 0) return static_cast<T>(~T{0});
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return Neg::apply(a);
    }
    return static_cast<T>(a / b);
  }
};
struct Rem {
  template <class T>
  PTXEMU_INLINE static T apply(T a, T b) {
    if (b == 0) return static_cast<T>(~T{0});
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return 0;
    }
    return static_cast<T>(a % b);
  }
};

template <class T>
using AddLanes = Map2<Add, T>;
template <class T>
using SubLanes = Map2<Sub, T>;
template <class T>
using MinLanes = Map2<Min, T>;
template <class T>
using MaxLanes = Map2<Max, T>;
template <class T>
using SadLanes = Map3<Sad, T>;
template <class T>
using DivLanes = Map2<Div, T>;
template <class T>
using RemLanes = Map2<Rem, T>;
template <class F, class T>
using Halves = Map2<F, T, T, T, 2>;

bool is_pair(Type type) { return type == Type::kU16x2 || type == Type::kS16x2; }

void need_integer(const Decoder& decoder, Type type) {
  switch (type) {
    case Type::kU16:
    case Type::kU32:
    case Type::kU64:
    case Type::kS16:
    case Type::kS32:
    case Type::kS64: return;
    default: decoder.fail_type(type, kIntegers);
  }
}

void decode_add(Decoder& decoder, Insn& insn) {
  if (decoder.take("cc")) return decode_add_carry(decoder, insn);
  const Type type = decoder.need_type();
  if (is_float(type)) return decode_float_add(decoder, insn, type);
  operands_2(decoder, insn, type);
  if (is_pair(type)) {
    insn.run = handler<Halves<Add, uint16_t>>();
  } else if (type == Type::kS32 && decoder.take("sat")) {
    insn.run = handler<Map2<AddSat<false>, int32_t>>();
  } else {
    need_integer(decoder, type);
    insn.run = for_width<AddLanes>(decoder, type);
  }
}

void decode_sub(Decoder& decoder, Insn& insn) {
  if (decoder.take("cc")) return decode_sub_carry(decoder, insn);
  const Type type = decoder.need_type();
  if (is_float(type)) return decode_float_sub(decoder, insn, type);
  operands_2(decoder, insn, type);
  if (type == Type::kS32 && decoder.take("sat")) {
    insn.run = handler<Map2<AddSat<true>, int32_t>>();
  } else {
    need_integer(decoder, type);
    insn.run = for_width<SubLanes>(decoder, type);
  }
}

void decode_sad(Decoder& decoder, Insn& insn) {
  const Type type = decoder.need_type();
  operands_3(decoder, insn, type);
  insn.run = for_integer<SadLanes>(decoder, type);
}

void decode_div(Decoder& decoder, Insn& insn) {
  const Type type = decoder.need_type();
  if (is_float(type)) return decode_float_div(decoder, insn, type);
  operands_2(decoder, insn, type);
  insn.run = for_integer<DivLanes>(decoder, type);
}

void decode_rem(Decoder& decoder, Insn& insn) {
  const Type type = decoder.need_type();
  operands_2(decoder, insn, type);
  insn.run = for_integer<RemLanes>(decoder, type);
}

template <class F>
Handler signed_handler(const Decoder& decoder, Type type) {
  switch (type) {
    case Type::kS16: return handler<Map1<F, int16_t>>();
    case Type::kS32: return handler<Map1<F, int32_t>>();
    case Type::kS64: return handler<Map1<F, int64_t>>();
    default: decoder.fail_type(type, ".s16, .s32, .s64");
  }
}

void decode_abs(Decoder& decoder, Insn& insn) {
  const Type type = decoder.need_type();
  if (is_float(type)) return decode_float_abs(decoder, insn, type);
  operands_1(decoder, insn, type);
  insn.run = signed_handler<Abs>(decoder, type);
}

void decode_neg(Decoder& decoder, Insn& insn) {
  const Type type = decoder.need_type();
  if (is_float(type)) return decode_float_neg(decoder, insn, type);
  operands_1(decoder, insn, type);
  insn.run = signed_handler<Neg>(decoder, type);
}

template <class F, template <class> class Lanes>
void decode_min_max(Decoder& decoder, Insn& insn, Type type) {
  operands_2(decoder, insn, type);
  const bool relu = (type == Type::kS32 || type == Type::kS16x2) && decoder.take("relu");
  if (type == Type::kU16x2) {
    insn.run = handler<Halves<F, uint16_t>>();
  } else if (type == Type::kS16x2) {
    insn.run = relu ? handler<Halves<Relu<F>, int16_t>>() : handler<Halves<F, int16_t>>();
  } else if (relu) {
    insn.run = handler<Map2<Relu<F>, int32_t>>();
  } else {
    insn.run = for_integer<Lanes>(decoder, type);
  }
}

void decode_min(Decoder& decoder, Insn& insn) {
  const Type type = decoder.need_type();
  if (is_float(type)) return decode_float_min(decoder, insn, type);
  decode_min_max<Min, MinLanes>(decoder, insn, type);
}

void decode_max(Decoder& decoder, Insn& insn) {
  const Type type = decoder.need_type();
  if (is_float(type)) return decode_float_max(decoder, insn, type);
  decode_min_max<Max, MaxLanes>(decoder, insn, type);
}

constexpr InstructionRow kRows[] = {
    {"add", decode_add,
     "Integer Arithmetic Instructions: add; Floating Point Instructions: add; Extended-Precision "
     "Arithmetic Instructions: add.cc",
     ValueFlow::kComputes},
    {"sub", decode_sub,
     "Integer Arithmetic Instructions: sub; Floating Point Instructions: sub; Extended-Precision "
     "Arithmetic Instructions: sub.cc",
     ValueFlow::kComputes},
    {"addc", decode_addc, "Extended-Precision Arithmetic Instructions: addc", ValueFlow::kDecides},
    {"subc", decode_subc, "Extended-Precision Arithmetic Instructions: subc", ValueFlow::kDecides},
    {"mul", decode_mul, "Integer Arithmetic Instructions: mul; Floating Point Instructions: mul",
     ValueFlow::kComputes},
    {"mad", decode_mad,
     "Integer Arithmetic Instructions: mad; Floating Point Instructions: mad; Extended-Precision "
     "Arithmetic Instructions: mad.cc",
     ValueFlow::kComputes},
    {"madc", decode_madc, "Extended-Precision Arithmetic Instructions: madc", ValueFlow::kDecides},
    {"mul24", decode_mul24, "Integer Arithmetic Instructions: mul24", ValueFlow::kDecides},
    {"mad24", decode_mad24, "Integer Arithmetic Instructions: mad24", ValueFlow::kDecides},
    {"sad", decode_sad, "Integer Arithmetic Instructions: sad", ValueFlow::kDecides},
    {"div", decode_div, "Integer Arithmetic Instructions: div; Floating Point Instructions: div",
     ValueFlow::kDecides},
    {"rem", decode_rem, "Integer Arithmetic Instructions: rem", ValueFlow::kDecides},
    {"abs", decode_abs, "Integer Arithmetic Instructions: abs; Floating Point Instructions: abs",
     ValueFlow::kComputes},
    {"neg", decode_neg, "Integer Arithmetic Instructions: neg; Floating Point Instructions: neg",
     ValueFlow::kComputes},
    {"min", decode_min, "Integer Arithmetic Instructions: min; Floating Point Instructions: min",
     ValueFlow::kComputes},
    {"max", decode_max, "Integer Arithmetic Instructions: max; Floating Point Instructions: max",
     ValueFlow::kComputes},
};

}  // namespace

std::span<const InstructionRow> integer_rows() { return kRows; }

}  // namespace ptxemu
