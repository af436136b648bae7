// What registers hold: results of wgmma, whose four warps begin a product together, and values that
// nobody has written.
#include <algorithm>

#include "emulator/machine/cluster.h"
#include "emulator/machine/exec.h"
#include "emulator/machine/wgmma_op.h"
#include "emulator/observe/hazards.h"

namespace ptxemu {

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
  while (ops_.size() < op) ops_.emplace_back();
  OpRecord& issued = ops_[op - 1];
  issued.kind = EngineKind::kWgmma;
  issued.line = insn.line;
  issued.accumulates = wgmma_registers_[agent].issued(exec, insn, op);
  wgmma_waiting_[agent].push_back(snapshot(agent));
  multiplies_[agent] = true;
  // What any of them knows, the product comes after.
  const auto& warps = exec.cta->warps;
  const uint32_t first = exec.warp->index / 4 * 4;
  const uint32_t last = std::min<uint32_t>(first + 4, static_cast<uint32_t>(warps.size()));
  Knowledge together;
  for (uint32_t w = first; w < last; ++w) {
    if (warps[w]->done()) continue;
    if (wgmma_waiting_[warps[w]->agent].empty()) return;
    together.join(*wgmma_waiting_[warps[w]->agent].front());
  }
  const auto shared = std::make_shared<const Knowledge>(std::move(together));
  for (uint32_t w = first; w < last; ++w) {
    if (warps[w]->done()) continue;
    wgmma_waiting_[warps[w]->agent].pop_front();
    wgmma_begun_[warps[w]->agent].push_back(shared);
  }
}

}  // namespace ptxemu
