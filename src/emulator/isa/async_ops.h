// What every asynchronous copy shares: how it starts, what its destination holds until it is done,
// what it signals.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "emulator/isa/decoder.h"
#include "emulator/machine/engine.h"
#include "emulator/machine/exec.h"

namespace ptxemu {

// Submits the op. What it will overwrite of shared memory holds NaN patterns until then, unless it
// happens at once.
uint64_t start(const Exec& exec, const Insn& insn, std::unique_ptr<AsyncOp> op,
               std::span<const Region> overwrites);

// The executing warp's registers of `slots` are the op's until it is done; neighbours are joined.
// `stalls` and `shape` as in PendingRegisters::Range.
void hold_registers(const Exec& exec, std::vector<Slot> slots, uint64_t op, bool stalls,
                    uint32_t shape = 0);

// Where an engine signals.
struct BarrierPlace {
  Cta* cta = nullptr;  // null: nowhere
  uint32_t offset = 0;
};
// The barrier of an operand in .shared::cta or .shared::cluster, for one lane.
BarrierPlace barrier_place(const Exec& exec, const Address& address, Space space, int lane);
// The CTAs of a .multicast::cluster, for one lane. Throws Trap where ctaMask, a slot of 16 bits,
// names one that the cluster does not have.
std::vector<Cta*> multicast_targets(const Exec& exec, Slot cta_mask, int lane);

inline Region shared_region(Cta* cta, uint64_t offset, uint64_t bytes) {
  return {.space = Region::Space::kShared, .cta = cta, .begin = offset, .bytes = bytes};
}
inline Region global_region(uint64_t address, uint64_t bytes) {
  return {.space = Region::Space::kGlobal, .begin = address, .bytes = bytes};
}

}  // namespace ptxemu
