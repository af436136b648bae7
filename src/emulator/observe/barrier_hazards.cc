// What barriers pass on: mbarriers, named barriers, the cluster's; and setmaxnreg, which is one of
// a warpgroup ("Parallel Synchronization and Communication Instructions", PTX ISA 9.7.13).
#include <fmt/format.h>

#include <algorithm>

#include "emulator/machine/cluster.h"
#include "emulator/machine/exec.h"
#include "emulator/observe/hazards.h"
#include "emulator/observe/waiters.h"

namespace ptxemu {

// --- mbarrier: initialisation and use ---

ClusterHazards::Mbarrier& ClusterHazards::mbarrier(const Cta& cta, uint32_t offset) {
  const uint64_t key = uint64_t{cta.rank} << 32 | offset;
  auto [found, is_new] = mbarriers_.try_emplace(key);
  if (is_new) {
    found->second.component = components_++;
    found->second.seen.resize(warps_.size());
  }
  return found->second;
}

void ClusterHazards::mbarrier_init(const Exec& exec, const Insn& insn, Cta& cta, uint32_t offset) {
  const uint32_t agent = exec.warp->agent;
  Mbarrier& barrier = mbarrier(cta, offset);
  barrier.line = insn.line;
  barrier.init = {agent, warps_[agent].generic.at(agent)};
  barrier.knows_init.assign(warps_.size(), false);
  barrier.knows_init[agent] = true;
  barrier.observed = barrier.phases;
  mbarrier_inval(cta, offset);
  settle_second_stores();
  at_ = &insn;
  Asker asker{&warps_[agent], agent, nullptr};
  Touch now;
  now.who = Who::warp(agent, barrier.init.value);
  now.statement = insn.statement;
  touch_region(now, asker,
               {.space = Region::Space::kShared, .cta = &cta, .begin = offset, .bytes = 8}, true);
  for (uint32_t word = 0; word < 2; ++word)
    shared_shadow(cta).cell(offset / 4 + word).mbarrier = true;
}

void ClusterHazards::mbarrier_inval(Cta& cta, uint32_t offset) {
  for (uint32_t word = 0; word < 2; ++word)
    shared_shadow(cta).cell(offset / 4 + word).mbarrier = false;
}

// Whoever uses a barrier must know of its initialisation.
bool ClusterHazards::knows_init(Mbarrier& barrier, uint32_t agent, const Knowledge& knows) {
  if (barrier.knows_init.empty() || barrier.knows_init[agent]) return true;
  const auto [warp, epoch] = barrier.init;
  barrier.knows_init[agent] = knows.generic.at(warp) >= epoch || knows.shared.at(warp) >= epoch ||
                              knows.inits.at(warp) >= epoch;
  return barrier.knows_init[agent];
}

namespace {

std::string unordered_init(std::string_view user, uint32_t line) {
  return fmt::format(
      "nothing orders this use of the mbarrier by {} after its mbarrier.init at line {}: a barrier "
      "of the CTA must come between, and for another CTA fence.mbarrier_init and one of the "
      "cluster",
      user, line);
}

}  // namespace

void ClusterHazards::mbarrier_used(const Exec& exec, const Insn& insn, Cta& cta, uint32_t offset) {
  if (&cta != exec.cta) check_peer(exec, insn, cta);
  const uint32_t agent = exec.warp->agent;
  Mbarrier& barrier = mbarrier(cta, offset);
  if (knows_init(barrier, agent, warps_[agent])) return;
  barrier.knows_init[agent] = true;
  launch_.report(exec, insn, Severity::kError, "mbarrier-race",
                 unordered_init("a thread", barrier.line), name_shared(*launch_.code, offset));
}

// --- mbarrier: phases ---

// "At least one test_wait or try_wait must return True before an arrive-on operation in the
// subsequent phase."
void ClusterHazards::check_observed(const Mbarrier& barrier, Finding finding) {
  if (barrier.observed >= barrier.phases) return;
  finding.rule = "phase-unobserved";
  finding.severity = Severity::kFormal;
  finding.message =
      fmt::format("an arrival in phase {} of the mbarrier, while no wait for phase {} has passed",
                  barrier.phases, barrier.phases - 1);
  launch_.report(std::move(finding));
}

void ClusterHazards::mbarrier_arrive(const Exec& exec, const Insn& insn, Cta& cta, uint32_t offset,
                                     const ArriveOrder& order) {
  const uint32_t agent = exec.warp->agent;
  const bool remote = &cta != exec.cta;
  Mbarrier& barrier = mbarrier(cta, offset);
  if (barrier.observed < barrier.phases) check_observed(barrier, finding_at(exec, insn));
  if (!order.releases) {
    const auto& fenced = fenced_[agent][remote ? 1 : 0];
    if (fenced != nullptr && (!remote || order.scope >= Scope::kCluster)) {
      barrier.signals.remote |= remote;
      barrier.gathering.join(*fenced);
    }
    return;
  }
  if (remote && order.scope == Scope::kCta) {
    launch_.report(exec, insn, Severity::kFormal, "narrow-scope",
                   fmt::format("an arrival of scope .cta at the mbarrier of CTA rank {}: it orders "
                               "nothing for that CTA's threads, .cluster would",
                               cta.rank));
  }
  barrier.signals.remote |= remote;
  barrier.gathering.join(warps_[agent]);
  step(agent);
}

void ClusterHazards::mbarrier_async_arrive(const AsyncOp& op, Cta& cta, uint32_t offset,
                                           bool arrives) {
  check_peer(op, cta, true);
  Mbarrier& barrier = mbarrier(cta, offset);
  OpRecord& r = record(op);
  if (!knows_init(barrier, op.agent, *r.at_issue)) {
    barrier.knows_init[op.agent] = true;
    launch_.report(
        found_by(op, cta, "mbarrier-race", unordered_init(name_of(op.kind), barrier.line)));
  }
  if (arrives && barrier.observed < barrier.phases)
    check_observed(barrier, found_by(op, cta, {}, {}));
  barrier.gathering.join(*r.at_issue);
  // st.async stores as a thread does, in the generic proxy; copies and commits of another CTA are
  // awaited at scope .cta by kernels that work (CUTLASS's pairs).
  barrier.signals.remote |= op.kind == EngineKind::kRemoteStore && op.cta_rank != cta.rank;
  const Point point{barrier.component, barrier.phases + 1};
  r.done.push_back(point);
  if (op.kind == EngineKind::kTensorCore) {
    queues_[op.queue].commits.push_back({r.sequence, r.agent, point});
  }
}

void ClusterHazards::mbarrier_follows(Cta& cta, uint32_t offset, uint64_t op) {
  if (op == 0 || !ops_.has(op - 1)) return;
  Mbarrier& barrier = mbarrier(cta, offset);
  OpRecord& r = ops_[op - 1];
  // What arrives knows as much as its warp did at the issue of a copy that has finished.
  if (r.at_issue != nullptr) barrier.gathering.join(*r.at_issue);
  r.done.push_back({barrier.component, barrier.phases + 1});
}

void ClusterHazards::mbarrier_phase(Cta& cta, uint32_t offset) {
  Mbarrier& barrier = mbarrier(cta, offset);
  ++barrier.phases;
  barrier.gathering.generic.set(barrier.component, barrier.phases);
  barrier.completed = barrier.gathering;
  barrier.completed_signals = barrier.signals;
  barrier.signals = {};
}

void ClusterHazards::mbarrier_observed(const Exec& exec, const Insn& insn, Cta& cta,
                                       uint32_t offset, const WaitOrder& order) {
  const uint32_t agent = exec.warp->agent;
  Mbarrier& barrier = mbarrier(cta, offset);
  const bool remote = barrier.completed_signals.remote;
  if (order.acquires) {
    of_warp(agent).join(barrier.completed);
  } else {
    const Scope writers = remote ? Scope::kCluster : Scope::kCta;
    awaiting_fence_[agent][static_cast<size_t>(writers)].knowledge.join(barrier.completed);
  }
  if (remote && order.scope == Scope::kCta) {
    launch_.report(exec, insn, Severity::kFormal, "narrow-scope",
                   order.acquires
                       ? "a wait of scope .cta for a phase in which threads of another CTA have "
                         "arrived: it orders nothing after them, .cluster would"
                       : "a relaxed wait of scope .cta for a phase in which threads of another CTA "
                         "have arrived: no fence orders anything after them, .cluster would");
  }
  barrier.observed = barrier.phases;
  uint32_t& seen = barrier.seen[agent];
  if (barrier.phases >= seen + 3 && (seen & 1) == order.parity && seen != 0) {
    launch_.report(exec, insn, Severity::kFormal, "phase-aliased",
                   fmt::format("phase {} of this parity is awaited, and phase {} is over too: a "
                               "parity can't tell them apart",
                               seen, seen + 2));
  }
  seen = barrier.phases;
}

void ClusterHazards::mbarrier_waits(const Exec& exec, const Insn& insn, Cta& cta, uint32_t offset,
                                    uint32_t parity) {
  const Mbarrier& barrier = mbarrier(cta, offset);
  const uint32_t seen = barrier.seen[exec.warp->agent];
  if (barrier.phases < seen + 2 || (seen & 1) != parity) return;
  launch_.report(exec, insn, Severity::kFormal, "phase-aliased",
                 fmt::format("phase {}, the next that this warp has not seen, is over, but so is "
                             "phase {}: the wait goes on until phase {}",
                             seen, seen + 1, seen + 2));
}

void ClusterHazards::mbarrier_overtaken(const Exec& exec, const Insn& insn, Cta& cta,
                                        uint32_t offset) {
  const Mbarrier& barrier = mbarrier(cta, offset);
  launch_.report(exec, insn, Severity::kFormal, "phase-aliased",
                 fmt::format("the awaited phase was followed by another (phase {} is over) before "
                             "this waiter was sure to have seen it",
                             barrier.phases - 1));
}

// --- Named barriers and the cluster's ---

// The machine comes to every warp before another has passed so many phases of one barrier.
constexpr uint64_t kPhasesKept = 64;

void ClusterHazards::forget_phase_before(uint64_t key) {
  constexpr uint64_t kGeneration = (uint64_t{1} << 48) - 1;
  if ((key & kGeneration) < kPhasesKept) return;
  barriers_.erase(key - kPhasesKept);
  relaxed_arrivals_.erase(key - kPhasesKept);
}

void ClusterHazards::barrier_arrive(const Exec& exec, uint64_t key) {
  forget_phase_before(key);
  barriers_[key].join(warps_[exec.warp->agent]);
  step(exec.warp->agent);
}

// What a relaxed arrival passes on is what a fence before it covers, and that its CTA runs.
void ClusterHazards::cluster_arrive(const Exec& exec, uint64_t key, bool releases) {
  if (releases) return barrier_arrive(exec, key);
  const uint32_t agent = exec.warp->agent;
  forget_phase_before(key);
  Knowledge& gathering = barriers_[key];
  gathering.running |= warps_[agent].running;
  const auto& fenced = fenced_[agent][static_cast<size_t>(Scope::kCluster)];
  if (fenced != nullptr) gathering.join(*fenced);
  relaxed_arrivals_[key].join(warps_[agent]);
  step(agent);
}

void ClusterHazards::barrier_passed(const Exec& exec, uint64_t key) {
  const uint32_t agent = exec.warp->agent;
  of_warp(agent).join(barriers_[key]);
  const auto relaxed = relaxed_arrivals_.find(key);
  if (relaxed != relaxed_arrivals_.end()) relaxed_barriers_[agent].join(relaxed->second);
}

// --- setmaxnreg ---

// "Must be executed by all warps in a warpgroup", which must have met before the next one. One that
// asks for the number that the warp has already moves no register: cuDNN's sm90 forward has such a
// pair of setmaxnreg.dec without a barrier between.
void ClusterHazards::setmaxnreg(const Exec& exec, const Insn& insn, uint32_t registers) {
  const uint32_t agent = exec.warp->agent;
  auto& moves = register_moves_[agent];
  const uint32_t first = agent - exec.warp->index % 4;
  const uint32_t end = std::min(first + 4, agent - exec.warp->index + warps_per_cta());
  for (uint32_t other = first; other < end; ++other) {
    const auto& others = register_moves_[other];
    if (other == agent) continue;
    if (!moves.empty()) {
      const bool met = others.size() >= moves.size() &&
                       warps_[agent].generic.at(other) >= others[moves.size() - 1].at.value;
      if (!met) {
        const bool moves_none = registers == moves.back().registers;
        launch_.report(exec, insn, moves_none ? Severity::kFormal : Severity::kError,
                       "setmaxnreg-warpgroup",
                       fmt::format("a second setmaxnreg, while nothing says that warp {} of the "
                                   "warpgroup has executed the one at line {}",
                                   other % warps_per_cta(), moves.back().line));
      }
    }
    if (others.size() > moves.size() && others[moves.size()].registers != registers) {
      launch_.report(exec, insn, Severity::kFormal, "setmaxnreg-warpgroup",
                     fmt::format("{} registers, where warp {} of the same warpgroup asks for {} at "
                                 "line {}: they must execute the same setmaxnreg",
                                 registers, other % warps_per_cta(), others[moves.size()].registers,
                                 others[moves.size()].line));
    }
  }
  moves.push_back({{agent, warps_[agent].generic.at(agent)}, registers, insn.line});
}

// At the CTA's end.
void ClusterHazards::check_register_moves(const Exec& exec, const Insn& insn) {
  const uint32_t begin = exec.cta->rank * warps_per_cta();
  for (uint32_t agent = begin; agent < begin + warps_per_cta(); ++agent) {
    const uint32_t first = begin + (agent - begin) / 4 * 4;
    const auto &own = register_moves_[agent], &firsts = register_moves_[first];
    if (own.size() == firsts.size()) continue;
    Finding finding = finding_at(exec, insn);
    finding.rule = "setmaxnreg-warpgroup";
    finding.warp = static_cast<int32_t>(agent - begin);
    finding.ptx_line = (own.size() > firsts.size() ? own : firsts).back().line;
    finding.message = fmt::format(
        "warps {} and {} of one warpgroup execute setmaxnreg {} and {} times: all of its warps "
        "must",
        first - begin, agent - begin, firsts.size(), own.size());
    launch_.report(std::move(finding));
  }
}

}  // namespace ptxemu
