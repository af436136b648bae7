// ld, ld.global.nc, ldu, st ("Data Movement and Conversion Instructions"; PTX ISA 9.7.9.8 to
// 9.7.9.11). The rest of the family is in memory_hints.cc and shared_address.cc.
#include <fmt/format.h>

#include <cstring>

#include "emulator/isa/addressing.h"
#include "emulator/isa/memory_ops.h"

namespace ptxemu {
namespace {

struct Wide {
  uint64_t low, high;
};
template <int Bytes>
struct UnsignedOf;
template <>
struct UnsignedOf<1> {
  using type = uint8_t;
};
template <>
struct UnsignedOf<2> {
  using type = uint16_t;
};
template <>
struct UnsignedOf<4> {
  using type = uint32_t;
};
template <>
struct UnsignedOf<8> {
  using type = uint64_t;
};
template <>
struct UnsignedOf<16> {
  using type = Wide;
};

template <class F>
void over_lanes(uint32_t mask, F f) {
  if (mask == ~0u) {
    for (int lane = 0; lane < 32; ++lane) f(lane);
  } else {
    for (; mask != 0; mask &= mask - 1) f(std::countr_zero(mask));
  }
}

// Moves one element of every lane; `at` is its place in the vector in bytes.
using Mover = void (*)(const Exec& exec, const LaneHosts& hosts, uint32_t at, Slot slot);

// "Operand Size Exceeding Instruction-Type Size" (9.4.1): a wider register is extended.
template <int Bytes, int RegisterBytes, bool kSigned>
void load_element(const Exec& exec, const LaneHosts& hosts, uint32_t at, Slot slot) {
  using Memory = typename UnsignedOf<Bytes>::type;
  using Register = typename UnsignedOf<RegisterBytes>::type;
  Register* d = exec.lanes<Register>(slot);
  over_lanes(exec.mask, [&](int lane) {
    Memory value;
    std::memcpy(&value, hosts.at[lane] + at, sizeof value);
    if constexpr (Bytes == RegisterBytes) {
      d[lane] = value;
    } else if constexpr (RegisterBytes == 16) {
      const auto low = kSigned
                           ? static_cast<uint64_t>(static_cast<std::make_signed_t<Memory>>(value))
                           : static_cast<uint64_t>(value);
      d[lane] = {low, kSigned && static_cast<int64_t>(low) < 0 ? ~uint64_t{0} : 0};
    } else if constexpr (kSigned) {
      d[lane] = static_cast<Register>(static_cast<std::make_signed_t<Memory>>(value));
    } else {
      d[lane] = value;
    }
  });
}

template <int Bytes, int RegisterBytes, bool>
void store_element(const Exec& exec, const LaneHosts& hosts, uint32_t at, Slot slot) {
  const std::byte* source = exec.slot_bytes(slot, 32 * RegisterBytes);
  over_lanes(exec.mask, [&](int lane) {
    std::memcpy(hosts.at[lane] + at, source + lane * RegisterBytes, Bytes);
  });
}

struct LoadMaker {
  template <int B, int R, bool S>
  static constexpr Mover make() {
    return load_element<B, R, S>;
  }
};
struct StoreMaker {
  template <int B, int R, bool S>
  static constexpr Mover make() {
    return store_element<B, R, S>;
  }
};

template <class Maker, int B, bool S>
Mover by_register(int register_bytes) {
  switch (register_bytes) {
    case 2:
      if constexpr (B <= 2) return Maker::template make<B, 2, S>();
      break;
    case 4:
      if constexpr (B <= 4) return Maker::template make<B, 4, S>();
      break;
    case 8:
      if constexpr (B <= 8) return Maker::template make<B, 8, S>();
      break;
    case 16: return Maker::template make<B, 16, S>();
    default: break;
  }
  return nullptr;
}

template <class Maker, bool S>
Mover by_bytes(int bytes, int register_bytes) {
  switch (bytes) {
    case 1: return by_register<Maker, 1, S>(register_bytes);
    case 2: return by_register<Maker, 2, S>(register_bytes);
    case 4: return by_register<Maker, 4, S>(register_bytes);
    case 8: return by_register<Maker, 8, S>(register_bytes);
    case 16:
      if constexpr (!S) return by_register<Maker, 16, false>(register_bytes);
      break;
    default: break;
  }
  return nullptr;
}

template <class Maker>
Mover find_mover(Decoder& decoder, Type type, int bits) {
  const int bytes = bytes_of(type), register_bytes = bits <= 16 ? 2 : bits / 8;
  const Mover mover = is_signed(type) ? by_bytes<Maker, true>(bytes, register_bytes)
                                      : by_bytes<Maker, false>(bytes, register_bytes);
  if (mover == nullptr) {
    decoder.fail_syntax("a register of " + std::to_string(bits) + " bits is too narrow for " +
                        std::string(name_of(type)) + "; accepted: at least its bits");
  }
  return mover;
}

struct MemoryOp {
  MemoryOperand operand;
  uint32_t element_bytes = 0;
  uint32_t count = 0;
  struct Element {
    Mover mover = nullptr;
    Slot slot = kNoSlot;
  } elements[8];
};

Flow run_memory(Exec& exec, const Insn& insn) {
  const MemoryOp& op = insn.form<MemoryOp>();
  LaneHosts hosts;
  access_lanes(exec, insn, op.operand, &hosts);
  for (uint32_t i = 0; i < op.count; ++i) {
    const MemoryOp::Element& element = op.elements[i];
    element.mover(exec, hosts, i * op.element_bytes, element.slot);
  }
  return Flow::kNext;
}

// 32 bytes at a generic address, which must be one of global memory.
Flow run_wide(Exec& exec, const Insn& insn) {
  const MemoryOperand& operand = insn.form<MemoryOp>().operand;
  const Address& address = operand.address;
  exec.for_lanes([&](int lane) {
    const uint64_t at = lane_address(exec, address.base, address.wide, address.offset, lane);
    if (space_of(at) == Space::kGlobal) return;
    throw Trap{"bad-space",
               fmt::format("a vector of 32 bytes at the generic address 0x{:x}, which is none of "
                           "global memory: only that is accepted",
                           at),
               lane};
  });
  return run_memory(exec, insn);
}

void check_type(Decoder& decoder, Type type) {
  switch (type) {
    case Type::kB8:
    case Type::kB16:
    case Type::kB32:
    case Type::kB64:
    case Type::kB128:
    case Type::kU8:
    case Type::kU16:
    case Type::kU32:
    case Type::kU64:
    case Type::kS8:
    case Type::kS16:
    case Type::kS32:
    case Type::kS64:
    case Type::kF32:
    case Type::kF64: return;
    default:
      decoder.fail("." + std::string(name_of(type)) +
                   " is no type of a load or store; accepted: .b8 to .b128, .u8 to .u64, .s8 to "
                   ".s64, .f32, .f64");
  }
}

// Which vectors there are: .v8 of four types, and 32 bytes at once in global memory alone.
void check_vector(Decoder& decoder, const MemoryOp& op, Type type) {
  const bool word =
      type == Type::kB32 || type == Type::kS32 || type == Type::kU32 || type == Type::kF32;
  if (op.count == 8 && !word) {
    decoder.fail(".v8 of ." + std::string(name_of(type)) + "; accepted: .b32, .s32, .u32, .f32");
  }
  if (op.operand.bytes > 32) decoder.fail("a vector of more than 32 bytes; accepted: at most 32");
  if (op.operand.bytes < 32) return;
  const std::string form = ".v" + std::to_string(op.count) + " of ." + std::string(name_of(type));
  if (decoder.statement().words.front() == "ldu") {
    decoder.fail(form + " of ldu; accepted: 16 bytes at most");
  }
  if (op.operand.space != Space::kGlobal && op.operand.space != Space::kGeneric) {
    decoder.fail(form +
                 " in another space; accepted: .global, or a generic address of global memory");
  }
}

// Everything but the registers. `pointer` is the operand that is the address.
MemoryOp decode_access(Decoder& decoder, bool store, size_t pointer, Type* type) {
  MemoryOp op;
  op.operand.reads = !store;
  op.operand.writes = store;
  take_ordering(decoder, &op.operand);
  op.operand.space = decoder.take_space();
  if (store && op.operand.space == Space::kConst)
    decoder.fail("a store to .const; accepted: .global, .shared, .local, .param");
  op.operand.read_only = !store && decoder.take("nc");
  if (op.operand.read_only && op.operand.space != Space::kGlobal) {
    decoder.fail(".nc without .global; accepted: .global.nc");
  }
  const bool policy = take_cache_hints(decoder);
  op.count = take_vector(decoder);
  *type = decoder.need_type();
  check_type(decoder, *type);
  decoder.finish();
  decoder.need_operands(policy ? 3 : 2, policy ? 3 : 2);
  if (policy) decoder.source(2, Type::kB64);
  op.element_bytes = static_cast<uint32_t>(bytes_of(*type));
  op.operand.bytes = op.element_bytes * op.count;
  op.operand.element = op.element_bytes;
  check_vector(decoder, op, *type);
  op.operand.address = decoder.address(pointer);
  return op;
}

// The observer sees the registers in insn.list, the address in insn.a.
template <class Maker>
void decode_elements(Decoder& decoder, Insn& insn, const Operand& registers, Type type,
                     MemoryOp op) {
  constexpr bool kStore = std::is_same_v<Maker, StoreMaker>;
  const auto elements = decoder.elements(registers);
  if (elements.size() != op.count) {
    decoder.fail_syntax("a vector of " + std::to_string(elements.size()) +
                        " registers; accepted: " + std::to_string(op.count));
  }
  std::vector<Slot> slots;
  for (uint32_t i = 0; i < op.count; ++i) {
    int bits = 0;
    const Slot slot = kStore ? decoder.source_any(*elements[i], type, &bits)
                             : decoder.dest_any(*elements[i], type, &bits);
    slots.push_back(slot);
    op.elements[i] = {find_mover<Maker>(decoder, type, bits), slot};
  }
  insn.a = op.operand.address.base;
  insn.is_private = op.operand.space == Space::kLocal || op.operand.space == Space::kParam;
  decoder.set_list(insn, std::move(slots));
  decoder.set_form(insn, op);
  const bool wide = op.operand.bytes == 32 && op.operand.space == Space::kGeneric;
  insn.run = wide ? run_wide : run_memory;
}

void decode_load(Decoder& decoder, Insn& insn) {
  Type type = Type::kNone;
  MemoryOp op = decode_access(decoder, false, 1, &type);
  decode_elements<LoadMaker>(decoder, insn, decoder.operand(0), type, op);
}

void decode_store(Decoder& decoder, Insn& insn) {
  Type type = Type::kNone;
  MemoryOp op = decode_access(decoder, true, 0, &type);
  decode_elements<StoreMaker>(decoder, insn, decoder.operand(1), type, op);
}

constexpr InstructionRow kRows[] = {
    {"ld", decode_load, "Data Movement and Conversion Instructions: ld", ValueFlow::kUses,
     InstructionKind::kLoad},
    {"ldu", decode_load, "Data Movement and Conversion Instructions: ldu", ValueFlow::kUses,
     InstructionKind::kLoad},
    {"st", decode_store, "Data Movement and Conversion Instructions: st", ValueFlow::kUses,
     InstructionKind::kStore},
    {"st.async", decode_store_async, "Data Movement and Conversion Instructions: st.async"},
    {"st.bulk", decode_store_bulk, "Data Movement and Conversion Instructions: st.bulk"},
    {"mapa", decode_mapa, "Data Movement and Conversion Instructions: mapa"},
    {"getctarank", decode_getctarank, "Data Movement and Conversion Instructions: getctarank"},
    {"prefetch", decode_prefetch, "Data Movement and Conversion Instructions: prefetch, prefetchu"},
    {"prefetchu", decode_prefetch,
     "Data Movement and Conversion Instructions: prefetch, prefetchu"},
    {"applypriority", decode_apply_priority,
     "Data Movement and Conversion Instructions: applypriority"},
    {"discard", decode_discard, "Data Movement and Conversion Instructions: discard"},
    {"createpolicy", decode_create_policy,
     "Data Movement and Conversion Instructions: createpolicy"},
    {"multimem", decode_multimem,
     "Data Movement and Conversion Instructions: multimem.ld_reduce, multimem.st, multimem.red"},
};

}  // namespace

uint32_t stored_bytes(const Insn& insn) { return insn.form<MemoryOp>().element_bytes; }

std::span<const InstructionRow> memory_rows() { return kRows; }

}  // namespace ptxemu
