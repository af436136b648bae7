// How lanes of a warp part, meet, call, return and exit (machine/simt.cc), and how a group runs.
#pragma once

#include <memory>

#include "emulator/machine/exec.h"

namespace ptxemu {

// A frame of `function` for `warp`: storage, constants, special registers;
// local_base: where its .local variables start in a lane's local memory. Throws
// Trap{"limit"} when the launch's frames take more than its options allow.
std::shared_ptr<Frame> make_frame(const CodeFunction& function, const Warp& warp, Launch& launch,
                                  uint32_t local_base = 0);

// What a frame of `function` takes of them.
uint64_t frame_bytes(const CodeFunction& function);

// Lanes `taken` of exec.group go to `target`, the others go on after `insn`; they meet again at
// insn.reconverge. Sets the group's pc: the handler returns Flow::kJump.
void diverge(const Exec& exec, const Insn& insn, uint32_t taken, uint32_t target);
// The lanes of exec.mask leave the kernel. The handler returns Flow::kExit.
void exit_lanes(const Exec& exec, const Insn& insn);
// The lanes of the group enter `callee`, to come back after `insn`.
void enter(const Exec& exec, const Insn& insn, std::shared_ptr<Frame> callee);
// The whole group goes back to its caller's frame.
void leave(const Exec& exec);

// Runs one group for at most `quantum` instructions. Returns how many it ran; *alive is false when
// the group is no longer in warp.groups[index].
uint32_t run_group(Cluster& cluster, Warp& warp, size_t index, uint32_t quantum, bool* alive);

// Lets a group that waits at a join go on alone; false when none waits.
bool release_join(Warp& warp);

// Ends the launch: thrown after a Trap has become a finding.
struct LaunchStopped {};

}  // namespace ptxemu
