#include "emulator/machine/engine.h"

#include <algorithm>

#include "emulator/machine/cluster.h"
#include "emulator/machine/exec.h"
#include "emulator/machine/launch.h"
#include "emulator/machine/simt.h"
#include "emulator/observe/waiters.h"

namespace ptxemu {

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

uint64_t Engines::submit(std::unique_ptr<AsyncOp> op) {
  name(*op);
  const uint64_t id = op->id;
  const uint64_t queue = op->queue;
  AsyncOp* raw = op.get();
  if (Observer* observer = cluster_.launch.observer.get()) observer->issue(cluster_, *op);
  if (cluster_.launch.options.policy == Policy::kEager) {
    pending_.emplace(id, std::move(op));
    while (!raw->advance(cluster_, false)) {
    }
    finish(id);
    return id;
  }
  pending_.emplace(id, std::move(op));
  if (queue == 0) {
    free_.push_back(id);
  } else {
    auto& ordered = queues_[queue];
    if (ordered.empty()) queue_names_.push_back(queue);
    ordered.push_back(id);
  }
  return id;
}

void Engines::finish(uint64_t id) {
  auto found = pending_.find(id);
  std::unique_ptr<AsyncOp> op = std::move(found->second);
  pending_.erase(found);
  if (Observer* observer = cluster_.launch.observer.get()) observer->async_done(cluster_, *op);
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
  launch.report(std::move(finding));
  launch.status = Status::kTrap;
  throw LaunchStopped{};
}

void Engines::advance(uint64_t id) {
  AsyncOp& op = *pending_.at(id);
  const uint64_t queue = op.queue;
  const bool split = cluster_.launch.options.policy == Policy::kSplit;
  cluster_.note_progress();
  try {
    if (!op.advance(cluster_, split)) return;
  } catch (const Trap& trap) {
    report_trap(op, trap);
  }
  if (queue == 0) {
    free_.erase(std::find(free_.begin(), free_.end(), id));
  } else {
    auto& ordered = queues_[queue];
    ordered.pop_front();
    if (ordered.empty()) {
      queue_names_.erase(std::find(queue_names_.begin(), queue_names_.end(), queue));
    }
  }
  finish(id);
}

bool Engines::advance_one() {
  const size_t choices = free_.size() + queue_names_.size();
  if (choices == 0) return false;
  if (cluster_.launch.options.policy == Policy::kLate) {
    // The one issued last, so that what a kernel takes for the order of completion is not.
    uint64_t id = free_.empty() ? 0 : free_.back();
    for (uint64_t queue : queue_names_) id = std::max(id, queues_[queue].front());
    advance(id);
    return true;
  }
  const size_t choice = cluster_.random() % choices;
  advance(choice < free_.size() ? free_[choice]
                                : queues_[queue_names_[choice - free_.size()]].front());
  return true;
}

void Engines::tick() {
  const Policy policy = cluster_.launch.options.policy;
  if (policy != Policy::kRandom && policy != Policy::kSplit) return;
  while (cluster_.random() % 2 == 0 && advance_one()) {
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
