#include "emulator/machine/simt.h"

#include <algorithm>
#include <cstring>

#include "emulator/machine/barriers.h"

namespace ptxemu {

namespace {

uint64_t special_value(SpecialRegister which, const Warp& warp, const Launch& launch,
                       uint32_t lane) {
  const Cta& cta = *warp.cta;
  const Cluster& cluster = *cta.cluster;
  const LaunchShape& shape = launch.shape;
  const uint32_t thread = warp.index * 32 + lane;
  const uint32_t* block = shape.block;
  const uint32_t per_cta = block[0] * block[1] * block[2];
  auto axis = [which](SpecialRegister x) {
    return static_cast<uint32_t>(which) - static_cast<uint32_t>(x);
  };
  using S = SpecialRegister;
  switch (which) {
    case S::kTidX: return thread % block[0];
    case S::kTidY: return thread / block[0] % block[1];
    case S::kTidZ: return thread / (block[0] * block[1]);
    case S::kNtidX:
    case S::kNtidY:
    case S::kNtidZ: return block[axis(S::kNtidX)];
    case S::kLaneid: return lane;
    case S::kWarpid: return warp.index;
    case S::kNwarpid: return (per_cta + 31) / 32;
    case S::kCtaidX:
    case S::kCtaidY:
    case S::kCtaidZ: return cta.id[axis(S::kCtaidX)];
    case S::kNctaidX:
    case S::kNctaidY:
    case S::kNctaidZ: return shape.grid[axis(S::kNctaidX)];
    case S::kSmid:
      return (cluster.index * launch.ctas_per_cluster + cta.rank) %
             launch.options.device->multiprocessors;
    case S::kNsmid: return launch.options.device->multiprocessors;
    case S::kGridid: return 1;
    case S::kClusteridX:
    case S::kClusteridY:
    case S::kClusteridZ: return cluster.id[axis(S::kClusteridX)];
    case S::kNclusteridX:
    case S::kNclusteridY:
    case S::kNclusteridZ:
      return shape.grid[axis(S::kNclusteridX)] / shape.cluster[axis(S::kNclusteridX)];
    case S::kClusterCtaidX:
    case S::kClusterCtaidY:
    case S::kClusterCtaidZ:
      return cta.id[axis(S::kClusterCtaidX)] % shape.cluster[axis(S::kClusterCtaidX)];
    case S::kClusterNctaidX:
    case S::kClusterNctaidY:
    case S::kClusterNctaidZ: return shape.cluster[axis(S::kClusterNctaidX)];
    case S::kClusterCtarank: return cta.rank;
    case S::kClusterNctarank: return launch.ctas_per_cluster;
    case S::kIsExplicitCluster: return launch.ctas_per_cluster > 1;
    case S::kLanemaskEq: return 1u << lane;
    case S::kLanemaskLe: return (2ull << lane) - 1;
    case S::kLanemaskLt: return (1ull << lane) - 1;
    case S::kLanemaskGe: return ~((1u << lane) - 1) & 0xffffffffu;
    case S::kLanemaskGt: return ~((2ull << lane) - 1) & 0xffffffffu;
    case S::kDynamicSmemSize: return shape.dynamic_shared_bytes;
    case S::kTotalSmemSize:
    case S::kAggrSmemSize: return cta.shared_bytes;
    case S::kReservedSmemBegin: return 0;
    case S::kReservedSmemEnd: return kReservedShared;
    default: return 0;  // those that change are read by a mov of their own
  }
}

void fill_constant(const Frame& frame, const ConstantSlot& constant, const Warp& warp,
                   const Launch& launch) {
  std::byte* registers = frame.registers;
  if (constant.bits == 1) {
    const uint32_t bits = constant.value != 0 ? ~0u : 0u;
    std::memcpy(registers + constant.slot, &bits, 4);
    return;
  }
  const uint32_t bytes = static_cast<uint32_t>(std::max(constant.bits, 16)) / 8;
  const uint64_t rank = uint64_t{warp.cta->rank} << kRankShift;
  for (uint32_t lane = 0; lane < 32; ++lane) {
    uint64_t value = constant.value;
    switch (constant.base) {
      case ConstantSlot::Base::kNone: break;
      case ConstantSlot::Base::kShared: value += rank; break;
      case ConstantSlot::Base::kDynamicShared:
        value += rank + launch.code->dynamic_shared_begin();
        break;
      case ConstantSlot::Base::kLocal: value += frame.local_base; break;
      case ConstantSlot::Base::kSpecial:
        value = special_value(static_cast<SpecialRegister>(constant.value), warp, launch, lane);
        break;
    }
    const uint64_t wide[2] = {value, 0};
    std::memcpy(registers + constant.slot + lane * bytes, wide, bytes);
  }
}

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

// True when the instruction must wait for registers on their way.
bool stalls(const Exec& exec, const Insn& insn) {
  const Frame& frame = *exec.group->frame;
  if (frame.function->use_begin.size() <= insn.pc + 1) return false;
  auto& ranges = exec.warp->pending.ranges;
  if (exec.observer != nullptr && exec.warp->pending.watched()) {
    exec.observer->watched_instruction(exec, insn);
  }
  const bool is_wgmma = insn.row != nullptr && insn.row->mnemonic.starts_with("wgmma");
  uint64_t touched = 0;
  for (const auto& range : ranges) {
    if (range.frame != &frame || (!range.stalls && (exec.observer == nullptr || is_wgmma)))
      continue;
    if (!touches(*frame.function, insn.pc, range.begin, range.end)) continue;
    if (range.stalls) return true;
    touched = range.op;
  }
  if (touched == 0) return false;
  exec.observer->pending_register_touched(exec, insn, touched);
  std::erase_if(ranges, [touched](const auto& range) { return range.op == touched; });
  return false;
}

// Where the instructions of the group's function are counted; null when they are not.
uint64_t* counters(const Launch& launch, Warp& warp, const Group& group) {
  if (!launch.options.count_lines) return nullptr;
  return warp.state<InstructionCounts>().of(*group.frame->function);
}

}  // namespace

std::shared_ptr<Frame> make_frame(const CodeFunction& function, const Warp& warp,
                                  const Launch& launch, uint32_t local_base) {
  auto frame = std::make_shared<Frame>();
  frame->function = &function;
  frame->local_base = local_base;
  frame->storage.reset(new std::byte[function.register_bytes + 64]);
  auto address = reinterpret_cast<uintptr_t>(frame->storage.get());
  frame->registers = frame->storage.get() + (64 - address % 64) % 64;
  std::memset(frame->registers, 0xff, function.register_bytes);
  for (const ConstantSlot& constant : function.constants) {
    fill_constant(*frame, constant, warp, launch);
  }
  if (function.local_bytes != 0) {
    frame->local.reset(new std::byte[size_t{32} * function.local_bytes]);
    std::memset(frame->local.get(), 0xff, size_t{32} * function.local_bytes);
  }
  if (function.param_bytes != 0) {
    frame->params.reset(new std::byte[size_t{32} * function.param_bytes]());
  }
  return frame;
}

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
  if (warp.done()) {
    --exec.cta->live_warps;
    complete_named_barriers(*exec.cta);
    if (exec.observer != nullptr) exec.observer->warp_exit(exec, insn);
  }
}

