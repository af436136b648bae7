// What the instructions of tensor cores and tensor memory share while they are decoded and issued.
#pragma once

#include "emulator/isa/decoder.h"
#include "emulator/machine/exec.h"

namespace ptxemu {

// .cta_group::1 or ::2, which must be there.
int take_cta_group(Decoder& decoder);
// .sync.aligned, which must be there.
void take_sync_aligned(Decoder& decoder);

// wgmma.wait_group. With no group pending the registers of all products are free.
struct WgmmaGroupWait {
  uint64_t may_stay;  // groups that need not be done
};

// "All tcgen05 instructions within a kernel must specify the same value": a finding when they do
// not.
void note_cta_group(const Exec& exec, const Insn& insn, int cta_group);

// Runs a check of tensor memory. What has been released still holds its cells, and known kernels
// read their last result while another warp releases it: a finding, and the kernel goes on. It is
// an error only where the release is known to come first.
template <class Check>
void check_cells(const Exec& exec, const Insn& insn, Check check) {
  try {
    check();
  } catch (const Trap& trap) {
    if (trap.rule != "tmem-after-release") throw;
    const bool first = exec.observer == nullptr || exec.observer->knows_release(exec);
    exec.launch->report(exec, insn, first ? Severity::kError : Severity::kFormal, trap.rule,
                        trap.message, trap.object);
  }
}

// tcgen05_alloc.cc
void decode_tensor_alloc(Decoder& decoder, Insn& insn);
void decode_tensor_dealloc(Decoder& decoder, Insn& insn);
void decode_tensor_relinquish(Decoder& decoder, Insn& insn);
// tcgen05_cp.cc
void decode_tensor_copy(Decoder& decoder, Insn& insn);
void decode_tensor_shift(Decoder& decoder, Insn& insn);
void decode_tensor_commit(Decoder& decoder, Insn& insn);
// matrix_move.cc
void decode_load_matrix(Decoder& decoder, Insn& insn);
void decode_store_matrix(Decoder& decoder, Insn& insn);
void decode_move_matrix(Decoder& decoder, Insn& insn);

}  // namespace ptxemu
