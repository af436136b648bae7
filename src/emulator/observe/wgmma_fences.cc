#include "emulator/observe/wgmma_fences.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "emulator/machine/exec.h"
#include "emulator/machine/wgmma_op.h"

namespace ptxemu {

namespace {

constexpr Slot kUnit = 64;  // the smallest register: 32 lanes of 16 bits

bool is_wgmma(const Insn& insn) {
  const InstructionKind kind = kind_of(insn);
  return kind == InstructionKind::kWgmma || kind == InstructionKind::kWgmmaSync ||
         kind == InstructionKind::kWgmmaWait;
}

std::set<Slot> wgmma_registers(const CodeFunction& function) {
  std::set<Slot> units;
  for (const Insn& insn : function.code) {
    if (!is_wgmma(insn)) continue;
    for (uint16_t i = 0; i < insn.list_size; ++i) {
      units.insert(insn.list[i] / kUnit);
      units.insert(insn.list[i] / kUnit + 1);
    }
  }
  return units;
}

}  // namespace

WgmmaUsers::WgmmaUsers(const Code& code) {
  for (const auto& [name, function] : code.functions) {
    const std::set<Slot> units = wgmma_registers(*function);
    if (units.empty()) continue;
    auto& touching = by_function_[function.get()];
    touching.resize(function->code.size());
    for (uint32_t pc = 0; pc < function->code.size(); ++pc) {
      if (is_wgmma(function->code[pc]) || pc + 1 >= function->use_begin.size()) continue;
      for (uint32_t u = function->use_begin[pc]; u < function->use_begin[pc + 1]; ++u) {
        if (units.count(function->uses[u].slot / kUnit) != 0) touching[pc] = true;
      }
    }
  }
}

bool WgmmaUsers::touches(const CodeFunction& function, uint32_t pc) const {
  const auto found = by_function_.find(&function);
  return found != by_function_.end() && pc < found->second.size() && found->second[pc];
}

void WgmmaRegisters::touched(const CodeFunction& function, const Insn& insn,
                             std::vector<uint64_t>* used) {
  for (uint32_t u = function.use_begin[insn.pc]; u < function.use_begin[insn.pc + 1]; ++u) {
    const SlotUse& use = function.uses[u];
    const Slot last = (use.slot + use.bytes - 1) / kUnit;
    if (last >= uses_.size()) uses_.resize(last + 1);
    for (Slot unit = use.slot / kUnit; unit <= last; ++unit) {
      Use& now = uses_[unit];
      const bool only_moves = insn.is_move && (now.since != fences_ + 1 || now.is_move);
      const uint64_t result = now.result_of;
      if (!use.written && result != 0) used->push_back(result);
      now = {fences_ + 1, insn.line, only_moves, use.written ? 0 : result};
    }
  }
}

void WgmmaRegisters::check(const Exec& exec, const Insn& insn) const {
  constexpr const char* kRule = "missing-wgmma-fence";
  if (fences_ == 0) {
    exec.launch->report(exec, insn, Severity::kError, kRule,
                        "the first wgmma of a warp comes without a wgmma.fence before it");
    return;
  }
  for (uint16_t i = 0; i < insn.list_size; ++i) {
    const Slot unit = insn.list[i] / kUnit;
    if (unit >= uses_.size() || uses_[unit].since != fences_ + 1) continue;
    // Compilers put copies of registers after the fence.
    const Severity severity = uses_[unit].is_move ? Severity::kFormal : Severity::kError;
    exec.launch->report(exec, insn, severity, kRule,
                        fmt::format("a register of this wgmma is touched at line {}, and no "
                                    "wgmma.fence follows",
                                    uses_[unit].line));
    if (severity == Severity::kError) return;
  }
}

uint64_t WgmmaRegisters::issued(const Exec& exec, const Insn& insn, uint64_t op) {
  const auto& form = insn.form<WgmmaForm>();
  const uint32_t scale = exec.predicate(form.accumulates) >> exec.first_lane() & 1;
  uint64_t before = 0;
  for (uint32_t i = 0; i < form.d_registers; ++i) {
    const Slot unit = insn.list[i] / kUnit;
    if (unit + 1 >= uses_.size()) uses_.resize(unit + 2);
    before = std::max(before, uses_[unit].result_of);
    uses_[unit].result_of = uses_[unit + 1].result_of = op;
  }
  return (scale != 0) != form.accumulates_negated ? before : 0;
}

}  // namespace ptxemu
