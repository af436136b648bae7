#include "emulator/observe/undefined_values.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

namespace ptxemu {

namespace {

// Statements whose result is all that they do.
bool only_computes(const Insn& insn) {
  constexpr std::array<std::string_view, 36> kNames = {
      "abs",      "add", "and",  "bfe",  "bfi", "bfind", "brev", "clz",  "cnot",
      "copysign", "cvt", "cvta", "div",  "ex2", "fma",   "lg2",  "lop3", "mad",
      "max",      "min", "mov",  "mul",  "neg", "not",   "or",   "popc", "prmt",
      "rcp",      "rem", "sad",  "selp", "shf", "shl",   "shr",  "sub",  "xor"};
  if (insn.row == nullptr) return false;
  const std::string_view word = insn.row->mnemonic.substr(0, insn.row->mnemonic.find('.'));
  return std::find(kNames.begin(), kNames.end(), word) != kNames.end();
}

std::span<const SlotUse> uses_of(const CodeFunction& function, const Insn& insn) {
  const uint32_t begin = function.use_begin[insn.pc], end = function.use_begin[insn.pc + 1];
  return std::span(function.uses).subspan(begin, end - begin);
}

}  // namespace

void UndefinedValues::define(Slot slot, uint32_t bytes) {
  lines_.erase(lines_.lower_bound(slot), lines_.lower_bound(slot + bytes));
}

void UndefinedValues::loaded(const CodeFunction& function, const Insn& insn, Finding finding) {
  for (const SlotUse& use : uses_of(function, insn)) {
    if (use.written) lines_[use.slot] = insn.line;
  }
  findings_.insert_or_assign(insn.line, std::move(finding));
}

const Finding* UndefinedValues::runs(const CodeFunction& function, const Insn& insn) {
  uint32_t line = 0;
  if (insn.guard != kNoSlot && lines_.count(insn.guard) != 0) line = lines_[insn.guard];
  const bool guarded = line != 0;
  for (const SlotUse& use : uses_of(function, insn)) {
    const auto found = use.written ? lines_.end() : lines_.find(use.slot);
    if (found != lines_.end()) line = found->second;
  }
  const bool passes_on = line != 0 && !guarded && only_computes(insn);
  for (const SlotUse& use : uses_of(function, insn)) {
    if (!use.written) continue;
    define(use.slot, use.bytes);
    if (passes_on) lines_[use.slot] = line;
  }
  if (line == 0 || passes_on) return nullptr;
  std::erase_if(lines_, [line](const auto& entry) { return entry.second == line; });
  return &findings_.at(line);
}

}  // namespace ptxemu
