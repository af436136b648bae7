#include "emulator/observe/waiters.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <set>

#include "emulator/machine/barriers.h"
#include "emulator/machine/cluster.h"
#include "emulator/machine/mbarrier.h"

namespace ptxemu {

namespace {

void describe_mbarrier(const Launch& launch, Cluster& cluster, const Wait& wait, Waiter* row) {
  const uint32_t rank = static_cast<uint32_t>(wait.object >> kRankShift);
  const uint32_t offset = static_cast<uint32_t>(wait.object) & kOffsetMask;
  row->waits_on = fmt::format("mbarrier {} of CTA rank {}, parity {}",
                              name_shared(*launch.code, offset), rank, wait.parity);
  if (rank >= cluster.ctas.size()) return;
  Cta& cta = *cluster.ctas[rank];
  const MbarrierRecord* record = cta.state<MbarrierRecords>().find(offset);
  if (record == nullptr || !record->live) {
    row->waits_on += " (not initialised)";
    return;
  }
  const MbarrierState state = read_mbarrier(cta, offset);
  row->phase = record->phases;
  row->pending = state.pending;
  row->pending_bytes = state.bytes;
  row->last_arrivals = record->last_arrivals();
}

// Groups of one mask at two statements are none of the kernel's faults: hardware lets them meet.
std::string describe_warp_sync(const Warp& warp, const Wait& wait) {
  std::set<uint32_t> lines;
  for (const auto& group : warp.groups) {
    if (group->wait.kind != Wait::Kind::kWarpSync || group->wait.object != wait.object) continue;
    lines.insert(group->frame->function->code[group->pc].line);
  }
  std::string text = fmt::format("lanes {:#010x} of its warp", wait.object);
  if (lines.size() < 2) return text;
  return text + fmt::format(
                    ", which wait at lines {}: on hardware they meet, in this emulator only lanes "
                    "at one statement do",
                    fmt::join(lines, ", "));
}

void describe(const Launch& launch, const Warp& warp, const Wait& wait, Waiter* row) {
  Cluster& cluster = *warp.cta->cluster;
  using Kind = Wait::Kind;
  switch (wait.kind) {
    case Kind::kNone: row->waits_on = "runs (polls memory or a barrier)"; return;
    case Kind::kMbarrier: return describe_mbarrier(launch, cluster, wait, row);
    case Kind::kNamedBarrier: {
      const NamedBarrier& barrier =
          warp.cta->state<NamedBarriers>().barriers[wait.object % NamedBarriers::kCount];
      row->waits_on = fmt::format("barrier {} of {} threads", wait.object, barrier.expected);
      row->phase = barrier.generation;
      row->pending = int64_t{barrier.expected} - barrier.arrived;
      return;
    }
    case Kind::kClusterBarrier: {
      const ClusterBarrier& barrier = cluster.state<ClusterBarrier>();
      row->waits_on = "barrier.cluster";
      row->phase = barrier.generation;
      row->pending = barrier.missing(cluster);
      return;
    }
    case Kind::kWarpSync: row->waits_on = describe_warp_sync(warp, wait); return;
    case Kind::kRegisters: row->waits_on = "registers that tcgen05.ld fills"; return;
    case Kind::kTensorAlloc:
      row->waits_on = fmt::format("{} free columns of tensor memory", wait.value);
      return;
    case Kind::kTensorLoad: row->waits_on = "tcgen05.wait::ld"; return;
    case Kind::kTensorStore: row->waits_on = "tcgen05.wait::st"; return;
    case Kind::kBulkGroup: row->waits_on = "cp.async.bulk.wait_group"; return;
    case Kind::kCopyGroup: row->waits_on = "cp.async.wait_group"; return;
    case Kind::kWgmma: row->waits_on = "wgmma.wait_group"; return;
    case Kind::kRegisterPool:
      row->waits_on = fmt::format("setmaxnreg.inc to {} registers", wait.value);
      return;
    case Kind::kSleep: row->waits_on = "nanosleep"; return;
    case Kind::kGlobal: row->waits_on = "global memory"; return;
  }
}

}  // namespace

std::string source_of(const Code& code, const CodeFunction& function, const Insn& insn) {
  if (insn.source == 0 || insn.source >= function.sources.size()) return "";
  const SourceLocation& location = function.sources[insn.source];
  for (const auto& [number, name] : code.module->files) {
    if (number == location.file) return fmt::format("{}:{}", name, location.line);
  }
  return fmt::format("file {}:{}", location.file, location.line);
}

std::string name_shared(const Code& code, uint32_t offset) {
  for (const SharedVariable& variable : code.shared) {
    if (variable.bytes == 0 || offset < variable.offset) continue;
    if (offset - variable.offset >= variable.bytes) continue;
    const uint32_t inside = offset - variable.offset;
    return inside == 0 ? fmt::format("smem+{:#x} ({})", offset, variable.name)
                       : fmt::format("smem+{:#x} ({}+{:#x})", offset, variable.name, inside);
  }
  const uint32_t dynamic = code.dynamic_shared_begin();
  if (offset < dynamic) return fmt::format("smem+{:#x}", offset);
  return fmt::format("smem+{:#x} (dynamic+{:#x})", offset, offset - dynamic);
}

void describe_waiters(const Launch& launch, const Warp& warp, std::vector<Waiter>* rows) {
  auto row_of = [&](uint32_t lanes, const CodeFunction& function, uint32_t pc) {
    Waiter row;
    std::copy_n(warp.cta->id, 3, row.cta);
    row.warp = warp.index;
    row.lanes = lanes;
    row.ptx_line = function.code[pc].line;
    row.source = source_of(*launch.code, function, function.code[pc]);
    return row;
  };
  for (const auto& group : warp.groups) {
    Waiter row = row_of(group->mask, *group->frame->function, group->pc);
    describe(launch, warp, group->wait, &row);
    rows->push_back(std::move(row));
  }
  for (const auto& join : warp.joins) {
    if (join->arrived == 0) continue;
    Waiter row = row_of(join->arrived, *join->frame->function, join->pc);
    row.waits_on = fmt::format("lanes {:#010x} of its warp, to go on together",
                               join->expected & ~join->arrived);
    row.pending = std::popcount(join->expected & ~join->arrived);
    rows->push_back(std::move(row));
  }
}

}  // namespace ptxemu
