#include "emulator/machine/exec.h"

#include <fmt/format.h>

#include <stdexcept>

namespace ptxemu {

void Exec::require_slot(Slot slot, size_t bytes) const {
  const std::vector<uint16_t>& known = frame().function->slot_bytes;
  if (slot % 4 == 0 && slot / 4 < known.size() && bytes <= known[slot / 4]) return;
  throw std::logic_error(fmt::format("{} bytes of slot {} of {}, which has {}", bytes, slot,
                                     frame().function->name,
                                     slot / 4 < known.size() ? known[slot / 4] : 0));
}

namespace {

const Insn& next_insn(const Group& group) { return group.frame->function->code[group.pc]; }

// Lanes that the guard holds back are in a group that waits, but do not take part.
uint32_t taking_part(Exec exec, Group& group) {
  exec.group = &group;
  exec.registers = group.frame->registers;
  return exec.guarded_mask(next_insn(group));
}

}  // namespace

bool Exec::gather(uint32_t member_mask, const Insn& insn) {
  const uint32_t asked = member_mask;
  member_mask &= warp->lanes;
  if ((mask & ~member_mask) != 0) {
    throw Trap{"sync-mask",
               fmt::format("lanes {:#010x} execute with the member mask {:#010x}, which "
                           "does not hold all of them",
                           mask, member_mask),
               std::countr_zero(mask & ~member_mask)};
  }
  const uint32_t needed = member_mask & ~warp->exited;
  if ((mask & needed) == needed) return true;
  const auto waits_here = [&](const Group& other) {
    return other.pc == insn.pc && other.frame == group->frame;
  };
  // Barriers of one mask meet wherever they stand, in the arms of a branch or in two calls: only up
  // to sm_6x must all lanes execute the same bar.warp.sync.
  const bool is_barrier = kind_of(insn) == InstructionKind::kWarpSync;
  const auto waits_too = [&](const Group& other) {
    return &other != group && other.wait.kind == Wait::Kind::kWarpSync &&
           other.wait.object == asked &&
           (waits_here(other) ||
            (is_barrier && kind_of(next_insn(other)) == InstructionKind::kWarpSync));
  };
  uint32_t here = mask;
  for (const auto& other : warp->groups) {
    if (waits_too(*other)) here |= taking_part(*this, *other);
  }
  if ((here & needed) != needed) return false;
  for (const auto& other : warp->groups) {
    if (!waits_too(*other)) continue;
    const bool is_here = waits_here(*other);
    other->wait.kind = Wait::Kind::kNone;
    ++other->pc;
    if (!is_here || other->join != group->join || other->join_pc != group->join_pc) continue;
    // They go on as one: an .aligned instruction may follow.
    group->mask |= other->mask;
    other->mask = 0;
  }
  mask = here;
  return true;
}

void Exec::require_converged(const Insn& insn) const {
  const uint32_t all = warp->lanes & ~warp->exited;
  if ((mask & all) == all) return;
  launch->report(
      *this, insn, Severity::kError, "not-converged",
      fmt::format("an .aligned instruction is executed by lanes {:#010x} of {:#010x}", mask, all));
}

}  // namespace ptxemu
