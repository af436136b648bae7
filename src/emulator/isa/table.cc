// The rows of every family in one index.
#include <algorithm>
#include <unordered_map>
#include <vector>

#include "emulator/isa/alu_rows.h"
#include "emulator/isa/insn.h"

namespace ptxemu {
namespace {

struct Entry {
  const InstructionRow* row;
  std::vector<std::string_view> words;
};

// One line a family.
using Family = std::span<const InstructionRow> (*)();
constexpr Family kFamilies[] = {
    tma_rows,     async_copy_rows,     fence_rows,       mbarrier_rows,
    atomic_rows,  memory_rows,         integer_rows,     bit_rows,
    logic_rows,   float_rows,          sign_rows,        transcendental_rows,
    compare_rows, select_rows,         convert_rows,     move_rows,
    address_rows, launch_control_rows, warp_rows,        barrier_rows,
    control_rows, tensor_memory_rows,  tensor_core_rows, wgmma_rows,
    mma_rows,
};

std::vector<std::string_view> split(std::string_view mnemonic) {
  std::vector<std::string_view> words;
  while (true) {
    const size_t dot = mnemonic.find('.');
    words.push_back(mnemonic.substr(0, dot));
    if (dot == std::string_view::npos) return words;
    mnemonic.remove_prefix(dot + 1);
  }
}

using Index = std::unordered_map<std::string_view, std::vector<Entry>>;

// By first word; the rows with the most words first.
const Index& index() {
  static const Index* const kBuilt = [] {  // outlives every static object that may use it
    Index result;
    for (const InstructionRow& row : all_rows()) {
      auto words = split(row.mnemonic);
      result[words.front()].push_back({&row, std::move(words)});
    }
    for (auto& [word, entries] : result) {
      std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
        return a.words.size() > b.words.size();
      });
    }
    return new Index(std::move(result));
  }();
  return *kBuilt;
}

}  // namespace

std::span<const InstructionRow> all_rows() {
  static const std::vector<InstructionRow>* const kRows = [] {  // as index()
    std::vector<InstructionRow> result;
    for (const Family family : kFamilies) {
      const auto some = family();
      result.insert(result.end(), some.begin(), some.end());
    }
    return new std::vector<InstructionRow>(std::move(result));
  }();
  return *kRows;
}

const InstructionRow* find_row(std::span<const std::string_view> words, size_t* covered) {
  if (words.empty()) return nullptr;
  const auto found = index().find(words.front());
  if (found == index().end()) return nullptr;
  for (const Entry& entry : found->second) {
    if (entry.words.size() > words.size()) continue;
    if (!std::equal(entry.words.begin(), entry.words.end(), words.begin())) continue;
    *covered = entry.words.size();
    return entry.row;
  }
  return nullptr;
}

}  // namespace ptxemu
