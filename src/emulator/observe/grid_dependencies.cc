#include "emulator/observe/grid_dependencies.h"

#include <fmt/format.h>

#include <algorithm>

#include "emulator/machine/cluster.h"
#include "emulator/machine/exec.h"
#include "emulator/observe/clock.h"
#include "emulator/observe/waiters.h"

namespace ptxemu {

namespace {

constexpr std::string_view kRule = "global-race";
// Launches that nobody waits for go on being remembered, up to so many.
constexpr size_t kMostGrids = 4;

void add(GridWord::Touch& known, const GridWord::Touch& now) {
  known.line = now.line;
  known.bytes |= now.bytes;
  known.strong &= now.strong;
}

bool conflicts(const GridWord::Touch& earlier, uint8_t bytes, bool strong) {
  return (earlier.bytes & bytes) != 0 && !(earlier.strong && strong);
}

}  // namespace

GridDependencies::GridDependencies(Launch& launch) : launch_(launch) {}

GridDependencies::Conflict GridDependencies::touch(uint64_t address, uint64_t bytes, uint32_t line,
                                                   bool writes, bool strong,
                                                   const Knowledge& knows) {
  Conflict conflict;
  for_words(address, bytes, [&](uint64_t word, uint8_t mask) {
    GridWord& own = (*own_)[word];
    add(writes ? own.write : own.read, {line, mask, strong});
    if (launch_.earlier_grids == nullptr || conflict.grid != nullptr) return;
    for (const EarlierGrid& grid : *launch_.earlier_grids) {
      if (knows.earlier_grids_over && grid.over_after_wait) continue;
      const GridWord* before = grid.accesses->find(word);
      if (before == nullptr) continue;
      if (conflicts(before->write, mask, strong)) {
        conflict = {&grid, before->write.line, true};
      } else if (writes && conflicts(before->read, mask, strong)) {
        conflict = {&grid, before->read.line, false};
      }
    }
  });
  return conflict;
}

std::string GridDependencies::message(const Conflict& conflict, std::string_view access) const {
  return fmt::format(
      "nothing orders the {} after the {} by the earlier launch of {} (line {}), which may still "
      "run: {}",
      access, conflict.wrote ? "write" : "read", conflict.grid->kernel, conflict.line,
      conflict.grid->over_after_wait
          ? "griddepcontrol.wait comes first"
          : "the launch between them did not wait for it, so griddepcontrol.wait here does not");
}

void GridDependencies::access(const Exec& exec, const Insn& insn, const MemoryAccess& access,
                              const Knowledge& knows) {
  exec.for_lanes([&](int lane) {
    const Conflict conflict =
        touch(access.address[lane], access.bytes, insn.line, access.writes, access.strong, knows);
    if (conflict.grid == nullptr) return;
    if (launch_.report_again(kRule, insn.line, Severity::kError, exec.statement())) return;
    launch_.report(exec, insn, Severity::kError, std::string(kRule),
                   message(conflict, access.writes ? "write" : "read"),
                   launch_.memory->describe(access.address[lane]), lane);
  });
}

void GridDependencies::async_access(const Cluster& cluster, const AsyncOp& op, const Region& region,
                                    bool writes, const Knowledge& knows) {
  const uint32_t line = op.insn == nullptr ? 0 : op.insn->line;
  const Conflict conflict = touch(region.begin, region.bytes, line, writes, region.reduces, knows);
  if (conflict.grid == nullptr) return;
  const uint64_t statement = op.statement(cluster.index);
  if (launch_.report_again(kRule, line, Severity::kError, statement)) return;
  Finding finding;
  finding.statement = statement;
  finding.rule = kRule;
  std::copy_n(cluster.ctas[op.cta_rank]->id, 3, finding.cta);
  finding.warp = static_cast<int32_t>(op.warp);
  finding.lane = static_cast<int32_t>(op.lane);
  finding.ptx_line = line;
  if (op.insn != nullptr) finding.source = source_of(*launch_.code, *op.function, *op.insn);
  finding.object = launch_.memory->describe(region.begin);
  finding.message = message(conflict, writes ? "write of an asynchronous operation"
                                             : "read of an asynchronous operation");
  launch_.report(std::move(finding));
}

void GridDependencies::triggered(const Cta& cta, bool after_wait) {
  if (triggered_.insert(&cta).second) triggers_after_wait_ &= after_wait;
}

std::shared_ptr<const GridHistory> GridDependencies::history() const {
  GridHistory grids;
  if (launch_.earlier_grids != nullptr) {
    for (const EarlierGrid& grid : *launch_.earlier_grids) {
      const bool over_at_start = triggers_after_wait_ && grid.over_after_wait;
      if (over_at_start) continue;
      grids.push_back({grid.accesses, grid.kernel, any_waited_ && grid.over_after_wait});
    }
  }
  grids.push_back({own_, std::string(launch_.code->entry->name), true});
  if (grids.size() > kMostGrids) grids.erase(grids.begin());
  return std::make_shared<const GridHistory>(std::move(grids));
}

}  // namespace ptxemu
