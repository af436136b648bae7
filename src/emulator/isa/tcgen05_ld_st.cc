// tcgen05.ld, st, wait and fence ("Tensor Memory and Register Load/Store Instructions", PTX ISA
// 9.7.16.8; "TensorCore 5th Generation Specialized Synchronization Operations", 9.7.16.11).
#include <fmt/format.h>

#include <algorithm>

#include "emulator/isa/async_ops.h"
#include "emulator/isa/tensor_forms.h"
#include "emulator/machine/tensor_transfer.h"

namespace ptxemu {

namespace {

struct TransferForm {
  Transfer transfer;  // but for the address
  TransferReduction reduction;
  Address address;
};

// All lanes of a warp name the same address.
TensorAddress address_of(const Exec& exec, const Address& address) {
  const int first = exec.first_lane();
  const auto bits = [&](int lane) {
    return static_cast<uint32_t>(
        lane_address(exec, address.base, address.wide, address.offset, lane));
  };
  const uint32_t common = bits(first);
  exec.for_lanes([&](int lane) {
    if (bits(lane) == common) return;
    throw Trap{"tmem-address",
               fmt::format("lane {} names tensor memory {:#010x}, lane {} names {:#010x}; all must "
                           "name the same",
                           lane, bits(lane), first, common),
               lane};
  });
  return TensorAddress::of(common);
}

// Registers that the op fills stall whoever touches them.
void hold_filled(const Exec& exec, const Insn& insn, uint64_t op) {
  std::vector<Slot> slots(insn.list, insn.list + insn.list_size);
  if (insn.d != kNoSlot) slots.push_back(insn.d);
  hold_registers(exec, std::move(slots), op, true);
}

// Remembers the op for the next wait. Kernels that never wait leave finished ones behind.
void remember(const Exec& exec, std::vector<uint64_t>& ops, uint64_t id) {
  constexpr size_t kMany = 1024;
  ops.push_back(id);
  if (ops.size() < kMany) return;
  const Engines& engines = exec.cluster->engines;
  std::erase_if(ops, [&](uint64_t op) { return !engines.is_pending(op); });
}

// The lanes of the warp's own quarter; known kernels name lane 0 in every warp and mean them.
TensorAddress own_lanes(const Exec& exec, const Insn& insn, const TransferForm& form,
                        const char* what) {
  const TensorAddress named = address_of(exec, form.address);
  const TensorAddress own = in_quarter(named, form.transfer.shape, *exec.warp, what);
  if (named.lane != own.lane && exec.launch->options.check) {
    exec.launch->report(
        exec, insn, Severity::kFormal, "tmem-lanes",
        fmt::format("{} names lane {}, but warp {} has lanes {} to {}", what, named.lane,
                    exec.warp->index, own.lane / 32 * 32, own.lane / 32 * 32 + 31));
  }
  return own;
}

Flow run_load(Exec& exec, const Insn& insn) {
  const auto& form = insn.form<TransferForm>();
  exec.require_converged(insn);
  Transfer transfer = form.transfer;
  transfer.at = own_lanes(exec, insn, form, "tcgen05.ld");
  check_cells(exec, insn, [&] { check_transfer(transfer, *exec.warp, "tcgen05.ld"); });
  auto op = std::make_unique<TmemLoadOp>(exec, insn, transfer, form.reduction);
  const uint64_t id = exec.cluster->engines.submit(std::move(op));
  if (exec.cluster->engines.is_pending(id)) hold_filled(exec, insn, id);
  remember(exec, exec.warp->state<TensorTraffic>().loads, id);
  return Flow::kNext;
}

Flow run_store(Exec& exec, const Insn& insn) {
  const auto& form = insn.form<TransferForm>();
  exec.require_converged(insn);
  Transfer transfer = form.transfer;
  transfer.at = own_lanes(exec, insn, form, "tcgen05.st");
  check_cells(exec, insn, [&] { check_transfer(transfer, *exec.warp, "tcgen05.st"); });
  const uint64_t id =
      exec.cluster->engines.submit(std::make_unique<TmemStoreOp>(exec, insn, transfer));
  remember(exec, exec.warp->state<TensorTraffic>().stores, id);
  return Flow::kNext;
}

Flow wait_for(Exec& exec, const Insn& insn, std::vector<uint64_t>& ops, Wait::Kind kind) {
  if (!exec.resumed(kind)) exec.require_converged(insn);
  const Engines& engines = exec.cluster->engines;
  for (const uint64_t op : ops) {
    if (engines.is_pending(op)) return exec.block(kind, op);
  }
  if (exec.observer != nullptr) {
    for (const uint64_t op : ops) exec.observer->op_done_observed(exec, insn, op);
    std::erase_if(exec.warp->pending.ranges, [&](const auto& range) {
      return std::find(ops.begin(), ops.end(), range.op) != ops.end();
    });
  }
  ops.clear();
  return Flow::kNext;
}

Flow run_wait_load(Exec& exec, const Insn& insn) {
  return wait_for(exec, insn, exec.warp->state<TensorTraffic>().loads, Wait::Kind::kTensorLoad);
}

Flow run_wait_store(Exec& exec, const Insn& insn) {
  return wait_for(exec, insn, exec.warp->state<TensorTraffic>().stores, Wait::Kind::kTensorStore);
}

Flow run_fence_before(Exec& exec, const Insn& insn) {
  exec.tell(&Observer::fence, insn, {.kind = FenceKind::kTensorBeforeSync});
  return Flow::kNext;
}

Flow run_fence_after(Exec& exec, const Insn& insn) {
  exec.tell(&Observer::fence, insn, {.kind = FenceKind::kTensorAfterSync});
  return Flow::kNext;
}

// --- Decoding ------------------------------------------------------------------------------------

Transfer take_shape(Decoder& decoder, std::string_view halfwords) {
  Transfer transfer;
  constexpr uint32_t kMissing = 0;
  const int shape = decoder.take_one<int>(
      {{"32x32b", 0}, {"16x64b", 1}, {"16x128b", 2}, {"16x256b", 3}, {"16x32bx2", 4}}, -1);
  if (shape < 0) decoder.fail("no shape; accepted: 32x32b, 16x64b, 16x128b, 16x256b, 16x32bx2");
  transfer.shape = static_cast<TransferShape>(shape);
  const uint32_t repeat = decoder.take_one<uint32_t>({{"x1", 1},
                                                      {"x2", 2},
                                                      {"x4", 4},
                                                      {"x8", 8},
                                                      {"x16", 16},
                                                      {"x32", 32},
                                                      {"x64", 64},
                                                      {"x128", 128}},
                                                     kMissing);
  if (repeat == kMissing) decoder.fail("no repeat; accepted: x1, x2, x4 ... x128");
  transfer.registers = repeat * registers_of(transfer.shape);
  if (transfer.registers > 128)
    decoder.fail("more than 128 registers a thread; accepted: at most 128");
  transfer.halfwords = decoder.take(halfwords);
  return transfer;
}

std::vector<Slot> take_vector(Decoder& decoder, const Operand& operand, uint32_t count,
                              bool writes) {
  std::vector<Slot> slots;
  for (const Operand* element : decoder.elements(operand)) {
    Slot slot =
        writes ? decoder.dest_or_none(*element, Type::kB32) : decoder.source(*element, Type::kB32);
    // A reduction reads what was loaded, so that sinks may not share a slot.
    if (slot == kNoSlot) slot = decoder.scratch(Type::kB32);
    slots.push_back(slot);
  }
  if (slots.size() != count) {
    decoder.fail_syntax(fmt::format("a vector of {} registers; accepted: {}", slots.size(), count));
  }
  return slots;
}

uint32_t take_half_split(Decoder& decoder, const Transfer& transfer, size_t i) {
  if (transfer.shape != TransferShape::k16x32bx2) return 0;
  const int64_t columns = decoder.constant(i);
  if (columns < 0 || columns >= TensorMemory::kColumns) {
    decoder.fail_syntax(
        fmt::format("immHalfSplitoff {}; accepted: 0 to {}", columns, TensorMemory::kColumns - 1));
  }
  return static_cast<uint32_t>(columns);
}

TransferReduction take_reduction(Decoder& decoder) {
  TransferReduction reduction;
  if (!decoder.take("red")) return reduction;
  using Kind = TransferReduction::Kind;
  reduction.kind = decoder.take_one<Kind>(
      {{"f32", Kind::kFloat}, {"u32", Kind::kUnsigned}, {"s32", Kind::kSigned}}, Kind::kNone);
  if (reduction.kind == Kind::kNone) decoder.fail("no type; accepted: f32, u32, s32");
  const int maximum = decoder.take_one<int>({{"min", 0}, {"max", 1}}, -1);
  if (maximum < 0) decoder.fail("no operation; accepted: min, max");
  reduction.maximum = maximum == 1;
  if (reduction.kind == Kind::kFloat) {
    reduction.absolute = decoder.take("abs");
    reduction.keeps_nan = decoder.take("NaN");
  }
  return reduction;
}

// tcgen05.ld r{, redval}, [taddr]{, immHalfSplitoff}
void decode_load(Decoder& decoder, Insn& insn) {
  take_sync_aligned(decoder);
  TransferForm form;
  form.reduction = take_reduction(decoder);
  const bool reduces = form.reduction.kind != TransferReduction::Kind::kNone;
  form.transfer = take_shape(decoder, "pack::16b");
  const TransferShape shape = form.transfer.shape;
  const bool is_split = shape == TransferShape::k16x32bx2;
  if (reduces) {
    if (shape != TransferShape::k32x32b && !is_split) {
      decoder.fail("tcgen05.ld.red of another shape; accepted: 32x32b, 16x32bx2");
    }
    if (form.transfer.registers < 2)
      decoder.fail("tcgen05.ld.red of another repeat; accepted: x2 and more");
  } else if (!decoder.take("b32")) {
    decoder.fail("tcgen05.ld without its type; accepted: .b32");
  }
  decoder.finish();
  const size_t operands = 2 + (reduces ? 1 : 0) + (is_split ? 1 : 0);
  decoder.need_operands(operands, operands);
  decoder.set_list(insn, take_vector(decoder, decoder.operand(0), form.transfer.registers, true));
  if (reduces) insn.d = decoder.dest(1, Type::kB32);
  const size_t address = reduces ? 2 : 1;
  form.address = decoder.address(address);
  form.transfer.half_split = take_half_split(decoder, form.transfer, address + 1);
  decoder.set_form(insn, form);
  insn.run = run_load;
}

// tcgen05.st [taddr]{, immHalfSplitoff}, r
void decode_store(Decoder& decoder, Insn& insn) {
  take_sync_aligned(decoder);
  TransferForm form;
  form.transfer = take_shape(decoder, "unpack::16b");
  if (!decoder.take("b32")) decoder.fail("tcgen05.st without its type; accepted: .b32");
  decoder.finish();
  const size_t last = form.transfer.shape == TransferShape::k16x32bx2 ? 2 : 1;
  decoder.need_operands(last + 1, last + 1);
  form.address = decoder.address(0);
  form.transfer.half_split = take_half_split(decoder, form.transfer, 1);
  decoder.set_list(insn,
                   take_vector(decoder, decoder.operand(last), form.transfer.registers, false));
  decoder.set_form(insn, form);
  insn.run = run_store;
}

template <Handler kRun>
void decode_wait(Decoder& decoder, Insn& insn) {
  take_sync_aligned(decoder);
  decoder.finish();
  decoder.need_operands(0, 0);
  insn.run = kRun;
}

template <Handler kRun>
void decode_fence(Decoder& decoder, Insn& insn) {
  decoder.finish();
  decoder.need_operands(0, 0);
  insn.run = kRun;
}

}  // namespace

int take_cta_group(Decoder& decoder) {
  const int group = decoder.take_one<int>({{"cta_group::1", 1}, {"cta_group::2", 2}}, 0);
  if (group == 0) decoder.fail("no .cta_group; accepted: .cta_group::1, .cta_group::2");
  return group;
}

void take_sync_aligned(Decoder& decoder) {
  if (!decoder.take("sync") || !decoder.take("aligned"))
    decoder.fail("no .sync.aligned; accepted: .sync.aligned");
}

namespace {
struct SeenCtaGroup {
  int value = 0;
};
}  // namespace

void note_cta_group(const Exec& exec, const Insn& insn, int cta_group) {
  if (cta_group == 2) exec.tell(&Observer::pair_used, insn);
  int& first = exec.cluster->state<SeenCtaGroup>().value;
  if (first == 0) first = cta_group;
  if (first == cta_group) return;
  exec.launch->report(exec, insn, Severity::kError, "cta-group-mixed",
                      fmt::format(".cta_group::{} in a kernel that has also used .cta_group::{}: "
                                  "all tcgen05 instructions must say the same",
                                  cta_group, first));
}

std::span<const InstructionRow> tensor_memory_rows() {
  static constexpr InstructionRow kRows[] = {
      {"tcgen05.alloc", decode_tensor_alloc, "Tensor Memory Allocation and Management Instructions",
       ValueFlow::kUses, InstructionKind::kTmemAlloc},
      {"tcgen05.dealloc", decode_tensor_dealloc,
       "Tensor Memory Allocation and Management Instructions", ValueFlow::kUses,
       InstructionKind::kTmemRelease},
      {"tcgen05.relinquish_alloc_permit", decode_tensor_relinquish,
       "Tensor Memory Allocation and Management Instructions", ValueFlow::kUses,
       InstructionKind::kTmemRelease},
      {"tcgen05.ld", decode_load, "Tensorcore 5th Generation Instructions: tcgen05.ld"},
      {"tcgen05.st", decode_store, "Tensorcore 5th Generation Instructions: tcgen05.st"},
      {"tcgen05.wait::ld", decode_wait<run_wait_load>,
       "Tensorcore 5th Generation Instructions: tcgen05.wait"},
      {"tcgen05.wait::st", decode_wait<run_wait_store>,
       "Tensorcore 5th Generation Instructions: tcgen05.wait"},
      {"tcgen05.fence::before_thread_sync", decode_fence<run_fence_before>,
       "TensorCore 5th Generation Specialized Synchronization Operations"},
      {"tcgen05.fence::after_thread_sync", decode_fence<run_fence_after>,
       "TensorCore 5th Generation Specialized Synchronization Operations"},
  };
  return kRows;
}

}  // namespace ptxemu
