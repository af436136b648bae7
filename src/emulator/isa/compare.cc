// "Comparison and Selection Instructions" (PTX ISA 9.7.6) and those of half precision (9.7.7).
//
// Every comparison is one of five (eq, lt, le, ne, num), of the operands as they are or exchanged,
// or the complement of that.
#include <optional>

#include <fmt/format.h>

#include "emulator/isa/alu_rows.h"
#include "emulator/isa/formats.h"

namespace ptxemu {
namespace {

enum class Test : uint8_t { kEq, kLt, kLe, kNe, kNum };
struct Comparison {
  std::string_view name;
  Test test;
  bool exchanged = false, complement = false;
  bool is_float = false, is_unsigned = false;
};
constexpr Comparison kComparisons[] = {
    {"eq", Test::kEq},
    {"ne", Test::kNe},
    {"lt", Test::kLt},
    {"le", Test::kLe},
    {"gt", Test::kLt, true},
    {"ge", Test::kLe, true},
    {"lo", Test::kLt, false, false, false, true},
    {"ls", Test::kLe, false, false, false, true},
    {"hi", Test::kLt, true, false, false, true},
    {"hs", Test::kLe, true, false, false, true},
    {"equ", Test::kNe, false, true, true},
    {"neu", Test::kEq, false, true, true},
    {"ltu", Test::kLe, true, true, true},
    {"leu", Test::kLt, true, true, true},
    {"gtu", Test::kLe, false, true, true},
    {"geu", Test::kLt, false, true, true},
    {"num", Test::kNum, false, false, true},
    {"nan", Test::kNum, false, true, true},
};

// Values as they are compared.
template <class T>
struct Plain {
  using Element = T;
  PTXEMU_INLINE static T load(T x) { return x; }
};
struct Flushed {
  using Element = float;
  PTXEMU_INLINE static float load(float x) { return flush(x); }
};
template <class Format, bool kFlush>
struct Sixteen {
  using Element = uint16_t;
  PTXEMU_INLINE static float load(uint16_t x) {
    return Format::load(kFlush && (x & 0x7c00) == 0 ? static_cast<uint16_t>(x & 0x8000) : x);
  }
};

template <Test kTest, class T>
PTXEMU_INLINE bool holds(T a, T b) {
  switch (kTest) {
    case Test::kEq: return a == b;
    case Test::kLt: return a < b;
    case Test::kLe: return a <= b;
    case Test::kNe: return (a < b) | (a > b);
    case Test::kNum: return (a == a) & (b == b);
  }
}

// What all of them keep: the complement of the comparison, the predicate that it is combined with.
enum class Combine : uint8_t { kNone, kAnd, kOr, kXor };
struct Form {
  bool complement = false;
  Combine combine = Combine::kNone;
  bool other_negated = false;
  Slot other = kNoSlot;
  Slot second = kNoSlot;  // q of p|q

