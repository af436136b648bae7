#include "emulator/machine/simt.h"

#include <algorithm>

#include "emulator/machine/barriers.h"
#include "emulator/machine/wgmma_op.h"

namespace ptxemu {

namespace {

// Moves the lanes that wait at `join` back among the groups.
void resume(Warp& warp, Join& join) {
  auto group = std::make_unique<Group>();
  group->mask = join.arrived;
  group->pc = join.pc;
  group->frame = join.frame_owner;
  group->join = join.outer;
  if (join.outer != nullptr && join.outer->frame == join.frame) group->join_pc = join.outer->pc;
  join.expected &= ~join.arrived;
  join.arrived = 0;
  warp.groups.push_back(std::move(group));
}

// Resumes every join whose lanes have all come or exited, and forgets those that nobody is left
// for.
void settle_joins(Warp& warp) {
  for (size_t i = 0; i < warp.joins.size();) {
    Join& join = *warp.joins[i];
    if (join.arrived == join.expected) {
      std::shared_ptr<Join> keep = warp.joins[i];
      warp.joins.erase(warp.joins.begin() + static_cast<ptrdiff_t>(i));
      if (join.arrived != 0) resume(warp, join);
    } else {
      ++i;
    }
  }
}

// The group has come to its join: it waits there. It leaves warp.groups.
void park(Warp& warp, size_t index) {
  std::unique_ptr<Group> group = std::move(warp.groups[index]);
  warp.groups.erase(warp.groups.begin() + static_cast<ptrdiff_t>(index));
  group->join->arrived |= group->mask;
  settle_joins(warp);
}

bool touches(const CodeFunction& function, uint32_t pc, Slot begin, Slot end) {
  for (uint32_t i = function.use_begin[pc]; i < function.use_begin[pc + 1]; ++i) {
    const SlotUse& use = function.uses[i];
    if (use.slot < end && use.slot + use.bytes > begin) return true;
  }
  return false;
}

// Products of one shape may follow on the same accumulators without a wait, and several may read
// one A ("wgmma.mma_async", PTX ISA 9.7.15.5.2); everything else must wait for the range.
bool follows_in_order(const PendingRegisters::Range& range, const Insn& insn) {
  const auto& form = insn.form<WgmmaForm>();
  const auto in_range = [&](Slot slot) { return slot >= range.begin && slot < range.end; };
  const Slot* d_end = insn.list + form.d_registers;
  if (range.shape == 0) return std::none_of(insn.list, d_end, in_range);
  return range.shape == form.shape() && std::none_of(d_end, insn.list + insn.list_size, in_range);
}

// What an instruction reads and writes is known for those of the text: the return that ends a
// function touches nothing.
bool is_of_text(const Exec& exec, const Insn& insn) {
  return insn.pc + 1 < exec.group->frame->function->use_begin.size();
}

bool touches_pending(const Exec& exec, const Insn& insn, const PendingRegisters::Range& range) {
  const Frame& frame = *exec.group->frame;
  if (range.frame != &frame) return false;
  if (kind_of(insn) == InstructionKind::kWgmma && follows_in_order(range, insn)) return false;
  return touches(*frame.function, insn.pc, range.begin, range.end);
}

// True when the instruction must wait for registers on their way.
bool stalls(const Exec& exec, const Insn& insn) {
  const auto& ranges = exec.warp->pending.ranges;
  return std::any_of(ranges.begin(), ranges.end(), [&](const auto& range) {
    return range.stalls && touches_pending(exec, insn, range);
  });
}

// Tells the observer of registers that the instruction touches before anyone has waited for them,
// once for each operation.
void tell_of_pending(const Exec& exec, const Insn& insn) {
  auto& ranges = exec.warp->pending.ranges;
  uint64_t touched = 0;
  for (const auto& range : ranges) {
    if (!range.stalls && touches_pending(exec, insn, range)) touched = range.op;
  }
  if (touched == 0) return;
  exec.observer->pending_register_touched(exec, insn, touched);
  std::erase_if(ranges, [touched](const auto& range) { return range.op == touched; });
}

// Before an instruction runs: the observer sees it where it watches the warp; false when it must
// wait for its registers.
bool registers_ready(const Exec& exec, const Insn& insn) {
  Warp& warp = *exec.warp;
  if (!is_of_text(exec, insn)) return true;
  if (warp.watched) exec.observer->watched_instruction(exec, insn);
  if (warp.pending.ranges.empty()) return true;
  if (stalls(exec, insn)) return false;
  if (exec.observer != nullptr) tell_of_pending(exec, insn);
  return true;
}

// Where the instructions of the group's function are counted; null when they are not.
uint64_t* counters(const Launch& launch, Warp& warp, const Group& group) {
  if (!launch.options.count_lines) return nullptr;
  return warp.state<InstructionCounts>().of(*group.frame->function);
}

// What a group did in one turn.
struct Turn {
  uint32_t ran = 0;
  uint64_t moves = 0;
  const Insn* at = nullptr;  // the last one
};

// All lanes of the group have exited: it leaves the warp.
void drop_group(Warp& warp, const Group& group) {
  std::erase_if(warp.groups, [&](const auto& other) { return other.get() == &group; });
}

// Executes up to `quantum` instructions; *alive becomes false when the group has left the warp.
void run_turn(Exec& exec, size_t index, uint32_t quantum, Turn& turn, bool* alive) {
  Group& group = *exec.group;
  Warp& warp = *exec.warp;
  const Insn* code = group.frame->function->code.data();
  exec.registers = group.frame->registers;
  uint64_t* counts = counters(*exec.launch, warp, group);
  while (turn.ran < quantum && !exec.cluster->engines.full()) {
    if (group.pc == group.join_pc) {
      park(warp, index);
      *alive = false;
      return;
    }
    const Insn& insn = code[group.pc];
    turn.at = &insn;
    exec.mask = exec.guarded_mask(insn);
    if (exec.mask == 0) {
      if (warp.watched) exec.observer->watched_instruction(exec, insn);
      if (counts != nullptr) ++counts[insn.pc];
      ++group.pc;
      ++turn.ran;
      continue;
    }
    if ((warp.watched || !warp.pending.ranges.empty()) && !registers_ready(exec, insn)) {
      exec.block(Wait::Kind::kRegisters);
      return;
    }
    if (group.wait.kind == Wait::Kind::kRegisters) group.wait.kind = Wait::Kind::kNone;
    const Flow flow = insn.run(exec, insn);
    if (flow == Flow::kBlocked) return;
    if (counts != nullptr) ++counts[insn.pc];
    ++turn.ran;
    if (flow == Flow::kNext) {
      ++group.pc;
    } else if (flow == Flow::kExit) {
      if (group.mask == 0) {
        drop_group(warp, group);
        *alive = false;
        return;
      }
      ++group.pc;
    } else {
      code = group.frame->function->code.data();
      exec.registers = group.frame->registers;
      counts = counters(*exec.launch, warp, group);
    }
    group.wait.kind = Wait::Kind::kNone;
    turn.moves += insn.is_move;
  }
}

}  // namespace

void diverge(const Exec& exec, const Insn& insn, uint32_t taken, uint32_t target) {
  Group& group = *exec.group;
  Warp& warp = *exec.warp;
  if (insn.reconverge != kNoPc && group.join_pc != insn.reconverge) {
    auto join = std::make_shared<Join>();
    join->pc = insn.reconverge;
    join->frame = group.frame.get();
    join->frame_owner = group.frame;
    join->expected = group.mask;
    join->outer = group.join;
    warp.joins.push_back(join);
    group.join = join;
    group.join_pc = join->pc;
  }
  auto other = std::make_unique<Group>();
  other->mask = group.mask & ~taken;
  other->pc = insn.pc + 1;
  other->join_pc = group.join_pc;
  other->frame = group.frame;
  other->join = group.join;
  group.mask = taken;
  group.pc = target;
  warp.groups.push_back(std::move(other));
}

void exit_lanes(const Exec& exec, const Insn& insn) {
  Warp& warp = *exec.warp;
  const uint32_t leaving = exec.mask;
  warp.exited |= leaving;
  exec.group->mask &= ~leaving;
  for (auto& join : warp.joins) join->expected &= ~leaving;
  settle_joins(warp);
  exec.cluster->note_progress();
  auto& barrier = exec.cluster->state<ClusterBarrier>();
  if (exec.launch->ctas_per_cluster > 1) barrier.complete_if_all(*exec.cluster);
  if (warp.done()) --exec.cta->live_warps;
  leave_named_barriers(*exec.cta, warp);
  if (warp.done()) exec.tell(&Observer::warp_exit, insn);
}

void enter(const Exec& exec, const Insn& insn, std::shared_ptr<Frame> callee) {
  Group& group = *exec.group;
  callee->caller = group.frame;
  callee->depth = group.frame->depth + 1;
  callee->return_pc = insn.pc + 1;
  callee->caller_join_pc = group.join_pc;
  group.frame = std::move(callee);
  group.join_pc = kNoPc;
  group.pc = 0;
}

void leave(const Exec& exec) {
  Group& group = *exec.group;
  std::shared_ptr<Frame> callee = group.frame;
  group.pc = callee->return_pc;
  group.join_pc = callee->caller_join_pc;
  group.frame = callee->caller;
}

bool release_join(Warp& warp) {
  for (auto& join : warp.joins) {
    if (join->arrived == 0) continue;
    resume(warp, *join);
    return true;
  }
  return false;
}

uint32_t run_group(Cluster& cluster, Warp& warp, size_t index, uint32_t quantum, bool* alive) {
  Group& group = *warp.groups[index];
  Launch& launch = cluster.launch;
  Turn turn;
  Exec exec{.group = &group,
            .warp = &warp,
            .cta = warp.cta,
            .cluster = &cluster,
            .launch = &launch,
            .observer = launch.observer.get(),
            .ran = &turn.ran};
  *alive = true;
  try {
    run_turn(exec, index, quantum, turn, alive);
  } catch (Trap& trap) {
    launch.report(exec, *turn.at, Severity::kError, trap.rule, trap.message, trap.object,
                  trap.lane);
    launch.status = Status::kTrap;
    throw LaunchStopped{};
  }
  if (launch.trace != nullptr && turn.ran != 0) {
    launch.trace->ran(warp, cluster.instructions, turn.ran, turn.at->line,
                      *alive && group.wait.kind != Wait::Kind::kNone);
    launch.check_recorded();
  }
  warp.instructions += turn.ran;
  cluster.instructions += turn.ran;
  launch.counters.warp_instructions += turn.ran;
  launch.counters.moves += turn.moves;
  return turn.ran;
}

}  // namespace ptxemu
