#include "executed_rows.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <map>
#include <set>
#include <string_view>

#include "emulator/isa/insn.h"
#include "emulator/parse/ast.h"

namespace ptxemu::fuzz {
namespace {

std::set<size_t>& executed() {  // places in all_rows()
  static std::set<size_t> rows;
  return rows;
}

// Known and always refused, by a message that says why.
bool is_refused(const InstructionRow& row) {
  static constexpr std::string_view kRefused[] = {"multimem",       "tcgen05.mma.sp",
                                                  "tcgen05.mma.ws", "wgmma.mma_async.sp",
                                                  "mma.sp",         "mma.sp::ordered_metadata"};
  return std::find(std::begin(kRefused), std::end(kRefused), row.mnemonic) != std::end(kRefused);
}

}  // namespace

void note_executed_rows(std::string ptx, const LaunchReport& report) {
  std::set<uint32_t> lines;
  for (const ReportedLines& warp : report.line_counts) {
    for (const auto& [line, times] : warp.lines) lines.insert(line);
  }
  // Where a launch ends as a trap, the statement has run too.
  for (const ReportedFinding& finding : report.findings) lines.insert(finding.ptx_line);
  const auto module = parse_module(std::move(ptx), "fuzz.ptx");
  std::map<uint32_t, const Statement*> alone;  // null: several on the line
  for (const Function& function : module->functions) {
    for (const Statement& statement : function.statements) {
      const auto [entry, is_new] = alone.try_emplace(statement.line, &statement);
      if (!is_new) entry->second = nullptr;
    }
  }
  for (const auto& [line, statement] : alone) {
    if (statement == nullptr || lines.count(line) == 0) continue;
    size_t covered = 0;
    const InstructionRow* row = find_row(statement->words, &covered);
    if (row != nullptr) executed().insert(static_cast<size_t>(row - all_rows().data()));
  }
}

}  // namespace ptxemu::fuzz

void fuzz_reached(uint64_t* bits, size_t words) {
  for (const size_t row : ptxemu::fuzz::executed()) {
    if (row / 64 < words) bits[row / 64] |= uint64_t{1} << row % 64;
  }
}

void fuzz_describe(const uint64_t* bits, size_t words) {
  const auto rows = ptxemu::all_rows();
  size_t executed = 0, known = 0;
  std::string missing;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (ptxemu::fuzz::is_refused(rows[i])) continue;
    const bool found = i / 64 < words && (bits[i / 64] >> i % 64 & 1) != 0;
    ++known;
    executed += found;
    if (!found) missing += " " + std::string(rows[i].mnemonic);
  }
  std::printf("%zu of %zu rows of the instruction table executed%s%s\n", executed, known,
              missing.empty() ? "" : "; not:", missing.c_str());
}
