#include "emulator/machine/engine.h"

#include <algorithm>

#include "emulator/machine/cluster.h"
#include "emulator/machine/exec.h"
#include "emulator/machine/launch.h"
#include "emulator/machine/simt.h"
#include "emulator/observe/waiters.h"

namespace ptxemu {

namespace {

// Rounds between an operation's issue and its first part, and between its parts.
constexpr uint64_t kLeastDelay = 16, kMostDelay = 128, kMostPartDelay = 32;

bool is_random(const Cluster& cluster) {
  const Policy policy = cluster.launch.options.policy;
  return policy == Policy::kRandom || policy == Policy::kSplit;
}

}  // namespace

std::string_view name_of(EngineKind kind) {
  switch (kind) {
    case EngineKind::kCopyIn: return "copy to shared memory";
    case EngineKind::kCopyOut: return "copy from shared memory";
    case EngineKind::kTensorCore: return "tensor core";
    case EngineKind::kTensorLoad: return "tcgen05.ld";
    case EngineKind::kTensorStore: return "tcgen05.st";
    case EngineKind::kWgmma: return "wgmma";
    case EngineKind::kCopyAsync: return "cp.async";
    case EngineKind::kRemoteStore: return "remote store";
    case EngineKind::kLaunchControl: return "launch control";
  }
  return "engine";
}

AsyncOp::AsyncOp(EngineKind engine, const Exec& issuer)
    : kind(engine),
      cta_rank(issuer.cta->rank),
      warp(issuer.warp->index),
      lane(static_cast<uint32_t>(issuer.first_lane())),
      agent(issuer.warp->agent),
      insn(nullptr),
      function(issuer.frame().function) {
  const auto& code = function->code;
  if (issuer.group->pc < code.size()) insn = &code[issuer.group->pc];
}

void AsyncOp::note_read(Cluster& cluster, const Region& region) const {
  if (Observer* observer = cluster.launch.observer.get()) {
    observer->async_read(cluster, *this, region);
  }
}

void AsyncOp::note_write(Cluster& cluster, const Region& region) const {
  if (Observer* observer = cluster.launch.observer.get()) {
    observer->async_write(cluster, *this, region);
  }
}

uint64_t Engines::submit(std::unique_ptr<AsyncOp> op) {
  name(*op);
  const uint64_t id = op->id;
  op->issued_at = cluster_.instructions;
  if (Observer* observer = cluster_.launch.observer.get()) observer->issue(cluster_, *op);
  if (is_random(cluster_)) delay(*op, kLeastDelay, kMostDelay);
  if (op->queue == 0) {
    free_.insert(id);
  } else {
    auto& ordered = queues_[op->queue];
    if (ordered.empty()) queue_names_.push_back(op->queue);
    ordered.push_back(id);
  }
  held_bytes_ += op->held_bytes;
  pending_.emplace(id, std::move(op));
  return id;
}

void Engines::delay(AsyncOp& op, uint64_t least, uint64_t most) {
  op.not_before = round_ + least + cluster_.random() % (most - least + 1);
}

void Engines::finish(uint64_t id) {
  auto found = pending_.find(id);
  std::unique_ptr<AsyncOp> op = std::move(found->second);
  pending_.erase(found);
  held_bytes_ -= op->held_bytes;
  if (Observer* observer = cluster_.launch.observer.get()) observer->async_done(cluster_, *op);
  if (cluster_.launch.trace != nullptr) cluster_.launch.trace->finished(cluster_, *op);
  cluster_.note_progress();
}

void Engines::report_trap(const AsyncOp& op, const Trap& trap) {
  Launch& launch = cluster_.launch;
  Finding finding;
  finding.rule = trap.rule;
  std::copy_n(cluster_.ctas[op.cta_rank]->id, 3, finding.cta);
  finding.warp = static_cast<int32_t>(op.warp);
  finding.lane = static_cast<int32_t>(op.lane);
  finding.object = trap.object;
  finding.message = trap.message;
  if (op.insn != nullptr) {
    finding.ptx_line = op.insn->line;
    finding.source = source_of(*launch.code, *op.function, *op.insn);
  }
  launch.stop(std::move(finding));
}

void Engines::advance(uint64_t id) {
  AsyncOp& op = *pending_.at(id);
  const uint64_t queue = op.queue;
  const bool split = cluster_.launch.options.policy == Policy::kSplit;
  cluster_.note_progress();
  try {
    if (!op.advance(cluster_, split)) {
      if (is_random(cluster_)) delay(op, 0, kMostPartDelay);
      return;
    }
  } catch (const Trap& trap) {
    report_trap(op, trap);
  }
  if (queue == 0) {
    free_.erase(id);
  } else {
    auto& ordered = queues_[queue];
    ordered.erase(std::find(ordered.begin(), ordered.end(), id));
    if (ordered.empty()) {
      queue_names_.erase(std::find(queue_names_.begin(), queue_names_.end(), queue));
    }
  }
  finish(id);
}

std::vector<uint64_t> Engines::candidates() const {
  std::vector<uint64_t> ids(free_.begin(), free_.end());
  for (uint64_t queue : queue_names_) {
    const std::deque<uint64_t>& ordered = queues_.at(queue);
    ids.push_back(ordered.front());
    if (cluster_.launch.options.reorder_products) add_overtakers(ordered, &ids);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

uint64_t Engines::oldest() const {
  uint64_t id = free_.empty() ? ~uint64_t{0} : *free_.begin();
  for (uint64_t queue : queue_names_) id = std::min(id, queues_.at(queue).front());
  return id;
}

uint64_t Engines::newest() const {
  if (cluster_.launch.options.reorder_products) return candidates().back();
  uint64_t id = free_.empty() ? 0 : *free_.rbegin();
  for (uint64_t queue : queue_names_) id = std::max(id, queues_.at(queue).front());
  return id;
}

// Of the first ones of a queue, those that may pass all before them.
void Engines::add_overtakers(const std::deque<uint64_t>& ordered,
                             std::vector<uint64_t>* ids) const {
  constexpr size_t kMostInFlight = 64;
  for (size_t i = 1; i < std::min(ordered.size(), kMostInFlight); ++i) {
    const AsyncOp& later = *pending_.at(ordered[i]);
    const bool passes =
        std::all_of(ordered.begin(), ordered.begin() + static_cast<ptrdiff_t>(i),
                    [&](uint64_t earlier) { return may_overtake(later, *pending_.at(earlier)); });
    if (passes) ids->push_back(ordered[i]);
  }
}

bool Engines::advance_one() {
  if (pending_.empty()) return false;
  switch (cluster_.launch.options.policy) {
    case Policy::kEager: advance(oldest()); break;
    // The one issued last, so that what a kernel takes for the order of completion is not.
    case Policy::kLate: advance(newest()); break;
    case Policy::kRandom:
    case Policy::kSplit: {
      const std::vector<uint64_t> ids = candidates();
      // Nothing else can run: time passes until the first is ready.
      const auto first = std::min_element(ids.begin(), ids.end(), [&](uint64_t a, uint64_t b) {
        return pending_.at(a)->not_before < pending_.at(b)->not_before;
      });
      round_ = std::max(round_, pending_.at(*first)->not_before);
      advance(*first);
      break;
    }
  }
  return true;
}

void Engines::tick() {
  ++round_;
  if (pending_.empty()) return;
  const Policy policy = cluster_.launch.options.policy;
  if (policy == Policy::kLate) return;
  if (policy == Policy::kEager) {
    while (advance_one()) {
    }
    return;
  }
  for (uint64_t id : candidates()) {
    if (pending_.at(id)->not_before <= round_) advance(id);
  }
}

std::vector<const AsyncOp*> Engines::pending() const {
  std::vector<const AsyncOp*> ops;
  for (const auto& [id, op] : pending_) ops.push_back(op.get());
  std::sort(ops.begin(), ops.end(),
            [](const AsyncOp* a, const AsyncOp* b) { return a->id < b->id; });
  return ops;
}

}  // namespace ptxemu
