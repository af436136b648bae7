// What registers hold: results of wgmma, whose four warps begin a product together, and values that
// nobody has written.
#include <fmt/format.h>

#include <algorithm>

#include "emulator/machine/cluster.h"
#include "emulator/machine/exec.h"
#include "emulator/machine/wgmma_op.h"
#include "emulator/observe/hazards.h"

namespace ptxemu {

namespace {

constexpr const char* kWarpgroupRule = "wgmma-warpgroup";

}  // namespace

void ClusterHazards::load_undefined(const Exec& exec, const Insn& insn, const MissingBytes& missing,
                                    Finding finding) {
  exec.warp->watched = true;
  undefined_[exec.warp->agent].loaded(exec, insn, missing, std::move(finding));
}

void ClusterHazards::watched(const Exec& exec, const Insn& insn, const WgmmaUsers& users) {
  const CodeFunction& function = *exec.group->frame->function;
  undefined_[exec.warp->agent].runs(exec, insn);
  if (exec.mask == 0) return;
  WgmmaRegisters& registers = wgmma_registers_[exec.warp->agent];
  if (users.touches(function, insn.pc)) {
    std::vector<uint64_t> used;
    registers.touched(function, insn, &used);
    for (const uint64_t op : used) use_result(op, 0xff);
  } else if (kind_of(insn) == InstructionKind::kWgmma) {
    registers.check(exec, insn);
  }
}

void ClusterHazards::wgmma_issued(const Exec& exec, const Insn& insn) {
  const uint32_t agent = exec.warp->agent;
  const uint64_t op = exec.warp->state<WgmmaGroups>().recent.back();
  ops_.grow_to(op);
  OpRecord& issued = ops_[op - 1];
  issued.kind = EngineKind::kWgmma;
  issued.line = insn.line;
  issued.accumulates = wgmma_registers_[agent].issued(exec, insn, op);
  wgmma_waiting_[agent].push_back({op, snapshot(agent)});
  multiplies_[agent] = true;
  begin_product(exec, insn);
}

// "All threads in the warpgroup must execute the same wgmma.mma_async": the i-th of each warp is
// one product. What any of them knows, it comes after.
void ClusterHazards::begin_product(const Exec& exec, const Insn& insn) {
  const auto& warps = exec.cta->warps;
  const uint32_t first = exec.warp->index / 4 * 4;
  const uint32_t last = std::min<uint32_t>(first + 4, static_cast<uint32_t>(warps.size()));
  const uint32_t line = line_of(wgmma_waiting_[exec.warp->agent].front());
  std::string odd;  // who does not execute it
  if (last - first < 4) odd = fmt::format("the warpgroup has only {}", last - first);
  Knowledge together;
  for (uint32_t w = first; w < last; ++w) {
    const auto& waiting = wgmma_waiting_[warps[w]->agent];
    if (waiting.empty() && !warps[w]->done()) return;
    if (waiting.empty()) {
      odd = fmt::format("warp {} has exited without it", w);
      continue;
    }
    const uint32_t others = line_of(waiting.front());
    if (others != line) odd = fmt::format("warp {} executes the one at line {}", w, others);
    together.join(*waiting.front().knows);
  }
  if (!odd.empty()) {
    launch_.report(
        exec, insn, Severity::kError, kWarpgroupRule,
        fmt::format("all warps of a warpgroup must execute the same wgmma.mma_async: {}", odd));
  }
  const auto shared = std::make_shared<const Knowledge>(std::move(together));
  for (uint32_t w = first; w < last; ++w) {
    auto& waiting = wgmma_waiting_[warps[w]->agent];
    if (waiting.empty()) continue;
    waiting.pop_front();
    wgmma_begun_[warps[w]->agent].push_back(shared);
  }
}

// At the CTA's end: products that some warps of a warpgroup have not come to.
void ClusterHazards::check_waiting_products(const Exec& exec, const Insn& insn) {
  const uint32_t begin = exec.cta->rank * warps_per_cta();
  for (uint32_t w = 0; w < warps_per_cta(); ++w) {
    const auto& waiting = wgmma_waiting_[begin + w];
    if (waiting.empty()) continue;
    Finding finding = finding_at(exec, insn);
    finding.rule = kWarpgroupRule;
    finding.warp = static_cast<int32_t>(w);
    finding.ptx_line = line_of(waiting.front());
    finding.message = fmt::format(
        "all warps of a warpgroup must execute the same wgmma.mma_async: warp {} does, and another "
        "has exited without it",
        w);
    launch_.report(std::move(finding));
    w |= 3;  // one finding for each warpgroup
  }
}

}  // namespace ptxemu
