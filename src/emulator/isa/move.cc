// mov: copies, packing and unpacking, and the registers that change while a thread lives ("Data
// Movement and Conversion Instructions: mov"; PTX ISA 9.7.9.3, 9.7.9.4).
#include <cstring>

#include "emulator/isa/alu_rows.h"
#include "emulator/isa/builder.h"
#include "emulator/isa/lanes.h"
#include "emulator/isa/special.h"

namespace ptxemu {
namespace {

struct Wide {
  uint64_t low, high;
};

struct Same {
  template <class T>
  PTXEMU_INLINE static T apply(T a) {
    return a;
  }
};

struct PredicateForm {
  uint32_t turned;  // all lanes with a !
};
struct MovePredicate {
  static void run(const Exec& exec, const Insn& insn) {
    exec.set_predicate(insn.d, exec.predicate(insn.a) ^ insn.form<PredicateForm>().turned);
  }
};

void decode_predicate(Decoder& decoder, Insn& insn) {
  bool negated = false;
  insn.d = decoder.dest(0, Type::kPred);
  insn.a = decoder.predicate(decoder.operand(1), &negated);
  decoder.set_form(insn, PredicateForm{negated ? ~0u : 0});
  insn.run = plain_handler<MovePredicate>();
}

// d gets kCount elements E from the slots of the list, the first in its lowest bits.
template <class D, class E, int kCount, int kShift>
struct Pack {
  PTXEMU_INLINE static void run(const Exec& exec, const Insn& insn) {
    const E* from[kCount];
    for (int k = 0; k < kCount; ++k) from[k] = exec.lanes<E>(insn.list[k]);
    each_lane(exec.mask, exec.lanes<D>(insn.d), [=](int i) PTXEMU_LAMBDA {
      constexpr E kMask = static_cast<E>(kShift == 8 ? 0xff : ~E{0});
      D value = 0;
      for (int k = 0; k < kCount; ++k) {
        value = static_cast<D>(value | static_cast<D>(from[k][i] & kMask) << (k * kShift));
      }
      return value;
    });
  }
};

// The slots of the list get the kCount elements E of a.
template <class A, class E, int kCount, int kShift>
struct Unpack {
  PTXEMU_INLINE static void run(const Exec& exec, const Insn& insn) {
    const A* a = exec.lanes<A>(insn.a);
    constexpr E kMask = static_cast<E>(kShift == 8 ? 0xff : ~E{0});
    for (int k = 0; k < kCount; ++k) {
      each_lane(exec.mask, exec.lanes<E>(insn.list[k]), [=](int i) PTXEMU_LAMBDA {
        return static_cast<E>(static_cast<E>(a[i] >> (k * kShift)) & kMask);
      });
    }
  }
};

// The same between a 128-bit register and elements of 32 or 64 bits.
template <class E>
struct Pack128 {
  static void run(const Exec& exec, const Insn& insn) {
    constexpr int kCount = 16 / sizeof(E);
    E* d = exec.lanes<E, kCount>(insn.d);
    exec.for_lanes([&](int i) {
      for (int k = 0; k < kCount; ++k) d[i * kCount + k] = exec.lanes<E>(insn.list[k])[i];
    });
  }
};
template <class E>
struct Unpack128 {
  static void run(const Exec& exec, const Insn& insn) {
    constexpr int kCount = 16 / sizeof(E);
    const E* a = exec.lanes<E, kCount>(insn.a);
    exec.for_lanes([&](int i) {
      for (int k = 0; k < kCount; ++k) {
        exec.lanes<E>(insn.list[k])[i] = a[i * kCount + k];
      }
    });
  }
};

Type element_type(const Decoder& decoder, int bits) {
  switch (bits) {
    case 8: return Type::kB8;
    case 16: return Type::kB16;
    case 32: return Type::kB32;
    case 64: return Type::kB64;
    default: decoder.fail_syntax("a vector of other elements; accepted: of 8, 16, 32, 64 bits");
  }
}

Handler pack_handler(const Decoder& decoder, int bits, int element) {
  switch (bits * 100 + element) {
    case 1608: return handler<Pack<uint16_t, uint16_t, 2, 8>>();
    case 3208: return handler<Pack<uint32_t, uint16_t, 4, 8>>();
    case 3216: return handler<Pack<uint32_t, uint16_t, 2, 16>>();
    case 6416: return handler<Pack<uint64_t, uint16_t, 4, 16>>();
    case 6432: return handler<Pack<uint64_t, uint32_t, 2, 32>>();
    case 12832: return plain_handler<Pack128<uint32_t>>();
    case 12864: return plain_handler<Pack128<uint64_t>>();
    default:
      decoder.fail_syntax(
          "a vector that mov does not pack; accepted: 2 or 4 elements that fill the type");
  }
}

Handler unpack_handler(const Decoder& decoder, int bits, int element) {
  switch (bits * 100 + element) {
    case 1608: return handler<Unpack<uint16_t, uint16_t, 2, 8>>();
    case 3208: return handler<Unpack<uint32_t, uint16_t, 4, 8>>();
    case 3216: return handler<Unpack<uint32_t, uint16_t, 2, 16>>();
    case 6416: return handler<Unpack<uint64_t, uint16_t, 4, 16>>();
    case 6432: return handler<Unpack<uint64_t, uint32_t, 2, 32>>();
    case 12832: return plain_handler<Unpack128<uint32_t>>();
    case 12864: return plain_handler<Unpack128<uint64_t>>();
    default:
      decoder.fail_syntax(
          "a vector that mov does not unpack; accepted: 2 or 4 elements that fill the type");
  }
}

void decode_vector(Decoder& decoder, Insn& insn, Type type) {
  const Operand &d = decoder.operand(0), &a = decoder.operand(1);
  const bool pack = a.kind == Operand::Kind::kVector;
  if (pack && d.kind == Operand::Kind::kVector) {
    decoder.fail_syntax("mov from a vector to a vector; accepted: a vector on one side");
  }
  const auto elements = decoder.elements(pack ? a : d);
  const int bits = bits_of(type);
  const Type element = element_type(decoder, bits / static_cast<int>(elements.size()));
  std::vector<Slot> slots;
  if (pack) {
    for (const Operand* operand : elements) slots.push_back(decoder.source(*operand, element));
    insn.d = decoder.dest(0, type);
    insn.run = pack_handler(decoder, bits, bits_of(element));
  } else {
    insn.a = decoder.source(a, type);
    for (const Operand* operand : elements) slots.push_back(decoder.dest(*operand, element));
    insn.run = unpack_handler(decoder, bits, bits_of(element));
  }
  decoder.set_list(insn, std::move(slots));
}

// --- Clocks: they count the warp instructions of the cluster
// --------------------------------------
struct ClockForm {
  SpecialRegister reg;
  int bits;
};
struct Clock {
  static void run(const Exec& exec, const Insn& insn) {
    uint64_t value = exec.cluster->instructions;
    const auto [reg, bits] = insn.form<ClockForm>();
    if (reg == SpecialRegister::kClockHi || reg == SpecialRegister::kGlobaltimerHi) value >>= 32;
    if (bits == 64) {
      each_lane(exec.mask, exec.lanes<uint64_t>(insn.d), [=](int) { return value; });
    } else {
      each_lane(exec.mask, exec.lanes<uint32_t>(insn.d),
                [=](int) { return static_cast<uint32_t>(value); });
    }
  }
};

bool decode_clock(Decoder& decoder, Insn& insn, Type type) {
  const Operand& a = decoder.operand(1);
  if (a.kind != Operand::Kind::kSpecial) return false;
  const SpecialName special = special_register(a.text);
  if (special.reg == SpecialRegister::kCount || special.reg < SpecialRegister::kClock) return false;
  const int bits = bits_of(type);
  if (bits != 32 && bits != 64) decoder.fail("a clock of other bits; accepted: 32, 64");
  decoder.set_form(insn, ClockForm{special.reg, bits});
  insn.d = decoder.dest(0, type);
  insn.run = plain_handler<Clock>();
  return true;
}

void decode_mov(Decoder& decoder, Insn& insn) {
  const Type type = decoder.need_type();
  const bool narrow_float = is_float(type) && type != Type::kF32 && type != Type::kF64;
  if (narrow_float)
    decoder.fail("mov has no such type; accepted: .b16, .b32, .b64, which are alike");
  decoder.need_operands(2, 2);
  const auto is_vector = [&](size_t i) {
    return decoder.operand(i).kind == Operand::Kind::kVector;
  };
  if (is_vector(0) || is_vector(1)) return decode_vector(decoder, insn, type);
  if (decode_clock(decoder, insn, type)) return;
  if (type == Type::kPred) return decode_predicate(decoder, insn);
  operands_1(decoder, insn, type);
  switch (bits_of(type)) {
    case 16: insn.run = handler<Map1<Same, uint16_t>>(); break;
    case 32: insn.run = handler<Map1<Same, uint32_t>>(); break;
    case 64: insn.run = handler<Map1<Same, uint64_t>>(); break;
    case 128: insn.run = handler<Map1<Same, Wide>>(); break;
    default: decoder.fail_type(type, "types of 16, 32, 64 and 128 bits");
  }
}

constexpr InstructionRow kRows[] = {
    {"mov", decode_mov, "Data Movement and Conversion Instructions: mov", ValueFlow::kMoves,
     InstructionKind::kMov},
};

}  // namespace

std::span<const InstructionRow> move_rows() { return kRows; }

}  // namespace ptxemu
