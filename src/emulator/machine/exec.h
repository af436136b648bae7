// What a handler works on: some lanes of one warp, at one instruction.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "emulator/isa/insn.h"
#include "emulator/machine/cluster.h"
#include "emulator/machine/launch.h"
#include "emulator/machine/warp.h"
#include "emulator/observe/finding.h"
#include "emulator/observe/observer.h"

namespace ptxemu {

struct Exec {
  uint32_t mask = 0;  // lanes that execute, never 0
  std::byte* registers = nullptr;
  Group* group = nullptr;
  Warp* warp = nullptr;
  Cta* cta = nullptr;
  Cluster* cluster = nullptr;
  Launch* launch = nullptr;
  Observer* observer = nullptr;   // null when nothing observes
  const uint32_t* ran = nullptr;  // instructions of the warp's turn before this one

  // The 32 lanes of a slot, N values T each.
  template <class T, int N = 1>
  T* lanes(Slot slot) const {
    check_slot(slot, 32 * N * sizeof(T));
    return reinterpret_cast<T*>(registers + slot);
  }
  // The bytes of a slot, `bytes` of them.
  std::byte* slot_bytes(Slot slot, size_t bytes) const {
    check_slot(slot, bytes);
    return registers + slot;
  }
  uint32_t predicate(Slot slot) const {
    return *reinterpret_cast<uint32_t*>(slot_bytes(slot, sizeof(uint32_t)));
  }
  // Lanes of the group that its guard lets execute the instruction.
  uint32_t guarded_mask(const Insn& insn) const {
    if (insn.guard == kNoSlot) return group->mask;
    const uint32_t p = predicate(insn.guard);
    return group->mask & (insn.guard_negated ? ~p : p);
  }
  void set_predicate(Slot slot, uint32_t value) const {
    auto* p = reinterpret_cast<uint32_t*>(slot_bytes(slot, sizeof(uint32_t)));
    *p = (*p & ~mask) | (value & mask);
  }
  // In builds that check slots: throws std::logic_error unless the function has a slot there that
  // is at least so long. A handler that works on a type which its decoder let through unread would
  // write over its neighbours.
  void check_slot([[maybe_unused]] Slot slot, [[maybe_unused]] size_t bytes) const {
#ifdef PTXEMU_CHECK_SLOTS
    require_slot(slot, bytes);
#endif
  }
  void require_slot(Slot slot, size_t bytes) const;
  // Tells the observer of an event of this instruction, if there is one:
  // exec.tell(&Observer::fence, insn, fence).
  template <class... P>
  void tell(void (Observer::*event)(const Exec&, const Insn&, P...), const Insn& insn,
            std::type_identity_t<P>... what) const {
    if (observer != nullptr) (observer->*event)(*this, insn, what...);
  }
  int first_lane() const { return std::countr_zero(mask); }
  Frame& frame() const { return *group->frame; }
  // Tells this execution of the statement from every other (Finding::statement).
  uint64_t statement() const {
    return ran == nullptr ? 0 : (cluster->index << 40 | (cluster->instructions + *ran + 1)) << 1;
  }

  // d[i] = f(i) for the lanes of mask.
  template <class T, class F>
  void each(T* d, F f) const {
    if (mask == ~0u) {
      for (int i = 0; i < 32; ++i) d[i] = f(i);
    } else {
      for (uint32_t m = mask; m != 0; m &= m - 1) {
        int i = std::countr_zero(m);
        d[i] = f(i);
      }
    }
  }
  template <class F>
  void for_lanes(F f) const {
    for (uint32_t m = mask; m != 0; m &= m - 1) f(std::countr_zero(m));
  }

  // Blocks the group; the handler runs again when it is scheduled. Returns kBlocked.
  Flow block(Wait::Kind kind, uint64_t object = 0, uint64_t value = 0) const {
    group->wait.kind = kind;
    group->wait.object = object;
    group->wait.value = value;
    return Flow::kBlocked;
  }
  // True when a previous try of this same instruction blocked with `kind`.
  bool resumed(Wait::Kind kind) const { return group->wait.kind == kind; }

  // For .sync instructions with a member mask: true when every member lane that has not exited is
  // here, or of bar.warp.sync at any other; mask is then all of them, and the groups that waited go
  // on behind what they waited at.
  // False: return block(kWarpSync, member_mask). Throws Trap when a lane of mask is no member.
  bool gather(uint32_t member_mask, const Insn& insn);
  // For .aligned instructions: reports a finding unless all lanes of the warp that have not exited
  // are in mask.
  void require_converged(const Insn& insn) const;
};

// --- Addresses (machine/address.cc) -----------------------------------------------------------
enum class AccessKind : uint8_t { kRead, kWrite, kAtomic };

// Where an address of lane `lane` lies on the host; checks bounds and alignment to `bytes` (a power
// of two; pass align for others) and throws Trap{"out-of-bounds"} or {"misaligned"}, which name the
// address and what lies near it.
std::byte* resolve(const Exec& exec, int lane, Space space, uint64_t address, uint32_t bytes,
                   AccessKind kind, uint32_t align = 0);
// A generic address to a narrower space: kGlobal, kShared(Cluster), kLocal, kParam.
Space space_of(uint64_t generic_address);
// Whether an address can be of shared memory: a generic one of another window, or one of global
// memory, is not, whatever its low bits say.
inline bool is_shared_address(uint64_t address) {
  const uint64_t window = address & kWindowMask;
  return window == 0 || window == kSharedWindow;
}
// A shared address (rank << 24 | offset, or a generic one of the shared window) to the CTA that
// owns it. Of kShared (.shared::cta) those without rank bits mean the executing CTA; else, as of
// .shared::cluster, they mean rank 0. Throws Trap when it is outside the cluster or the CTA's
// memory.
struct SharedLocation {
  Cta* cta;
  uint32_t offset;
  std::byte* host() const { return cta->shared + offset; }
};
SharedLocation locate_shared(const Exec& exec, uint64_t address, uint32_t bytes, Space space);
// Base of an Address operand for one lane, as 64 bits; an address of 32 bits wraps.
inline uint64_t lane_address(const Exec& exec, Slot base, bool wide, int64_t offset, int lane) {
  if (wide) return exec.lanes<uint64_t>(base)[lane] + static_cast<uint64_t>(offset);
  return exec.lanes<uint32_t>(base)[lane] + static_cast<uint32_t>(offset);
}

}  // namespace ptxemu
