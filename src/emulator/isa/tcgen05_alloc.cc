// tcgen05.alloc, dealloc, relinquish_alloc_permit ("Tensor Memory Allocation and Management
// Instructions", PTX ISA 9.7.16.7).
#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "emulator/isa/addressing.h"
#include "emulator/isa/tensor_forms.h"
#include "emulator/machine/tensor_memory.h"

namespace ptxemu {

namespace {

using Request = TensorMemory::PairRequest;

struct AllocForm {
  int cta_group = 1;
  MemoryOperand place;     // of alloc: where the address is written
  Slot address = kNoSlot;  // of dealloc
  Slot columns = kNoSlot;
};

uint32_t column_count(const Exec& exec, const AllocForm& form) {
  const uint32_t columns = exec.lanes<uint32_t>(form.columns)[exec.first_lane()];
  if (columns < 32 || columns > TensorMemory::kColumns || !std::has_single_bit(columns)) {
    throw Trap{"tmem-alloc-size",
               fmt::format("{} columns; accepted: a power of two from 32 to 512", columns)};
  }
  return columns;
}

Cta& peer_of(const Exec& exec, const char* what) {
  const uint32_t rank = exec.cta->rank ^ 1;
  if (rank >= exec.cluster->ctas.size()) {
    throw Trap{"cta-pair", fmt::format("{} with .cta_group::2 in a cluster of {} CTA(s), where CTA "
                                       "rank {} has no peer",
                                       what, exec.cluster->ctas.size(), exec.cta->rank)};
  }
  return *exec.cluster->ctas[rank];
}

void check_alloc(const Exec& exec, const Insn& insn, const TensorMemory& memory, uint32_t columns) {
  if (exec.launch->options.device->tensor_memory_columns == 0) {
    throw Trap{"no-tensor-memory",
               fmt::format("{} has no tensor memory", exec.launch->options.device->name)};
  }
  if (memory.relinquished) {
    throw Trap{"tmem-alloc-relinquished",
               "tcgen05.alloc after this CTA's tcgen05.relinquish_alloc_permit"};
  }
  if (columns > memory.last_columns) {
    exec.launch->report(exec, insn, Severity::kError, "tmem-alloc-grows",
                        fmt::format("{} columns after an allocation of {}: sizes must not grow",
                                    columns, memory.last_columns));
  }
}

void write_address(Exec& exec, const Insn& insn, const AllocForm& form, uint32_t column) {
  Exec one = exec;  // a single access, as one thread makes it
  one.mask = 1u << exec.first_lane();
  LaneHosts hosts;
  access_lanes(one, insn, form.place, &hosts);
  std::memcpy(hosts.at[exec.first_lane()], &column, sizeof(column));
}

// Both CTAs of a pair do the same. True when done: `request` of the own CTA then says where.
bool agree(Exec& exec, const Insn& insn, uint32_t columns, uint32_t column, bool releases) {
  auto& own = exec.cta->state<TensorMemory>();
  Cta& peer_cta = peer_of(exec, releases ? "tcgen05.dealloc" : "tcgen05.alloc");
  auto& peer = peer_cta.state<TensorMemory>();
  Request& mine = own.request;
  if (mine.state == Request::State::kNone) {
    mine = {Request::State::kWaiting, releases, exec.warp->index, columns, column};
  }
  if (mine.warp != exec.warp->index) return false;  // another warp's turn
  if (mine.state == Request::State::kGranted) return true;
  Request& other = peer.request;
  if (other.state != Request::State::kWaiting) return false;
  if (other.releases != releases || other.columns != columns) {
    throw Trap{"tmem-pair-mismatch",
               fmt::format("{} of {} columns, while the peer CTA's warp {} {} {}",
                           releases ? "release" : "allocation", columns, other.warp,
                           other.releases ? "releases" : "allocates", other.columns)};
  }
  uint32_t found = column;
  if (!releases) {
    found = TensorMemory::find_free(own, peer, columns);
    if (found == TensorMemory::kColumns) return false;
    own.take(found, columns, insn.line);
    peer.take(found, columns, insn.line);
    exec.tell(&Observer::tensor_alloc, insn, *exec.cta, found, columns);
    exec.tell(&Observer::tensor_alloc, insn, peer_cta, found, columns);
  }
  mine.column = other.column = found;
  mine.state = other.state = Request::State::kGranted;
  exec.cluster->note_progress();
  return true;
}

Flow run_alloc(Exec& exec, const Insn& insn) {
  const auto& form = insn.form<AllocForm>();
  auto& memory = exec.cta->state<TensorMemory>();
  const uint32_t columns = column_count(exec, form);
  if (!exec.resumed(Wait::Kind::kTensorAlloc)) {
    exec.require_converged(insn);
    note_cta_group(exec, insn, form.cta_group);
    check_alloc(exec, insn, memory, columns);
  }
  if (form.cta_group == 2) {
    if (!agree(exec, insn, columns, 0, false)) {
      return exec.block(Wait::Kind::kTensorAlloc, exec.cta->rank, columns);
    }
    memory.request.state = Request::State::kNone;
    write_address(exec, insn, form, memory.request.column);
    return Flow::kNext;
  }
  const uint32_t column = memory.find_free(columns);
  if (column == TensorMemory::kColumns) {
    return exec.block(Wait::Kind::kTensorAlloc, exec.cta->rank, columns);
  }
  memory.take(column, columns, insn.line);
  exec.tell(&Observer::tensor_alloc, insn, *exec.cta, column, columns);
  write_address(exec, insn, form, column);
  return Flow::kNext;
}

void release(const Exec& exec, const Insn& insn, uint32_t column, uint32_t columns) {
  auto& memory = exec.cta->state<TensorMemory>();
  if (!memory.release(column, columns)) {
    std::string live;
    for (const auto& a : memory.live()) {
      live += fmt::format("{}{} columns at {}", live.empty() ? "" : ", ", a.columns, a.column);
    }
    throw Trap{"tmem-dealloc",
               fmt::format("{} columns at column {} are no allocation; live: {}", columns, column,
                           live.empty() ? "none" : live),
               -1, name_tensor_cells(0, TensorMemory::kLanes, column, columns)};
  }
  exec.tell(&Observer::tensor_dealloc, insn, *exec.cta, column, columns);
  exec.cluster->note_progress();
}

// Loads and stores of the CTA's tensor memory that nobody waited for come before its release.
bool transfers_pending(const Exec& exec) {
  for (const AsyncOp* op : exec.cluster->engines.pending()) {
    const bool transfer =
        op->kind == EngineKind::kTensorLoad || op->kind == EngineKind::kTensorStore;
    if (transfer && op->cta_rank == exec.cta->rank) return true;
  }
  return false;
}

Flow run_dealloc(Exec& exec, const Insn& insn) {
  const auto& form = insn.form<AllocForm>();
  const uint32_t columns = column_count(exec, form);
  const uint32_t address = exec.lanes<uint32_t>(form.address)[exec.first_lane()];
  const TensorAddress at = TensorAddress::of(address);
  if (!exec.resumed(Wait::Kind::kTensorAlloc)) {
    exec.require_converged(insn);
    note_cta_group(exec, insn, form.cta_group);
    if (address >> 16 != 0) {
      throw Trap{"tmem-dealloc", fmt::format("the address {:#010x} has lane {}; accepted: 0",
                                             address, address >> 16)};
    }
  }
  if (transfers_pending(exec)) return exec.block(Wait::Kind::kTensorAlloc, exec.cta->rank, columns);
  // The pair may or may not wait for each other here; under the eager policy it does not.
  if (form.cta_group == 2 && exec.launch->options.policy != Policy::kEager) {
    if (!agree(exec, insn, columns, at.column, true)) {
      return exec.block(Wait::Kind::kTensorAlloc, exec.cta->rank, columns);
    }
    exec.cta->state<TensorMemory>().request.state = Request::State::kNone;
  }
  release(exec, insn, at.column, columns);
  return Flow::kNext;
}

Flow run_relinquish(Exec& exec, const Insn& insn) {
  const auto& form = insn.form<AllocForm>();
  exec.require_converged(insn);
  note_cta_group(exec, insn, form.cta_group);
  exec.cta->state<TensorMemory>().relinquished = true;
  return Flow::kNext;
}

AllocForm decode_form(Decoder& decoder) {
  AllocForm form;
  form.cta_group = take_cta_group(decoder);
  take_sync_aligned(decoder);
  return form;
}

}  // namespace

void decode_tensor_alloc(Decoder& decoder, Insn& insn) {
  AllocForm form = decode_form(decoder);
  form.place.space = decoder.take_space();
  if (!decoder.take("b32")) decoder.fail("tcgen05.alloc without its type; accepted: .b32");
  decoder.finish();
  decoder.need_operands(2, 2);
  form.place.address = decoder.address(0);
  form.place.bytes = 4;
  form.place.writes = true;
  form.columns = decoder.source(1, Type::kU32);
  decoder.set_form(insn, form);
  insn.run = run_alloc;
}

void decode_tensor_dealloc(Decoder& decoder, Insn& insn) {
  AllocForm form = decode_form(decoder);
  if (!decoder.take("b32")) decoder.fail("tcgen05.dealloc without its type; accepted: .b32");
  decoder.finish();
  decoder.need_operands(2, 2);
  form.address = decoder.source(0, Type::kU32);
  form.columns = decoder.source(1, Type::kU32);
  decoder.set_form(insn, form);
  insn.run = run_dealloc;
}

void decode_tensor_relinquish(Decoder& decoder, Insn& insn) {
  const AllocForm form = decode_form(decoder);
  decoder.finish();
  decoder.need_operands(0, 0);
  decoder.set_form(insn, form);
  insn.run = run_relinquish;
}

}  // namespace ptxemu