void enter(const Exec& exec, const Insn& insn, std::shared_ptr<Frame> callee) {
  Group& group = *exec.group;
  callee->caller = group.frame;
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
  Exec exec{.group = &group,
            .warp = &warp,
            .cta = warp.cta,
            .cluster = &cluster,
            .launch = &launch,
            .observer = launch.observer.get()};
  const Insn* code = group.frame->function->code.data();
  exec.registers = group.frame->registers;
  uint64_t* counts = counters(launch, warp, group);
  uint32_t ran = 0;
  uint64_t moves = 0;
  const Insn* at = nullptr;
  *alive = true;
  try {
    while (ran < quantum) {
      if (group.pc == group.join_pc) {
        park(warp, index);
        *alive = false;
        break;
      }
      const Insn& insn = code[group.pc];
      at = &insn;
      exec.mask = group.mask;
      if (insn.guard != kNoSlot) {
        const uint32_t p = exec.predicate(insn.guard);
        exec.mask &= insn.guard_negated ? ~p : p;
        if (exec.mask == 0) {
          if (warp.pending.watched() && exec.observer != nullptr) {
            exec.observer->watched_instruction(exec, insn);
          }
          if (counts != nullptr) ++counts[insn.pc];
          ++group.pc;
          ++ran;
          continue;
        }
      }
      if (!warp.pending.ranges.empty() && stalls(exec, insn)) {
        exec.block(Wait::Kind::kRegisters);
        break;
      }
      if (group.wait.kind == Wait::Kind::kRegisters) group.wait.kind = Wait::Kind::kNone;
      const Flow flow = insn.run(exec, insn);
      if (flow == Flow::kBlocked) break;
      if (counts != nullptr) ++counts[insn.pc];
      if (flow == Flow::kNext) {
        ++group.pc;
      } else if (flow == Flow::kExit) {
        ++ran;
        if (group.mask == 0) {
          auto self = std::find_if(warp.groups.begin(), warp.groups.end(),
                                   [&](const auto& g) { return g.get() == &group; });
          warp.groups.erase(self);
          *alive = false;
          break;
        }
        ++group.pc;
      } else {
        code = group.frame->function->code.data();
        exec.registers = group.frame->registers;
        counts = counters(launch, warp, group);
      }
      group.wait.kind = Wait::Kind::kNone;
      ++ran;
      moves += insn.is_move;
    }
  } catch (Trap& trap) {
    launch.report(exec, *at, Severity::kError, trap.rule, trap.message, trap.object, trap.lane);
    launch.status = Status::kTrap;
    throw LaunchStopped{};
  }
  if (launch.trace != nullptr && ran != 0) {
    launch.trace->ran(warp, cluster.instructions, ran, at->line,
                      *alive && group.wait.kind != Wait::Kind::kNone);
  }
  warp.instructions += ran;
  cluster.instructions += ran;
  launch.counters.warp_instructions += ran;
  launch.counters.moves += moves;
  return ran;
}

}  // namespace ptxemu
