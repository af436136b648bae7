#include "emulator/observe/hazards.h"

#include <fmt/format.h>

#include <bit>

#include "emulator/machine/cluster.h"
#include "emulator/machine/exec.h"
#include "emulator/observe/waiters.h"

namespace ptxemu {

namespace {

// Engines whose operations are known to happen in order of issue.
bool in_order(EngineKind kind) {
  return kind == EngineKind::kTensorCore || kind == EngineKind::kWgmma;
}

}  // namespace

ClusterHazards::ClusterHazards(Launch& launch, Cluster& cluster)
    : launch_(launch), cluster_(cluster) {
  size_t warps = 0;
  for (const auto& cta : cluster.ctas) warps += cta->warps.size();
  warps_.resize(warps);
  snapshots_.resize(warps);
  components_ = static_cast<uint32_t>(warps);
  for (uint32_t w = 0; w < warps; ++w) warps_[w].generic.set(w, 1);
  shared_.resize(cluster.ctas.size());
  tensor_.resize(cluster.ctas.size());
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
  Clock& clock = of_warp(agent).generic;
  clock.set(agent, clock.at(agent) + 1);
}

ClusterHazards::OpRecord& ClusterHazards::record(const AsyncOp& op) {
  while (ops_.size() < op.id) ops_.emplace_back();
  return ops_[op.id - 1];
}

void ClusterHazards::issue(const AsyncOp& op) {
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
  r.at_issue = snapshot(op.agent);
}

void ClusterHazards::op_observed(const Exec& exec, uint64_t op, bool only_read) {
  if (op == 0 || op > ops_.size()) return;
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

ClusterHazards::Order ClusterHazards::order(const Touch& earlier, const Asker& asker,
                                            bool earlier_reads) {
  if (earlier.who.none()) return Order::kOrdered;
  if (earlier.who.is_op()) {
    const OpRecord& r = ops_[earlier.who.op_id() - 1];
    if (asker.op != nullptr &&
        (&r == asker.op || (in_order(r.kind) && r.queue == asker.op->queue))) {
      return Order::kOrdered;
    }
    // A warp's loads and stores of tensor memory go in order: a load is over when a register that
    // it fills has been used, which known-good kernels rely on before they store over what they
    // loaded.
    if (asker.op != nullptr && r.kind == EngineKind::kTensorLoad && r.agent == asker.agent &&
        asker.op->kind == EngineKind::kTensorStore) {
      return Order::kOrdered;
    }
    return over(r, asker.knows->generic, earlier_reads) ? Order::kOrdered : Order::kRace;
  }
  const uint32_t agent = earlier.who.agent(), epoch = earlier.who.epoch();
  const bool known = agent == asker.agent || asker.knows->generic.at(agent) >= epoch;
  if (!known) return Order::kRace;
  if (asker.async_read && !earlier_reads && asker.knows->async.at(agent) < epoch) {
    return Order::kNoProxyFence;
  }
  return Order::kOrdered;
}

// --- Barriers ---

ClusterHazards::Mbarrier& ClusterHazards::mbarrier(const Cta& cta, uint32_t offset) {
  const uint64_t key = uint64_t{cta.rank} << 32 | offset;
  auto [found, is_new] = mbarriers_.try_emplace(key);
  if (is_new) found->second.component = components_++;
  return found->second;
}

void ClusterHazards::mbarrier_arrive(const Exec& exec, Cta& cta, uint32_t offset, bool releases) {
  if (!releases) return;
  mbarrier(cta, offset).gathering.join(warps_[exec.warp->agent]);
  step(exec.warp->agent);
}

void ClusterHazards::mbarrier_async_arrive(const AsyncOp& op, Cta& cta, uint32_t offset) {
  check_live(op, cta);
  Mbarrier& barrier = mbarrier(cta, offset);
  OpRecord& r = record(op);
  barrier.gathering.join(*r.at_issue);
  const Point point{barrier.component, barrier.phases + 1};
  r.done.push_back(point);
  if (op.kind == EngineKind::kTensorCore) {
    queues_[op.queue].commits.push_back({r.sequence, r.agent, point});
  }
}

void ClusterHazards::mbarrier_phase(Cta& cta, uint32_t offset) {
  Mbarrier& barrier = mbarrier(cta, offset);
  ++barrier.phases;
  barrier.gathering.generic.set(barrier.component, barrier.phases);
  barrier.completed = barrier.gathering;
}

void ClusterHazards::mbarrier_observed(const Exec& exec, Cta& cta, uint32_t offset) {
  of_warp(exec.warp->agent).join(mbarrier(cta, offset).completed);
}

void ClusterHazards::barrier_arrive(const Exec& exec, uint64_t key) {
  barriers_[key].join(warps_[exec.warp->agent]);
  step(exec.warp->agent);
}

void ClusterHazards::barrier_passed(const Exec& exec, uint64_t key) {
  of_warp(exec.warp->agent).join(barriers_[key]);
}

void ClusterHazards::fence(const Exec& exec, FenceKind kind) {
  if (kind != FenceKind::kProxyAsync && kind != FenceKind::kProxyAsyncShared) return;
  const uint32_t agent = exec.warp->agent;
  Knowledge& k = of_warp(agent);
  k.async.join(k.generic);
  step(agent);
}

// --- Accesses ---

Shadow& ClusterHazards::shared_shadow(const Cta& cta) {
  Shadow& shadow = shared_[cta.rank];
  if (shadow.empty()) shadow.resize(cta.shared_bytes / 4 + 1);
  return shadow;
}

// A cell is 16 lanes of one column.
Shadow& ClusterHazards::tensor_shadow(const Cta& cta) {
  Shadow& shadow = tensor_[cta.rank];
  if (shadow.empty()) shadow.resize(size_t{512} * 8);
  return shadow;
}

void ClusterHazards::touch(Cell& cell, const Touch& now, const Asker& asker, bool writes,
                           const Region& where) {
  if (!(cell.writer.who == now.who) && (cell.writer.bytes & now.bytes) != 0) {
    const Order o = order(cell.writer, asker, false);
    if (o != Order::kOrdered) report(cell.writer, true, now, writes, asker, o, where);
  }
  if (writes) {
    for (size_t i = 0; i < cell.reader_count; ++i) {
      const Touch& reader = cell.readers[i];
      if (reader.who == now.who || (reader.bytes & now.bytes) == 0) continue;
      const Order o = order(reader, asker, true);
      if (o != Order::kOrdered) report(reader, false, now, writes, asker, o, where);
    }
    cell.writer = now;
    cell.reader_count = 0;
    cell.written = true;
    return;
  }
  // Readers that this one comes after need not be kept: who comes after this one comes after them.
  size_t kept = 0;
  for (size_t i = 0; i < cell.reader_count; ++i) {
    const Touch& reader = cell.readers[i];
    if (reader.who == now.who && reader.bytes == now.bytes) return;
    const bool same_warp = !reader.who.is_op() && !now.who.is_op() &&
                           reader.who.agent() == now.who.agent() && reader.bytes == now.bytes;
    const bool same_queue = reader.who.is_op() && now.who.is_op() &&
                            ops_[reader.who.op_id() - 1].queue != 0 &&
                            ops_[reader.who.op_id() - 1].queue == ops_[now.who.op_id() - 1].queue &&
                            ops_[reader.who.op_id() - 1].agent == ops_[now.who.op_id() - 1].agent;
    if (same_warp || same_queue) continue;
    cell.readers[kept++] = reader;
  }
  if (kept == Cell::kReaders) {
    for (size_t i = 1; i < kept; ++i) cell.readers[i - 1] = cell.readers[i];
    --kept;
  }
  cell.readers[kept++] = now;
  cell.reader_count = static_cast<uint8_t>(kept);
}

void ClusterHazards::touch_region(const Touch& now, const Asker& asker, const Region& region,
                                  bool writes) {
  if (region.space == Region::Space::kShared) {
    Shadow& shadow = shared_shadow(*region.cta);
    const uint64_t first = region.begin / 4;
    const uint64_t last = std::min<uint64_t>((region.begin + region.bytes + 3) / 4, shadow.size());
    for (uint64_t i = first; i < last; ++i) touch(shadow[i], now, asker, writes, region);
  } else if (region.space == Region::Space::kTensor) {
    Shadow& shadow = tensor_shadow(*region.cta);
    const uint32_t first = region.lane / 16, last = (region.lane + region.lanes + 15) / 16;
    for (uint32_t c = region.column; c < region.column + region.columns && c < 512; ++c) {
      for (uint32_t l = first; l < last && l < 8; ++l) {
        touch(shadow[size_t{c} * 8 + l], now, asker, writes, region);
      }
    }
  }
}

void ClusterHazards::async_access(const AsyncOp& op, const Region& region, bool writes) {
  if (region.space == Region::Space::kGlobal) return;
  OpRecord& r = record(op);
  if (region.cta != nullptr) check_live(op, *region.cta);
  at_ = r.insn;
  Touch now;
  now.who = Who::op(op.id);
  now.line = r.line;
  const Asker asker{r.at_issue.get(), r.agent, &r,
                    !writes && region.space == Region::Space::kShared};
  touch_region(now, asker, region, writes);
}

void ClusterHazards::access(const Exec& exec, const Insn& insn, const MemoryAccess& access) {
  const uint32_t agent = exec.warp->agent;
  if (access.acquires || access.releases) {
    exec.for_lanes([&](int lane) {
      uint64_t key = access.address[lane];
      if (access.space == MemoryAccess::Space::kShared) {
        key |= uint64_t{access.cta[lane]->rank + 1} << 56;
      }
      Knowledge& flag = flags_[key];
      if (access.releases) flag.join(warps_[agent]);
      if (access.acquires) of_warp(agent).join(flag);
    });
    if (access.releases) step(agent);
  }
  if (access.space != MemoryAccess::Space::kShared || access.atomic) return;
  at_ = &insn;
  const Asker asker{&warps_[agent], agent, nullptr, false};
  Touch now;
  now.who = Who::warp(agent, warps_[agent].generic.at(agent));
  now.line = insn.line;
  exec.for_lanes([&](int lane) {
    const uint64_t offset = access.address[lane];
    Region where{.space = Region::Space::kShared,
                 .cta = access.cta[lane],
                 .begin = offset,
                 .bytes = access.bytes};
    now.bytes = access.bytes >= 4
                    ? uint8_t{15}
                    : static_cast<uint8_t>(((1u << access.bytes) - 1) << (offset % 4));
    touch_region(now, asker, where, access.writes);
  });
}

// --- Ends ---

void ClusterHazards::check_live(const AsyncOp& op, const Cta& cta) {
  if (cta.live_warps != 0) return;
  Finding finding;
  finding.rule = "exited-cta";
  // Known-good kernels leave commits and copies of their own behind.
  if (op.cta_rank == cta.rank) finding.severity = Severity::kFormal;
  std::copy_n(cta.id, 3, finding.cta);
  finding.warp = static_cast<int32_t>(op.warp);
  finding.ptx_line = op.insn != nullptr ? op.insn->line : 0;
  finding.object = fmt::format("CTA rank {}", cta.rank);
  finding.message = fmt::format(
      "{} issued by warp {} of CTA rank {} touches the memory of a CTA "
      "whose warps have all exited",
      name_of(op.kind), op.warp, op.cta_rank);
  launch_.report(std::move(finding));
}

void ClusterHazards::warp_exit(const Exec& exec, const Insn& insn) {
  if (exec.cta->live_warps != 0) return;
  // The CTA is over: what still reads its shared memory must have been waited for.
  for (const OpRecord& r : ops_) {
    if (r.cta_rank != exec.cta->rank || r.kind != EngineKind::kCopyOut) continue;
    if (!r.read.empty() || !r.done.empty()) continue;
    launch_.report(
        exec, insn, Severity::kFormal, "copy-not-waited",
        fmt::format("the CTA exits, but nothing waited for the copy out of shared memory "
                    "at line {} (cp.async.bulk.wait_group.read)",
                    r.line));
    return;
  }
}

void ClusterHazards::pending_register(const Exec& exec, const Insn& insn, uint64_t op) {
  if (op == 0 || op > ops_.size()) return;
  const OpRecord& r = ops_[op - 1];
  if (r.kind == EngineKind::kTensorLoad) {
    // The register's value is there, so the load is over; the manual asks for a wait all the same.
    op_observed(exec, op, false);
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

// --- Reports ---

std::string ClusterHazards::describe(const Touch& touch, const OpRecord* op, bool writes) const {
  const char* verb = writes ? "write" : "read";
  const OpRecord* r = op;
  if (r == nullptr && touch.who.is_op()) r = &ops_[touch.who.op_id() - 1];
  if (r != nullptr) {
    return fmt::format("{} by {} (line {}, issued by warp {} of CTA rank {})", verb,
                       name_of(r->kind), touch.line, r->warp, r->cta_rank);
  }
  const uint32_t per_cta = static_cast<uint32_t>(cluster_.ctas[0]->warps.size());
  return fmt::format("{} by warp {} of CTA rank {} (line {})", verb, touch.who.agent() % per_cta,
                     touch.who.agent() / per_cta, touch.line);
}

void ClusterHazards::report(const Touch& earlier, bool earlier_wrote, const Touch& now, bool writes,
                            const Asker& asker, Order order, const Region& where) {
  Finding finding;
  const bool tensor = where.space == Region::Space::kTensor;
  const bool by_tensor_core = asker.op != nullptr && (asker.op->kind == EngineKind::kTensorCore ||
                                                      asker.op->kind == EngineKind::kWgmma);
  const OpRecord* before_op = earlier.who.is_op() ? &ops_[earlier.who.op_id() - 1] : nullptr;
  // A store that was issued before what led to the load, but not waited for: it has been seen to
  // work.
  const bool store_then_load = before_op != nullptr && asker.op != nullptr &&
                               before_op->kind == EngineKind::kTensorStore &&
                               asker.op->kind == EngineKind::kTensorLoad &&
                               asker.knows->generic.at(before_op->agent) >=
                                   before_op->at_issue->generic.at(before_op->agent);
  const bool same_store = earlier_wrote && writes && !earlier.who.is_op() && asker.op == nullptr &&
                          earlier.line == now.line;
  if ((order == Order::kNoProxyFence && by_tensor_core) || same_store || store_then_load) {
    finding.severity = Severity::kFormal;
  }
  finding.rule = order == Order::kNoProxyFence ? "missing-proxy-fence"
                 : tensor                      ? "tensor-race"
                                               : "shared-race";
  std::copy_n(where.cta->id, 3, finding.cta);
  const uint32_t per_cta = static_cast<uint32_t>(cluster_.ctas[0]->warps.size());
  finding.warp = static_cast<int32_t>(asker.agent % per_cta);
  finding.ptx_line = now.line;
  if (at_ != nullptr && asker.op != nullptr && asker.op->function != nullptr) {
    finding.source = source_of(*launch_.code, *asker.op->function, *at_);
  } else if (at_ != nullptr) {
    finding.source = source_of(*launch_.code, *launch_.code->main, *at_);
  }
  finding.object = tensor
                       ? fmt::format("tmem lanes {}..{} columns {}..{}", where.lane,
                                     where.lane + where.lanes - 1, where.column,
                                     where.column + where.columns - 1)
                       : fmt::format("{}, {} bytes of CTA rank {}",
                                     name_shared(*launch_.code, static_cast<uint32_t>(where.begin)),
                                     where.bytes, where.cta->rank);
  const std::string before = describe(earlier, nullptr, earlier_wrote);
  const std::string after = describe(now, asker.op, writes);
  finding.message = order == Order::kNoProxyFence
                        ? fmt::format("{} sees the {} only after fence.proxy.async", after, before)
                        : fmt::format("nothing orders the {} after the {}", after, before);
  launch_.report(std::move(finding));
}

}  // namespace ptxemu
