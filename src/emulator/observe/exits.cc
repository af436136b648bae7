// What is left over when a CTA or a cluster ends.
#include <fmt/format.h>

#include <algorithm>

#include "emulator/machine/cluster.h"
#include "emulator/machine/exec.h"
#include "emulator/machine/mbarrier.h"
#include "emulator/machine/tensor_memory.h"
#include "emulator/observe/hazards.h"
#include "emulator/observe/waiters.h"

namespace ptxemu {

namespace {

Finding finding_of(const Cta& cta, std::string rule, std::string object, std::string message) {
  Finding finding;
  finding.rule = std::move(rule);
  std::copy_n(cta.id, 3, finding.cta);
  finding.object = std::move(object);
  finding.message = std::move(message);
  return finding;
}

}  // namespace

Finding ClusterHazards::finding_at(const Exec& exec, const Insn& insn) const {
  Finding finding;
  std::copy_n(exec.cta->id, 3, finding.cta);
  finding.warp = static_cast<int32_t>(exec.warp->index);
  finding.ptx_line = insn.line;
  finding.statement = exec.statement();
  finding.source = source_of(*launch_.code, *exec.group->frame->function, insn);
  return finding;
}

Finding ClusterHazards::found_by(const AsyncOp& op, const Cta& cta, std::string rule,
                                 std::string message) const {
  Finding finding =
      finding_of(cta, std::move(rule), fmt::format("CTA rank {}", cta.rank), std::move(message));
  finding.warp = static_cast<int32_t>(op.warp);
  finding.ptx_line = op.insn != nullptr ? op.insn->line : 0;
  finding.statement = op.statement(cluster_.index);
  return finding;
}

// --- Peers ---

// "The peer CTA has started": a barrier of the cluster says so, directly or by what came after one.
void ClusterHazards::check_peer(const AsyncOp& op, const Cta& cta, bool signals) {
  if ((record(op).at_issue->running >> cta.rank & 1) == 0) {
    launch_.report(found_by(op, cta, "peer-before-barrier",
                            fmt::format("{} issued by warp {} of CTA rank {} works on CTA rank {}, "
                                        "which is not known to have started: a barrier.cluster "
                                        "must come first",
                                        name_of(op.kind), op.warp, op.cta_rank, cta.rank)));
  }
  if (cta.live_warps != 0) return;
  Finding finding =
      found_by(op, cta, "exited-cta",
               fmt::format("{} issued by warp {} of CTA rank {} touches the memory of a CTA "
                           "whose warps have all exited",
                           name_of(op.kind), op.warp, op.cta_rank));
  // Known-good kernels leave commits and copies of their own behind, and commits to their pair.
  const bool commits = signals && op.kind == EngineKind::kTensorCore;
  if (op.cta_rank == cta.rank || (commits && op.cta_rank / 2 == cta.rank / 2)) {
    finding.severity = Severity::kFormal;
  }
  launch_.report(std::move(finding));
}

void ClusterHazards::check_peer(const Exec& exec, const Insn& insn, const Cta& cta) {
  if ((warps_[exec.warp->agent].running >> cta.rank & 1) == 0) {
    launch_.report(exec, insn, Severity::kError, "peer-before-barrier",
                   fmt::format("CTA rank {} is not known to have started: a barrier.cluster must "
                               "come before its shared memory is used",
                               cta.rank));
  }
  PeerUse& use = peer_uses_[exec.warp->agent][cta.rank];
  const uint32_t epoch = warps_[exec.warp->agent].generic.at(exec.warp->agent);
  use = {epoch, &insn, exec.group->frame->function, cta.live_warps == 0};
  if (cta.live_warps != 0) return;
  launch_.report(
      exec, insn, Severity::kError, "exited-cta",
      fmt::format("the shared memory of CTA rank {} is used after all its warps have exited",
                  cta.rank));
}

// A CTA's shared memory stays while one of its warps does. That one was there at a use by a peer is
// sure only where its end comes after the use; a relaxed barrier of the cluster is enough for that.
void ClusterHazards::check_peer_uses() {
  const uint32_t per_cta = warps_per_cta();
  for (uint32_t agent = 0; agent < warps_.size(); ++agent) {
    for (uint32_t rank = 0; rank < cluster_.ctas.size(); ++rank) {
      const PeerUse& use = peer_uses_[agent][rank];
      if (use.insn == nullptr || use.is_reported) continue;
      bool is_known = false;
      for (uint32_t warp = rank * per_cta; warp < (rank + 1) * per_cta; ++warp) {
        is_known |= warps_[warp].generic.at(agent) >= use.epoch ||
                    relaxed_barriers_[warp].generic.at(agent) >= use.epoch;
      }
      if (is_known) continue;
      Finding finding = finding_of(
          *cluster_.ctas[agent / per_cta], "exited-cta", fmt::format("CTA rank {}", rank),
          fmt::format("nothing orders this use of the shared memory of CTA rank {} before the end "
                      "of all its warps: a barrier.cluster must come after it",
                      rank));
      finding.warp = static_cast<int32_t>(agent % per_cta);
      finding.ptx_line = use.insn->line;
      finding.source = source_of(*launch_.code, *use.function, *use.insn);
      launch_.report(std::move(finding));
    }
  }
}

// Known-good kernels allocate tensor memory of the pair before the cluster has met; that is agreed
// on by both CTAs.
void ClusterHazards::pair_used(const Exec& exec, const Insn& insn) {
  const uint32_t peer = exec.cta->rank ^ 1;
  if (peer >= cluster_.ctas.size() || (warps_[exec.warp->agent].running >> peer & 1) != 0) return;
  const InstructionKind kind = kind_of(insn);
  const bool allocates =
      kind == InstructionKind::kTmemAlloc || kind == InstructionKind::kTmemRelease;
  launch_.report(exec, insn, allocates ? Severity::kFormal : Severity::kError,
                 "peer-before-barrier",
                 fmt::format(".cta_group::2, while CTA rank {} is not known to have started: a "
                             "barrier.cluster must come first",
                             peer));
}

// --- Ends ---

void ClusterHazards::warp_exit(const Exec& exec, const Insn& insn) {
  if (exec.cta->live_warps != 0) return;
  check_register_moves(exec, insn);
  check_waiting_products(exec, insn);
  // The CTA is over: what still reads its shared memory must have been waited for.
  const OpRecord* forgotten = nullptr;
  ops_.for_each([&](uint64_t, const OpRecord& r) {
    if (r.cta_rank != exec.cta->rank || r.kind != EngineKind::kCopyOut) return;
    if (forgotten == nullptr && r.read.empty() && r.done.empty()) forgotten = &r;
  });
  if (forgotten == nullptr) return;
  launch_.report(exec, insn, Severity::kFormal, "copy-not-waited",
                 fmt::format("the CTA exits, but nothing waited for the copy out of shared memory "
                             "at line {} (cp.async.bulk.wait_group.read)",
                             forgotten->line));
}

void ClusterHazards::check_leaks(Cta& cta) {
  for (const auto& allocation : cta.state<TensorMemory>().live()) {
    Finding finding = finding_of(
        cta, "tmem-leak",
        name_tensor_cells(0, TensorMemory::kLanes, allocation.column, allocation.columns),
        "the CTA has ended without tcgen05.dealloc of what it allocated here");
    finding.ptx_line = allocation.line;
    launch_.report(std::move(finding));
  }
  for (const MbarrierRecord& record : cta.state<MbarrierRecords>().all()) {
    if (record.live) check_barrier_at_end(cta, record);
  }
}

// A last phase that nobody waits for may expect what nobody sends.
void ClusterHazards::check_barrier_at_end(Cta& cta, const MbarrierRecord& record) {
  const MbarrierState state = read_mbarrier(cta, record.offset);
  if (state.bytes == 0 && state.pending == state.expected) return;
  const std::string left =
      state.bytes > 0 ? fmt::format("still expects {} bytes", state.bytes)
      : state.bytes < 0
          ? fmt::format("has received {} bytes that were not expected", -state.bytes)
          : fmt::format("awaits {} of its {} arrivals", state.pending, state.expected);
  Finding finding = finding_of(
      cta, state.bytes != 0 ? "bytes-left" : "arrivals-left",
      name_shared(*launch_.code, record.offset),
      fmt::format("the CTA has ended while phase {} of the mbarrier initialised here {}; "
                  "last: {}",
                  record.phases, left, record.last_arrivals()));
  if (state.bytes >= 0) finding.severity = Severity::kFormal;
  finding.ptx_line = mbarrier(cta, record.offset).line;
  launch_.report(std::move(finding));
}

void ClusterHazards::end() {
  settle_second_stores();
  check_peer_uses();
  for (const auto& cta : cluster_.ctas) check_leaks(*cta);
  for (Undecided& u : undecided_) {
    if ((ops_[u.op - 1].used & u.feeds) == 0) {
      u.finding.severity = Severity::kFormal;
      u.finding.message += "; nobody reads what comes of it";
    }
    launch_.report(std::move(u.finding));
  }
  undecided_.clear();
}

}  // namespace ptxemu
