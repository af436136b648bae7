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

void ClusterHazards::check_live(const AsyncOp& op, const Cta& cta) {
  if (cta.live_warps != 0) return;
  Finding finding =
      finding_of(cta, "exited-cta", fmt::format("CTA rank {}", cta.rank),
                 fmt::format("{} issued by warp {} of CTA rank {} touches the memory of a CTA "
                             "whose warps have all exited",
                             name_of(op.kind), op.warp, op.cta_rank));
  // Known-good kernels leave commits and copies of their own behind.
  if (op.cta_rank == cta.rank) finding.severity = Severity::kFormal;
  finding.warp = static_cast<int32_t>(op.warp);
  finding.ptx_line = op.insn != nullptr ? op.insn->line : 0;
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
