// "Logic and Shift Instructions" (PTX ISA 9.7.8) and prmt.
#include <algorithm>
#include <type_traits>

#include "emulator/isa/alu_rows.h"
#include "emulator/isa/lanes.h"

namespace ptxemu {
namespace {

template <class T>
inline constexpr uint32_t kBits = sizeof(T) * 8;

struct And {
  template <class T>
  PTXEMU_INLINE static T apply(T a, T b) {
    return a & b;
  }
};
struct Or {
  template <class T>
  PTXEMU_INLINE static T apply(T a, T b) {
    return a | b;
  }
};
struct Xor {
  template <class T>
  PTXEMU_INLINE static T apply(T a, T b) {
    return a ^ b;
  }
};
struct Not {
  template <class T>
  PTXEMU_INLINE static T apply(T a) {
    return static_cast<T>(~a);
  }
};
struct Cnot {
  template <class T>
  PTXEMU_INLINE static T apply(T a) {
    return a == 0 ? 1 : 0;
  }
};
// Shifts by the width or more give 0, or the sign.
struct Shl {
  template <class T>
  PTXEMU_INLINE static T apply(T a, uint32_t b) {
    const T shifted = static_cast<T>(a << (b & (kBits<T> - 1)));
    return b < kBits<T> ? shifted : T{0};
  }
};
struct Shr {
  template <class T>
  PTXEMU_INLINE static T apply(T a, uint32_t b) {
    const uint32_t most = kBits<T> - 1;
    if constexpr (std::is_signed_v<T>) {
      return static_cast<T>(a >> (b < most ? b : most));
    } else {
      const T shifted = static_cast<T>(a >> (b & most));
      return b <= most ? shifted : T{0};
    }
  }
};
template <bool kLeft, bool kClamp>
struct Shf {
  PTXEMU_INLINE static uint32_t apply(uint32_t a, uint32_t b, uint32_t c) {
    const uint64_t n = kClamp ? (c < 32 ? c : 32) : c & 31;
    const uint64_t both = static_cast<uint64_t>(b) << 32 | a;
    return static_cast<uint32_t>(kLeft ? (both << n) >> 32 : both >> n);
  }
};

// Each operand may have a !: the lanes that it turns over.
struct PredicatesForm {
  uint32_t a = 0, b = 0;
};
Slot take_predicate(Decoder& decoder, size_t i, uint32_t* turned) {
  bool negated = false;
  const Slot slot = decoder.predicate(decoder.operand(i), &negated);
  *turned = negated ? ~0u : 0;
  return slot;
}

template <class F>
struct OfPredicates {
  static void run(const Exec& exec, const Insn& insn) {
    const auto& turned = insn.form<PredicatesForm>();
    exec.set_predicate(
        insn.d, F::apply(exec.predicate(insn.a) ^ turned.a, exec.predicate(insn.b) ^ turned.b));
  }
};
struct NotPredicate {
  static void run(const Exec& exec, const Insn& insn) {
    exec.set_predicate(insn.d, ~(exec.predicate(insn.a) ^ insn.form<PredicatesForm>().a));
  }
};

bool is_bits(Type type) { return type == Type::kB16 || type == Type::kB32 || type == Type::kB64; }
Type need_bits(Decoder& decoder) {
  const Type type = decoder.need_type();
  if (!is_bits(type)) decoder.fail("another type; accepted: .b16, .b32, .b64");
  return type;
}

template <class F>
struct Binary {
  template <class T>
  using Lanes = Map2<F, T>;
};

template <class F>
void decode_logic(Decoder& decoder, Insn& insn) {
  if (decoder.take("pred")) {
    decoder.need_operands(3, 3);
    PredicatesForm form;
    insn.d = decoder.dest(0, Type::kPred);
    insn.a = take_predicate(decoder, 1, &form.a);
    insn.b = take_predicate(decoder, 2, &form.b);
    decoder.set_form(insn, form);
    insn.run = plain_handler<OfPredicates<F>>();
    return;
  }
  const Type type = need_bits(decoder);
  operands_2(decoder, insn, type);
  insn.run = for_width<Binary<F>::template Lanes>(decoder, type);
}

template <class T>
using NotLanes = Map1<Not, T>;
template <class T>
using CnotLanes = Map1<Cnot, T>;
template <class T>
using ShlLanes = Map2<Shl, T, T, uint32_t>;
template <class T>
using ShrLanes = Map2<Shr, T, T, uint32_t>;

void decode_not(Decoder& decoder, Insn& insn) {
  if (decoder.take("pred")) {
    decoder.need_operands(2, 2);
    PredicatesForm form;
    insn.d = decoder.dest(0, Type::kPred);
    insn.a = take_predicate(decoder, 1, &form.a);
    decoder.set_form(insn, form);
    insn.run = plain_handler<NotPredicate>();
    return;
  }
  const Type type = need_bits(decoder);
  operands_1(decoder, insn, type);
  insn.run = for_width<NotLanes>(decoder, type);
}

void decode_cnot(Decoder& decoder, Insn& insn) {
  const Type type = need_bits(decoder);
  operands_1(decoder, insn, type);
  insn.run = for_width<CnotLanes>(decoder, type);
}

void shift_operands(Decoder& decoder, Insn& insn, Type type) {
  decoder.need_operands(3, 3);
  insn.a = decoder.source(1, type);
  insn.b = decoder.source(2, Type::kU32);
  insn.d = decoder.dest(0, type);
}

void decode_shl(Decoder& decoder, Insn& insn) {
  const Type type = need_bits(decoder);
  shift_operands(decoder, insn, type);
  insn.run = for_width<ShlLanes>(decoder, type);
}

void decode_shr(Decoder& decoder, Insn& insn) {
  const Type type = decoder.need_type();
  shift_operands(decoder, insn, type);
  insn.run =
      is_bits(type) ? for_width<ShrLanes>(decoder, type) : for_integer<ShrLanes>(decoder, type);
}

void decode_shf(Decoder& decoder, Insn& insn) {
  const int side = decoder.take_one<int>({{"l", 1}, {"r", 2}}, 0);
  const int mode = decoder.take_one<int>({{"clamp", 1}, {"wrap", 2}}, 0);
  if (side == 0 || mode == 0)
    decoder.fail("shf without a direction or a mode; accepted: .l, .r, with .clamp, .wrap");
  if (!decoder.take("b32")) decoder.fail("another type; accepted: .b32");
  operands_3(decoder, insn, Type::kB32);
  if (side == 1) {
    insn.run = mode == 1 ? handler<Map3<Shf<true, true>, uint32_t>>()
                         : handler<Map3<Shf<true, false>, uint32_t>>();
  } else {
    insn.run = mode == 1 ? handler<Map3<Shf<false, true>, uint32_t>>()
                         : handler<Map3<Shf<false, false>, uint32_t>>();
  }
}

// --- lop3 -----------------------------------------------------------------------------------
struct Lop3Form {
  uint8_t table = 0;
  // With .or and .and: d|p and the predicate that p is combined with.
  bool negated = false, is_or = false;
  Slot predicate = kNoSlot, other = kNoSlot;
};
struct Lop3 {
  PTXEMU_INLINE static void run(const Exec& exec, const Insn& insn) {
    const auto *a = exec.lanes<uint32_t>(insn.a), *b = exec.lanes<uint32_t>(insn.b);
    const auto* c = exec.lanes<uint32_t>(insn.c);
    uint32_t m[8];
    const uint32_t table = insn.form<Lop3Form>().table;
    for (int i = 0; i < 8; ++i) m[i] = table >> i & 1 ? ~0u : 0;
    each_lane(exec.mask, exec.lanes<uint32_t>(insn.d), [=](int i) PTXEMU_LAMBDA {
      const uint32_t x = a[i], y = b[i], z = c[i];
      const uint32_t low = (~y & ((~z & m[0]) | (z & m[1]))) | (y & ((~z & m[2]) | (z & m[3])));
      const uint32_t high = (~y & ((~z & m[4]) | (z & m[5]))) | (y & ((~z & m[6]) | (z & m[7])));
      return (~x & low) | (x & high);
    });
  }
};

struct Lop3Predicate {
  static void run(const Exec& exec, const Insn& insn) {
    Lop3::run(exec, insn);
    const Lop3Form& form = insn.form<Lop3Form>();
    const auto* d = exec.lanes<uint32_t>(insn.d);
    const uint32_t is_set = lane_mask([=](int i) { return d[i] != 0; });
    const uint32_t other = exec.predicate(form.other) ^ (form.negated ? ~0u : 0);
    exec.set_predicate(form.predicate, form.is_or ? is_set | other : is_set & other);
  }
};

void decode_lop3(Decoder& decoder, Insn& insn) {
  const int combine = decoder.take_one<int>({{"or", 1}, {"and", 2}}, 0);
  if (!decoder.take("b32")) decoder.fail("another type; accepted: .b32");
  decoder.need_operands(combine == 0 ? 5 : 6, combine == 0 ? 5 : 6);
  insn.a = decoder.source(1, Type::kB32);
  insn.b = decoder.source(2, Type::kB32);
  insn.c = decoder.source(3, Type::kB32);
  const int64_t table = decoder.constant(4);
  if (table < 0 || table > 255)
    decoder.fail_syntax("the table of lop3 out of range; accepted: 0 to 255");
  Lop3Form form;
  form.table = static_cast<uint8_t>(table);
  if (combine == 0) {
    decoder.set_form(insn, form);
    insn.d = decoder.dest(0, Type::kB32);
    insn.run = handler<Lop3>();
    return;
  }
  const Operand& pair = decoder.operand(0);
  if (pair.kind != Operand::Kind::kPair)
    decoder.fail_syntax("lop3 with .or or .and and one result; accepted: d|p");
  form.other = decoder.predicate(decoder.operand(5), &form.negated);
  form.is_or = combine == 1;
  insn.d = decoder.dest(pair.list[0], Type::kB32);
  form.predicate = decoder.dest(pair.list[1], Type::kPred);
  decoder.set_form(insn, form);
  insn.run = plain_handler<Lop3Predicate>();
}

// --- prmt -------------------------------------------------------------------------------------
PTXEMU_INLINE uint32_t byte_of(uint64_t both, uint32_t select) {
  const auto byte = static_cast<uint32_t>(both >> (select & 7) * 8) & 0xff;
  if ((select & 8) == 0) return byte;
  return byte & 0x80 ? 0xff : 0;
}
struct Prmt {
  PTXEMU_INLINE static uint32_t apply(uint32_t a, uint32_t b, uint32_t c) {
    const uint64_t both = static_cast<uint64_t>(b) << 32 | a;
    return byte_of(both, c) | byte_of(both, c >> 4) << 8 | byte_of(both, c >> 8) << 16 |
           byte_of(both, c >> 12) << 24;
  }
};
// The selectors of each mode by the low bits of c: four digits as the generic form has them.
struct PrmtForm {
  uint64_t selectors;
};
struct PrmtMode {
  static void run(const Exec& exec, const Insn& insn) {
    const uint64_t selectors = insn.form<PrmtForm>().selectors;
    const auto *a = exec.lanes<uint32_t>(insn.a), *b = exec.lanes<uint32_t>(insn.b);
    const auto* c = exec.lanes<uint32_t>(insn.c);
    each_lane(exec.mask, exec.lanes<uint32_t>(insn.d), [=](int i) {
      return Prmt::apply(a[i], b[i], static_cast<uint32_t>(selectors >> (c[i] & 3) * 16) & 0xffff);
    });
  }
};

void decode_prmt(Decoder& decoder, Insn& insn) {
  if (!decoder.take("b32")) decoder.fail("another type; accepted: .b32");
  const auto selectors = decoder.take_one<uint64_t>({{"f4e", 0x6543'5432'4321'3210},
                                                     {"b4e", 0x0123'7012'6701'5670},
                                                     {"rc8", 0x3333'2222'1111'0000},
                                                     {"ecl", 0x3333'3222'3211'3210},
                                                     {"ecr", 0x3210'2210'1110'0000},
                                                     {"rc16", 0x3232'1010'3232'1010}},
                                                    0);
  operands_3(decoder, insn, Type::kB32);
  decoder.set_form(insn, PrmtForm{selectors});
  insn.run = selectors == 0 ? handler<Map3<Prmt, uint32_t>>() : plain_handler<PrmtMode>();
}

constexpr InstructionRow kRows[] = {
    {"and", decode_logic<And>, "Logic and Shift Instructions: and", ValueFlow::kMoves},
    {"or", decode_logic<Or>, "Logic and Shift Instructions: or", ValueFlow::kMoves},
    {"xor", decode_logic<Xor>, "Logic and Shift Instructions: xor", ValueFlow::kMoves},
    {"not", decode_not, "Logic and Shift Instructions: not", ValueFlow::kMoves},
    {"cnot", decode_cnot, "Logic and Shift Instructions: cnot", ValueFlow::kDecides},
    {"lop3", decode_lop3, "Logic and Shift Instructions: lop3", ValueFlow::kMoves},
    {"shf", decode_shf, "Logic and Shift Instructions: shf", ValueFlow::kMovesTwo},
    {"shl", decode_shl, "Logic and Shift Instructions: shl", ValueFlow::kMovesOne},
    {"shr", decode_shr, "Logic and Shift Instructions: shr", ValueFlow::kMovesOne},
    {"prmt", decode_prmt, "Data Movement and Conversion Instructions: prmt", ValueFlow::kMovesTwo},
};

}  // namespace

std::span<const InstructionRow> logic_rows() { return kRows; }

}  // namespace ptxemu