  uint32_t combined(const Exec& exec, uint32_t found) const {
    if (combine == Combine::kNone) return found;
    const uint32_t with = exec.predicate(other) ^ (other_negated ? ~0u : 0);
    switch (combine) {
      case Combine::kAnd: return found & with;
      case Combine::kOr: return found | with;
      default: return found ^ with;
    }
  }
};

// Element kOffset of every kStep elements of a lane.
template <Test kTest, class Load, int kStep, int kOffset>
PTXEMU_INLINE uint32_t compare(const Exec& exec, const Insn& insn) {
  using E = typename Load::Element;
  const E *a = exec.lanes<E, kStep>(insn.a), *b = exec.lanes<E, kStep>(insn.b);
  return lane_mask([=](int i) PTXEMU_LAMBDA {
    return holds<kTest>(Load::load(a[i * kStep + kOffset]), Load::load(b[i * kStep + kOffset]));
  });
}

template <Test kTest, class Load>
struct Setp {
  PTXEMU_INLINE static void run(const Exec& exec, const Insn& insn) {
    const Form& form = insn.form<Form>();
    const uint32_t found = compare<kTest, Load, 1, 0>(exec, insn) ^ (form.complement ? ~0u : 0);
    if (form.combine == Combine::kNone && form.second == kNoSlot) {
      exec.set_predicate(insn.d, found);
      return;
    }
    const uint32_t first = form.combined(exec, found), second = form.combined(exec, ~found);
    exec.set_predicate(insn.d, first);
    if (form.second != kNoSlot) exec.set_predicate(form.second, second);
  }
};

template <Test kTest, class Load>
struct SetpPair {
  static void run(const Exec& exec, const Insn& insn) {
    const Form& form = insn.form<Form>();
    const uint32_t flip = form.complement ? ~0u : 0;
    const uint32_t low = form.combined(exec, compare<kTest, Load, 2, 0>(exec, insn) ^ flip);
    const uint32_t high = form.combined(exec, compare<kTest, Load, 2, 1>(exec, insn) ^ flip);
    exec.set_predicate(insn.d, low);
    if (form.second != kNoSlot) exec.set_predicate(form.second, high);
  }
};

struct SetForm {
  Form form;
  uint32_t yes = 0;  // what a true comparison writes
  int bits = 32;     // of it
};
template <Test kTest, class Load>
struct Set {
  static void run(const Exec& exec, const Insn& insn) {
    const SetForm& set = insn.form<SetForm>();
    const Form& form = set.form;
    const uint32_t flip = form.complement ? ~0u : 0;
    const uint32_t low = form.combined(exec, compare<kTest, Load, 1, 0>(exec, insn) ^ flip);
    exec.for_lanes([&](int i) {
      const uint32_t value = low >> i & 1 ? set.yes : 0;
      if (set.bits == 16) {
        exec.lanes<uint16_t>(insn.d)[i] = static_cast<uint16_t>(value);
      } else {
        exec.lanes<uint32_t>(insn.d)[i] = value;
      }
    });
  }
};
template <Test kTest, class Load>
struct SetPair {
  static void run(const Exec& exec, const Insn& insn) {
    const SetForm& set = insn.form<SetForm>();
    const Form& form = set.form;
    const uint32_t yes = set.yes & 0xffff;
    const uint32_t flip = form.complement ? ~0u : 0;
    const uint32_t low = form.combined(exec, compare<kTest, Load, 2, 0>(exec, insn) ^ flip);
    const uint32_t high = form.combined(exec, compare<kTest, Load, 2, 1>(exec, insn) ^ flip);
    exec.for_lanes([&](int i) {
      exec.lanes<uint32_t>(insn.d)[i] = (low >> i & 1 ? yes : 0) | (high >> i & 1 ? yes << 16 : 0);
    });
  }
};

// --- The handler for a type
// -----------------------------------------------------------------------
// setp of one value is in every loop; what else compares is worth no vector.
template <template <Test, class> class Op, Test kTest, class Load>
Handler one_handler() {
  using Value = decltype(Load::load({}));
  constexpr bool kFromSixteen = sizeof(typename Load::Element) < sizeof(Value);
  if constexpr (std::is_same_v<Op<kTest, Load>, Setp<kTest, Load>> && !kFromSixteen) {
    return handler<Op<kTest, Load>>();
  } else {
    return plain_handler<Op<kTest, Load>>();
  }
}

template <template <Test, class> class Op, class Load>
Handler by_test(Test test) {
  using Value = decltype(Load::load({}));
  switch (test) {
    case Test::kEq: return one_handler<Op, Test::kEq, Load>();
    case Test::kLt: return one_handler<Op, Test::kLt, Load>();
    case Test::kLe: return one_handler<Op, Test::kLe, Load>();
    case Test::kNe: return one_handler<Op, Test::kNe, Load>();
    case Test::kNum: break;
  }
  if constexpr (std::is_floating_point_v<Value>) return one_handler<Op, Test::kNum, Load>();
  return nullptr;
}
// Whether numbers are equal does not depend on their sign.
template <template <Test, class> class Op, class T>
Handler by_signed_test(Test test) {
  switch (test) {
    case Test::kLt: return one_handler<Op, Test::kLt, Plain<T>>();
    case Test::kLe: return one_handler<Op, Test::kLe, Plain<T>>();
    default: return by_test<Op, Plain<std::make_unsigned_t<T>>>(test);
  }
}

template <template <Test, class> class Op>
Handler by_type(Type type, Test test, bool ftz) {
  switch (type) {
    case Type::kB16:
    case Type::kU16: return by_test<Op, Plain<uint16_t>>(test);
    case Type::kB32:
    case Type::kU32: return by_test<Op, Plain<uint32_t>>(test);
    case Type::kB64:
    case Type::kU64: return by_test<Op, Plain<uint64_t>>(test);
    case Type::kS16: return by_signed_test<Op, int16_t>(test);
    case Type::kS32: return by_signed_test<Op, int32_t>(test);
    case Type::kS64: return by_signed_test<Op, int64_t>(test);
    case Type::kF32: return ftz ? by_test<Op, Flushed>(test) : by_test<Op, Plain<float>>(test);
    case Type::kF64: return by_test<Op, Plain<double>>(test);
    case Type::kF16:
      return ftz ? by_test<Op, Sixteen<HalfFormat, true>>(test)
                 : by_test<Op, Sixteen<HalfFormat, false>>(test);
    case Type::kBF16: return by_test<Op, Sixteen<BfloatFormat, false>>(test);
    default: return nullptr;
  }
}
template <template <Test, class> class Op>
Handler by_pair_type(Type type, Test test, bool ftz) {
  if (type == Type::kBF16x2) return by_test<Op, Sixteen<BfloatFormat, false>>(test);
  return ftz ? by_test<Op, Sixteen<HalfFormat, true>>(test)
             : by_test<Op, Sixteen<HalfFormat, false>>(test);
}

bool is_pair(Type type) { return type == Type::kF16x2 || type == Type::kBF16x2; }

Comparison take_comparison(Decoder& decoder) {
  std::optional<Comparison> found;
  for (const Comparison& comparison : kComparisons) {
    if (!decoder.take(comparison.name)) continue;
    if (found) decoder.fail("two comparisons; accepted: one");
    found = comparison;
  }
  if (!found) decoder.fail("no comparison; accepted: one such as .eq, .lt");
  return *found;
}

constexpr std::string_view kComparable =
    ".b16, .b32, .b64, .u16, .u32, .u64, .s16, .s32, .s64, .f16, .bf16, .f16x2, .bf16x2, .f32, "
    ".f64";

void check_comparison(const Decoder& decoder, const Comparison& comparison, Type type) {
  const bool bits = type == Type::kB16 || type == Type::kB32 || type == Type::kB64;
  const bool equality = comparison.name == "eq" || comparison.name == "ne";
  if ((comparison.is_float && !is_float(type)) ||
      (comparison.is_unsigned && (is_float(type) || is_signed(type))) || (bits && !equality)) {
    decoder.fail("." + std::string(comparison.name) + " does not compare ." +
                 std::string(name_of(type)) +
                 "; accepted: .eq, .ne, for numbers .lt, .le, .gt, .ge, for unsigned ones .lo, "
                 ".ls, .hi, .hs, for floats .equ and its like, .num, .nan");
  }
}

// a, b and what they are combined with; `first` is the place of a.
Form take_sources(Decoder& decoder, Insn& insn, const Comparison& comparison, Combine combine,
                  Type type) {
  decoder.need_operands(combine == Combine::kNone ? 3 : 4, combine == Combine::kNone ? 3 : 4);
  Form form;
  form.complement = comparison.complement;
  form.combine = combine;
  insn.a = decoder.source(comparison.exchanged ? 2 : 1, type);
  insn.b = decoder.source(comparison.exchanged ? 1 : 2, type);
  if (combine != Combine::kNone) {
    form.other = decoder.predicate(decoder.operand(3), &form.other_negated);
  }
  return form;
}

Combine take_combine(Decoder& decoder) {
  return decoder.take_one<Combine>(
      {{"and", Combine::kAnd}, {"or", Combine::kOr}, {"xor", Combine::kXor}}, Combine::kNone);
}

bool take_ftz(Decoder& decoder, Type type) {
  const bool may = type == Type::kF32 || type == Type::kF16 || type == Type::kF16x2;
  return may && decoder.take("ftz");
}

void decode_setp(Decoder& decoder, Insn& insn) {
  const Comparison comparison = take_comparison(decoder);
  const Combine combine = take_combine(decoder);
  const Type type = decoder.need_type();
  check_comparison(decoder, comparison, type);
  const bool ftz = take_ftz(decoder, type);
  Form form = take_sources(decoder, insn, comparison, combine, type);
  const Operand& d = decoder.operand(0);
  const bool two = d.kind == Operand::Kind::kPair;
  if (two && (type == Type::kF16 || type == Type::kBF16)) {
    decoder.fail("two results of a comparison of .f16 or .bf16; accepted: one predicate");
  }
  insn.d = decoder.dest(two ? d.list[0] : d, Type::kPred);
  if (two) form.second = decoder.dest(d.list[1], Type::kPred);
  decoder.set_form(insn, form);
  if (is_pair(type)) {
    insn.run = by_pair_type<SetpPair>(type, comparison.test, ftz);
    return;
  }
  insn.run = by_type<Setp>(type, comparison.test, ftz);
  if (insn.run == nullptr) decoder.fail_type(type, kComparable);
}

uint32_t true_value(const Decoder& decoder, Type type) {
  switch (type) {
    case Type::kU32:
    case Type::kS32: return 0xffffffff;
    case Type::kU16:
    case Type::kS16: return 0xffff;
    case Type::kF32: return 0x3f800000;
    case Type::kF16:
    case Type::kF16x2: return 0x3c00;
    case Type::kBF16:
    case Type::kBF16x2: return 0x3f80;
    default: decoder.fail_type(type, ".u16, .s16, .u32, .s32, .f32, .f16, .bf16, .f16x2, .bf16x2");
  }
}

void decode_set(Decoder& decoder, Insn& insn) {
  const Comparison comparison = take_comparison(decoder);
  const Combine combine = take_combine(decoder);
  const Type to = decoder.need_type(), from = decoder.need_type();
  check_comparison(decoder, comparison, from);
  const bool ftz = take_ftz(decoder, from);
  const Form form = take_sources(decoder, insn, comparison, combine, from);
  insn.d = decoder.dest(0, to);
  decoder.set_form(insn, SetForm{form, true_value(decoder, to), bits_of(to)});
  if (is_pair(to) && !is_pair(from))
    decoder.fail("set of a pair by values that are none; accepted: by .f16x2, .bf16x2");
  // Two results lie in a pair of the type that is compared, or in the halves of 32 bits.
  const bool halves = to == from || to == Type::kU32 || to == Type::kS32;
  if (is_pair(from) && !halves)
    decoder.fail_type(to, fmt::format(".{}, .u32, .s32", name_of(from)));
  insn.run = is_pair(from) ? by_pair_type<SetPair>(from, comparison.test, ftz)
                           : by_type<Set>(from, comparison.test, ftz);
  if (insn.run == nullptr) decoder.fail_type(from, kComparable);
}

constexpr InstructionRow kRows[] = {
    {"setp", decode_setp,
     "Comparison and Selection Instructions: setp; Half Precision Comparison Instructions: setp",
     ValueFlow::kDecides},
    {"set", decode_set,
     "Comparison and Selection Instructions: set; Half Precision Comparison Instructions: set",
     ValueFlow::kDecides},
};

}  // namespace

std::span<const InstructionRow> compare_rows() { return kRows; }

}  // namespace ptxemu
