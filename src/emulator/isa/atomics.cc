// atom and red ("Parallel Synchronization and Communication Instructions: atom", "red"; PTX ISA
// 9.7.13.5, 9.7.13.6). Lanes take their turn in order.
#include <cstring>

#include <fmt/format.h>

#include "emulator/isa/addressing.h"
#include "emulator/isa/memory_ops.h"
#include "emulator/isa/reduce_words.h"

namespace ptxemu {
namespace {

constexpr uint32_t kMostBytes = 16;  // of a lane

struct AtomicOp {
  MemoryOperand operand;
  Reducer in_global, in_shared;
  bool compares = false, is_wide_exchange = false;
  uint32_t element_bytes = 0;  // of one register
  uint32_t parts = 1;          // reducer elements in one register
  uint32_t count = 1;          // registers
  Slot d[8], b[8], c = kNoSlot;
};

bool is_shared(const Exec& exec, const MemoryOperand& operand, int lane) {
  if (operand.space != Space::kGeneric) return operand.space != Space::kGlobal;
  return space_of(lane_address(exec, operand.address.base, operand.address.wide,
                               operand.address.offset, lane)) != Space::kGlobal;
}

// True when the place holds something else now.
bool apply(const Exec& exec, const AtomicOp& op, std::byte* place, int lane) {
  const auto register_of = [&](Slot slot) {
    return exec.slot_bytes(slot, 32 * op.element_bytes) + lane * op.element_bytes;
  };
  std::byte old[kMostBytes];
  for (uint32_t i = 0; i < op.count; ++i) {
    std::byte* memory = place + i * op.element_bytes;
    std::byte* before = old + i * op.element_bytes;
    if (op.compares) {
      compare_and_swap(memory, register_of(op.b[i]), register_of(op.c), before, op.element_bytes);
    } else if (op.is_wide_exchange) {
      exchange_wide(memory, register_of(op.b[i]), before);
    } else {
      const Reducer& reducer = is_shared(exec, op.operand, lane) ? op.in_shared : op.in_global;
      reducer.apply(memory, register_of(op.b[i]), before, op.parts);
    }
  }
  // Only now: a register of the result may be one of the operands.
  for (uint32_t i = 0; i < op.count; ++i) {
    if (op.d[i] == kNoSlot) continue;
    std::memcpy(register_of(op.d[i]), old + i * op.element_bytes, op.element_bytes);
  }
  return std::memcmp(old, place, op.operand.bytes) != 0;
}

Flow run_atomic(Exec& exec, const Insn& insn) {
  const AtomicOp& op = insn.form<AtomicOp>();
  LaneHosts hosts;
  access_lanes(exec, insn, op.operand, &hosts);
  bool changed = false;
  exec.for_lanes([&](int lane) { changed |= apply(exec, op, hosts.at[lane], lane); });
  // One that leaves memory as it is frees nobody: it may be a poll, of a lock that is taken, or of
  // a flag by .add of 0.
  if (changed) {
    exec.cluster->note_progress();
  } else if (op.d[0] != kNoSlot) {
    exec.cluster->note_poll();
  }
  return Flow::kNext;
}

// Sums of .f32 in global memory flush subnormal numbers unless .noftz says not to; those in shared
// memory never do.
void take_operation(Decoder& decoder, Type type, bool compares, ReduceOp op, bool no_flush,
                    AtomicOp* atomic) {
  const uint32_t bytes = static_cast<uint32_t>(bytes_of(type));
  atomic->element_bytes = bytes;
  atomic->operand.bytes = bytes * atomic->count;
  atomic->operand.element = bytes;
  if (compares) {
    atomic->compares = true;
    if (type != Type::kB16 && type != Type::kB32 && type != Type::kB64 && type != Type::kB128) {
      decoder.fail(".cas of another type; accepted: .b16, .b32, .b64, .b128");
    }
    return;
  }
  if (atomic->count == 1) need_reduction(decoder, op, type, ReduceBy::kAtomic);
  if (bytes == 16) {
    atomic->is_wide_exchange = true;
    return;
  }
  atomic->in_global = find_reducer(op, type, !no_flush, ReduceIn::kGlobal);
  atomic->in_shared = find_reducer(op, type, false, ReduceIn::kShared);
  if (atomic->in_global.apply == nullptr)
    decoder.fail("an operation that is not of this type; accepted: .add, .min, .max, .exch");
  atomic->parts = bytes / atomic->in_global.bytes;
  if (atomic->parts != 1) atomic->operand.element = 0;  // two halves: known kernels mix them
}

// A vector access is atomic element by element and aligned as a whole.
void check_vector(Decoder& decoder, Type type, const AtomicOp& atomic, ReduceOp op) {
  if (atomic.count == 1) return;
  const bool half = type == Type::kF16 || type == Type::kBF16;
  const bool packed = type == Type::kF16x2 || type == Type::kBF16x2;
  if (!half && !packed && !(type == Type::kF32 && op == ReduceOp::kAdd)) {
    decoder.fail("a vector of another type; accepted: .add.f32, .f16, .bf16, .f16x2, .bf16x2");
  }
  if (atomic.count == 8 && !half) decoder.fail(".v8 of another type; accepted: .f16, .bf16");
  if (atomic.operand.space != Space::kGeneric && atomic.operand.space != Space::kGlobal) {
    decoder.fail("a vector in another space; accepted: .global");
  }
}

// .noftz stands where it says what the hardware does anyway, and must; sums of .f32 may have it
// (PTX 9.1).
void check_no_flush(Decoder& decoder, Type type, bool compares, ReduceOp op, bool no_flush) {
  const bool half =
      type == Type::kF16 || type == Type::kBF16 || type == Type::kF16x2 || type == Type::kBF16x2;
  const bool may = !compares && type == Type::kF32 && op == ReduceOp::kAdd;
  if (half != no_flush && !may) {
    decoder.fail(
        ".noftz is missing or out of place; accepted: with .f16, .bf16, .f16x2, .bf16x2, which "
        "need "
        "it, and with .add.f32");
  }
}

void decode_atomic(Decoder& decoder, Insn& insn, bool returns) {
  AtomicOp atomic;
  atomic.operand.reads = atomic.operand.writes = atomic.operand.atomic = true;
  take_ordering(decoder, &atomic.operand);
  atomic.operand.space = decoder.take_space();
  if (atomic.operand.space == Space::kConst || atomic.operand.space == Space::kLocal ||
      atomic.operand.space == Space::kParam) {
    decoder.fail("an atomic in another space; accepted: .global, .shared");
  }
  const bool compares = decoder.take("cas");
  if (compares && !returns) decoder.fail("red has no .cas; accepted: atom.cas");
  const ReduceOp op = compares ? ReduceOp::kExchange : take_reduce_op(decoder);
  if (op == ReduceOp::kExchange && !returns) decoder.fail("red has no .exch; accepted: atom.exch");
  const bool no_flush = decoder.take("noftz");
  const bool policy = decoder.take("L2::cache_hint");
  atomic.count = take_vector(decoder);
  const Type type = decoder.need_type();
  decoder.finish();
  check_vector(decoder, type, atomic, op);
  take_operation(decoder, type, compares, op, no_flush, &atomic);
  atomic.operand.sums_floats = !compares && op == ReduceOp::kAdd && is_float(type);
  check_no_flush(decoder, type, compares, op, no_flush);
  const size_t first = returns ? 1 : 0, least = first + 2 + compares + policy;
  decoder.need_operands(least, least);
  atomic.operand.address = decoder.address(first);
  const auto b = decoder.elements(decoder.operand(first + 1));
  if (b.size() != atomic.count)
    decoder.fail_syntax(
        fmt::format("a vector of another size; accepted: {} registers", atomic.count));
  for (uint32_t i = 0; i < atomic.count; ++i) atomic.b[i] = decoder.source(*b[i], type);
  if (compares) atomic.c = decoder.source(first + 2, type);
  if (policy) decoder.source(least - 1, Type::kB64);
  std::fill(std::begin(atomic.d), std::end(atomic.d), kNoSlot);
  if (returns) {
    const auto d = decoder.elements(decoder.operand(0));
    const bool sink = decoder.operand(0).kind == Operand::Kind::kSink;
    if (!sink && d.size() != atomic.count)
      decoder.fail_syntax(
          fmt::format("a vector of another size; accepted: {} registers", atomic.count));
    for (uint32_t i = 0; i < (sink ? 0 : atomic.count); ++i) {
      atomic.d[i] = decoder.dest_or_none(*d[i], type);
    }
  }
  decoder.set_form(insn, atomic);
  insn.run = run_atomic;
}

void decode_atom(Decoder& decoder, Insn& insn) { decode_atomic(decoder, insn, true); }
void decode_red(Decoder& decoder, Insn& insn) { decode_atomic(decoder, insn, false); }

constexpr InstructionRow kRows[] = {
    {"atom", decode_atom, "Parallel Synchronization and Communication Instructions: atom"},
    {"red", decode_red, "Parallel Synchronization and Communication Instructions: red"},
    {"red.async", decode_reduce_async,
     "Parallel Synchronization and Communication Instructions: red.async"},
};

}  // namespace

std::span<const InstructionRow> atomic_rows() { return kRows; }

}  // namespace ptxemu
