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
    return &other != group && other.pc == insn.pc && other.frame == group->frame &&
           other.wait.kind == Wait::Kind::kWarpSync && other.wait.object == asked;
  };
  // Lanes that the guard holds back are in a group that waits, but do not take part.
  uint32_t taking_part = insn.guard == kNoSlot ? ~0u : predicate(insn.guard);
  if (insn.guard_negated) taking_part = ~taking_part;
  uint32_t here = mask;
  for (const auto& other : warp->groups) {
    if (waits_here(*other)) here |= other->mask & taking_part;
  }
  if ((here & needed) != needed) return false;
  for (const auto& other : warp->groups) {
    if (!waits_here(*other)) continue;
    other->wait.kind = Wait::Kind::kNone;
    ++other->pc;
    if (other->join != group->join || other->join_pc != group->join_pc) continue;
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
