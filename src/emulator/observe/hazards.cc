#include "emulator/observe/hazards.h"

#include <fmt/format.h>

#include <algorithm>

#include "emulator/machine/cluster.h"
#include "emulator/machine/exec.h"
#include "emulator/observe/global_hazards.h"

namespace ptxemu {

namespace {

// Engines whose operations are known to happen in order of issue.
bool in_order(EngineKind kind) {
  return kind == EngineKind::kTensorCore || kind == EngineKind::kWgmma;
}

constexpr uint64_t kSweep = 1 << 15;  // operations

bool works_on_tensor_memory(EngineKind kind) {
  return kind == EngineKind::kTensorCore || kind == EngineKind::kTensorLoad ||
         kind == EngineKind::kTensorStore;
}

}  // namespace

bool in_async_proxy(EngineKind kind) {
  return kind != EngineKind::kCopyAsync && kind != EngineKind::kRemoteStore;
}

ClusterHazards::ClusterHazards(Launch& launch, Cluster& cluster, GlobalHazards& global)
    : launch_(launch), cluster_(cluster), global_(global), next_sweep_(kSweep) {
  size_t warps = 0;
  for (const auto& cta : cluster.ctas) warps += cta->warps.size();
  warps_.resize(warps);
  snapshots_.resize(warps);
  fenced_.resize(warps);
  awaiting_fence_.resize(warps);
  heard_.resize(warps);
  heard_sequenced_.resize(warps);
  tensor_fences_.resize(warps);
  fenced_maps_.resize(warps);
  register_moves_.resize(warps);
  wgmma_registers_.resize(warps);
  undefined_.resize(warps);
  issued_.resize(warps);
  multiplies_.resize(warps);
  relaxed_barriers_.resize(warps);
  wgmma_waiting_.resize(warps);
  wgmma_begun_.resize(warps);
  components_ = static_cast<uint32_t>(warps);
  for (uint32_t w = 0; w < warps; ++w) {
    warps_[w].generic.set(w, 1);
    warps_[w].running = 1u << w / warps_per_cta();
  }
  releases_.resize(cluster.ctas.size());
  peer_uses_.resize(warps, std::vector<PeerUse>(cluster.ctas.size()));
  shared_.resize(cluster.ctas.size());
  tensor_.resize(cluster.ctas.size());
}

uint32_t ClusterHazards::warps_per_cta() const {
  return static_cast<uint32_t>(cluster_.ctas[0]->warps.size());
}

// --- What is known ---

Knowledge& ClusterHazards::of_warp(uint32_t agent) {
  snapshots_[agent].reset();
  return warps_[agent];
}

std::shared_ptr<const Knowledge> ClusterHazards::snapshot(uint32_t agent) {
  auto& shared = snapshots_[agent];
  if (shared == nullptr) shared = std::make_shared<const Knowledge>(warps_[agent]);
  return shared;
}

void ClusterHazards::step(uint32_t agent) {
  settle_second_stores();  // before what this orders after them
  Clock& clock = of_warp(agent).generic;
  clock.set(agent, clock.at(agent) + 1);
  issued_[agent] = false;
  multiplies_[agent] = false;
}

ClusterHazards::OpRecord& ClusterHazards::record(const AsyncOp& op) {
  ops_.grow_to(op.id);
  return ops_[op.id - 1];
}

// Whether somebody has waited for it, or it has signalled what others wait for.
bool ClusterHazards::is_awaited(const OpRecord& r) const {
  if (!r.done.empty() || !r.read.empty()) return true;
  const auto queue = queues_.find(r.queue);
  if (r.kind != EngineKind::kTensorCore || queue == queues_.end()) return false;
  const auto& commits = queue->second.commits;
  return std::any_of(commits.rbegin(), commits.rend(), [&](const Commit& commit) {
    return commit.agent == r.agent && commit.sequence > r.sequence;
  });
}

// Operations that are known to be over matter while some cell names them. Findings that wait for a
// use of their product follow sums from operation to operation: nothing is forgotten beside them.
void ClusterHazards::forget_unnamed() {
  next_sweep_ = ops_.size() + std::max<uint64_t>(kSweep, global_.words() / 4);
  settle_second_stores();
  if (!undecided_.empty() || !second_stores_.empty()) return;
  std::vector<bool> named(ops_.pages());
  const auto name = [&](Who who) {
    if (who.is_op()) named[ops_.page_of(who.op_id() - 1)] = true;
  };
  const auto name_cell = [&](const Cell& cell) {
    name(cell.writer.who);
    name(cell.plain.who);
    for (size_t i = 0; i < cell.reader_count; ++i) name(cell.readers[i].who);
  };
  for (const SharedShadow& shadow : shared_) shadow.for_all(name_cell);
  for (const auto& cells : tensor_) std::for_each(cells.begin(), cells.end(), name_cell);
  global_.name_operations(cluster_.index, name);
  ops_.for_each([&](uint64_t i, const OpRecord& r) {
    if (r.at_issue != nullptr || !is_awaited(r)) named[ops_.page_of(i)] = true;
  });
  ops_.forget(named);
}

void ClusterHazards::issue(const AsyncOp& op) {
  if (op.id >= next_sweep_) forget_unnamed();
  OpRecord& r = record(op);
  r.kind = op.kind;
  r.cta_rank = op.cta_rank;
  r.warp = op.warp;
  r.agent = op.agent;
  r.insn = op.insn;
  r.function = op.function;
  r.line = op.insn != nullptr ? op.insn->line : 0;
  r.queue = op.queue;
  r.sequence = op.queue == 0 ? 0 : ++queues_[op.queue].operations;
  r.accumulator = op.accumulator;
  r.at_issue = snapshot(op.agent);
  r.epoch = r.at_issue->generic.at(op.agent);
  if (op.kind != EngineKind::kWgmma) {
    issued_[op.agent] = true;
    return;
  }
  auto& begun = wgmma_begun_[op.agent];
  if (begun.empty()) return;
  r.at_issue = std::move(begun.front());
  begun.pop_front();
}

void ClusterHazards::op_observed(const Exec& exec, uint64_t op, bool only_read) {
  if (op == 0 || !ops_.has(op - 1)) return;
  const uint32_t agent = exec.warp->agent;
  const Point point{agent, warps_[agent].generic.at(agent)};
  OpRecord& r = ops_[op - 1];
  (only_read ? r.read : r.done).push_back(point);
}

bool ClusterHazards::over(const OpRecord& earlier, const Clock& clock, bool only_read) {
  auto reached = [&](const Point& p) { return clock.at(p.component) >= p.value; };
  for (const Point& p : earlier.done) {
    if (reached(p)) return true;
  }
  if (only_read) {
    for (const Point& p : earlier.read) {
      if (reached(p)) return true;
    }
  }
  if (earlier.kind != EngineKind::kTensorCore) return false;
  const auto& commits = queues_[earlier.queue].commits;
  auto next = std::upper_bound(
      commits.begin(), commits.end(), earlier.sequence,
      [](uint64_t sequence, const Commit& commit) { return sequence < commit.sequence; });
  for (; next != commits.end(); ++next) {
    if (next->agent == earlier.agent && reached(next->point)) return true;
  }
  return false;
}

// Between tcgen05 operations of two warps: fence::after_thread_sync in the later one (after what
// told it that the earlier is over), and fence::before_thread_sync in the one that waited for its
// own load or store. A commit implies the latter ("tcgen05 Memory Consistency Model", 9.7.16.6.2).
bool ClusterHazards::has_tensor_fences(const OpRecord& earlier, const Asker& asker,
                                       bool only_read) {
  if (earlier.agent == asker.agent) return true;
  if (!over(earlier, asker.knows->tensor, only_read)) return false;
  if (earlier.kind == EngineKind::kTensorCore) return true;
  const auto& fences = tensor_fences_[earlier.agent];
  const uint32_t known =
      std::max(asker.knows->generic.at(earlier.agent), asker.knows->tensor.at(earlier.agent));
  for (const Point& p : earlier.done) {
    if (p.component != earlier.agent) continue;
    const auto fence = std::lower_bound(fences.begin(), fences.end(), p.value);
    if (fence != fences.end() && *fence <= known) return true;
  }
  return false;
}

ClusterHazards::Order ClusterHazards::order_of_op(const OpRecord& r, const Asker& asker,
                                                  bool earlier_reads) {
  if (asker.op != nullptr && (&r == asker.op || (in_order(r.kind) && r.queue == asker.op->queue))) {
    const bool overtakes = launch_.options.reorder_products && r.accumulator != 0 &&
                           asker.op->accumulator != 0 && r.accumulator != asker.op->accumulator &&
                           !over(r, asker.knows->generic, earlier_reads) &&
                           !over(r, asker.knows->tensor, earlier_reads);
    return overtakes ? Order::kMayOvertake : Order::kOrdered;
  }
  // A warp's loads and stores of tensor memory go in order: a load is over when a register that it
  // fills has been used, which known-good kernels rely on before they store over what they loaded.
  if (asker.op != nullptr && r.kind == EngineKind::kTensorLoad && r.agent == asker.agent &&
      asker.op->kind == EngineKind::kTensorStore) {
    return Order::kOrdered;
  }
  const Knowledge& knows = *asker.knows;
  const bool known =
      over(r, knows.generic, earlier_reads) ||
      (asker.space == Region::Space::kShared && over(r, knows.shared, earlier_reads)) ||
      (asker.space == Region::Space::kTensor && over(r, knows.tensor, earlier_reads));
  if (!known) {
    const auto used = [&](const Point& p) { return knows.generic.at(p.component) >= p.value; };
    const bool is_used = std::any_of(r.used_registers.begin(), r.used_registers.end(), used);
    return is_used ? Order::kLoadNotWaited : Order::kRace;
  }
  if (asker.async_proxy && !earlier_reads && !in_async_proxy(r.kind) &&
      !over(r, knows.async_shared, false)) {
    return Order::kNoProxyFence;
  }
  if (asker.space == Region::Space::kTensor && works_on_tensor_memory(r.kind) &&
      !has_tensor_fences(r, asker, earlier_reads)) {
    return Order::kNoTensorFence;
  }
  return Order::kOrdered;
}

ClusterHazards::Order ClusterHazards::order(const Touch& earlier, const Asker& asker,
                                            bool earlier_reads) {
  if (earlier.who.none()) return Order::kOrdered;
  if (earlier.who.is_op()) {
    return order_of_op(ops_[earlier.who.op_id() - 1], asker, earlier_reads);
  }
  const uint32_t agent = earlier.who.agent(), epoch = earlier.who.epoch();
  const Knowledge& knows = *asker.knows;
  // An operation comes after what its warp did before the issue, not after what it does then.
  const bool own = agent == asker.agent && asker.op == nullptr;
  const bool known = own || knows.generic.at(agent) >= epoch ||
                     (asker.space == Region::Space::kShared && knows.shared.at(agent) >= epoch);
  if (!known) return Order::kRace;
  if (asker.async_proxy && !earlier_reads && knows.async_shared.at(agent) < epoch) {
    return Order::kNoProxyFence;
  }
  return Order::kOrdered;
}

ClusterHazards::Order ClusterHazards::order_again(const Touch& earlier, Asker& asker,
                                                  bool earlier_reads) {
  if (!(asker.asked == earlier.who) || asker.asked_reads != earlier_reads) {
    asker.answer = order(earlier, asker, earlier_reads);
    asker.asked = earlier.who;
    asker.asked_reads = earlier_reads;
  }
  return asker.answer;
}

ClusterHazards::Order ClusterHazards::order_in_global(const Touch& earlier, bool earlier_reads,
                                                      uint32_t agent, const Knowledge& knows,
                                                      const AsyncOp* op, bool async_read) {
  const Asker asker{&knows, agent, op == nullptr ? nullptr : &record(*op), Region::Space::kGlobal};
  const Order o = order(earlier, asker, earlier_reads);
  if (o != Order::kOrdered || !async_read || earlier_reads || earlier.who.is_op()) return o;
  const bool seen = knows.async_global.at(earlier.who.agent()) >= earlier.who.epoch();
  return seen ? Order::kOrdered : Order::kNoProxyFence;
}

void ClusterHazards::drop_shadows() {
  shared_.clear();
  tensor_.clear();
  flags_.clear();
  barriers_.clear();
  relaxed_arrivals_.clear();
  fenced_maps_.clear();
}

// --- Registers ---

void ClusterHazards::pending_register(const Exec& exec, const Insn& insn, uint64_t op) {
  if (op == 0 || !ops_.has(op - 1)) return;
  OpRecord& r = ops_[op - 1];
  if (r.kind == EngineKind::kTensorLoad) {
    // The register's value is there here; but ptxas may move a use that is no more than a copy, so
    // that only the wait tells others that the load is over.
    const uint32_t agent = exec.warp->agent;
    r.used_registers.push_back({agent, warps_[agent].generic.at(agent)});
    launch_.report(exec, insn, Severity::kFormal, "register-before-wait",
                   fmt::format("a register of the tcgen05.ld at line {} is used before "
                               "tcgen05.wait::ld",
                               r.line));
    return;
  }
  launch_.report(exec, insn, Severity::kError, "register-in-flight",
                 fmt::format("a register of the {} at line {} is touched before its wait_group",
                             name_of(r.kind), r.line));
}

}  // namespace ptxemu
