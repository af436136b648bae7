#include "emulator/observe/line_counts.h"

#include <algorithm>
#include <map>

#include "emulator/isa/code.h"
#include "emulator/machine/cluster.h"

namespace ptxemu {

uint64_t* InstructionCounts::of(const CodeFunction& function) {
  for (auto& [known, counts] : functions_) {
    if (known == &function) return counts.data();
  }
  functions_.emplace_back(&function, std::vector<uint64_t>(function.code.size()));
  return functions_.back().second.data();
}

std::vector<std::pair<uint32_t, uint64_t>> InstructionCounts::by_line() const {
  std::map<uint32_t, uint64_t> lines;
  for (const auto& [function, counts] : functions_) {
    for (size_t pc = 0; pc < counts.size(); ++pc) {
      if (counts[pc] == 0) continue;
      uint64_t& line = lines[function->code[pc].line];
      line = std::max(line, counts[pc]);
    }
  }
  return {lines.begin(), lines.end()};
}

uint64_t collect_lines(const Cluster& cluster, std::vector<WarpLines>* lines) {
  uint64_t bytes = 0;
  for (const auto& cta : cluster.ctas) {
    for (const auto& warp : cta->warps) {
      WarpLines of_warp;
      std::copy_n(cta->id, 3, of_warp.cta);
      of_warp.warp = warp->index;
      const auto& counts = warp->state<InstructionCounts>();
      of_warp.seconds = counts.seconds();
      of_warp.lines = counts.by_line();
      bytes += sizeof of_warp + of_warp.lines.size() * sizeof of_warp.lines[0];
      lines->push_back(std::move(of_warp));
    }
  }
  return bytes;
}

}  // namespace ptxemu
