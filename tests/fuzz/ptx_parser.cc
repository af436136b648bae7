// Any bytes are either an Error or a module whose every index and text is inside what it points to,
// and whose functions the passes over statements can work on.
#include <cstddef>
#include <cstdint>
#include <string>

#include "emulator/error.h"
#include "emulator/isa/control_flow.h"
#include "emulator/isa/liveness.h"
#include "emulator/parse/ast.h"

namespace ptxemu {
namespace {

void check(bool holds) {
  if (!holds) __builtin_trap();
}

class Checker {
 public:
  explicit Checker(const Module& module) : module_(module) {}

  void check_module() const {
    for (const Variable& variable : module_.variables) check_variable(variable);
    for (const Function& function : module_.functions) check_function(function);
    for (const auto& [number, name] : module_.files) check_text(name);
  }

 private:
  void check_text(std::string_view text) const {
    if (text.empty()) return;
    const std::string& whole = module_.text;
    const bool is_inside =
        text.data() >= whole.data() && text.data() + text.size() <= whole.data() + whole.size();
    bool is_made = false;
    if (!is_inside) {
      for (const std::string& name : module_.made_names) is_made |= name.data() == text.data();
    }
    check(is_inside || is_made);
  }

  void check_variable(const Variable& variable) const {
    check_text(variable.name);
    check(variable.align != 0 && (variable.align & (variable.align - 1)) == 0);
    const uint64_t step = static_cast<uint64_t>(bytes_of(variable.type));
    for (const Initializer& value : variable.init) {
      check(value.byte_offset + step <= variable.bytes);
      check_text(value.symbol);
    }
  }

  void check_function(const Function& function) const {
    check(function.params.size() == function.param_registers.size());
    check(function.results.size() == function.result_registers.size());
    for (const Variable& variable : function.variables) check_variable(variable);
    const size_t count = function.statements.size();
    for (const auto& [name, index] : function.labels) check(index <= count);
    for (const TargetList& list : function.targets) {
      for (const uint32_t index : list.statements) check(index <= count);
    }
    for (const SourceLocation& place : function.sources) {
      check(place.inlined_at < function.sources.size());
    }
    for (const Statement& statement : function.statements) {
      check(!statement.words.empty() && statement.source < function.sources.size());
      check(!statement.guard.present || statement.guard.reg < function.registers.size());
      check_text(statement.text);
      for (const Operand& operand : statement.operands) check_operand(function, operand);
    }
    check_passes(function);
  }

  // The first operand is written, as most instructions do, and the others are read.
  static void check_passes(const Function& function) {
    const ControlFlow flow = analyze(function);
    check(flow.block_of.size() == function.statements.size());
    for (const uint32_t place : flow.reconverge) {
      check(place == kNoReconvergence || place <= function.statements.size());
    }
    const SlotSharing sharing =
        share_slots(function, flow, [&](uint32_t index, RegisterUses* uses) {
          const Statement& statement = function.statements[index];
          for (const Operand& operand : statement.operands) {
            if (operand.kind != Operand::Kind::kRegister) continue;
            const bool is_first = &operand == statement.operands.data();
            (is_first ? uses->writes : uses->reads).push_back(operand.index);
          }
          if (statement.words[0] == "tcgen05") uses->holds = uses->writes;
          uses->settles = statement.words[0] == "ret";
        });
    for (const uint32_t slot : sharing.slot_of) {
      check(slot == SlotSharing::kUnused || slot < sharing.slot_bits.size());
    }
  }

  void check_operand(const Function& function, const Operand& operand) const {
    using Kind = Operand::Kind;
    check_text(operand.text);
    const size_t limit = operand.kind == Kind::kRegister    ? function.registers.size()
                         : operand.kind == Kind::kParameter ? function.params.size()
                         : operand.kind == Kind::kResult    ? function.results.size()
                         : operand.kind == Kind::kLabel     ? function.statements.size() + 1
                         : operand.kind == Kind::kTargets   ? function.targets.size()
                         : operand.kind != Kind::kVariable  ? SIZE_MAX
                         : operand.is_local_variable        ? function.variables.size()
                                                            : module_.variables.size();
    check(operand.index < limit);
    if (operand.kind == Kind::kPair) check(operand.list.size() == 2);
    if (operand.kind == Kind::kAddress) check(operand.list.size() == 1);
    if (operand.kind == Kind::kTensor) check(operand.list.size() >= 2);
    for (const Operand& part : operand.list) check_operand(function, part);
  }

  const Module& module_;
};

}  // namespace
}  // namespace ptxemu

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto module =
        ptxemu::parse_module(std::string(reinterpret_cast<const char*>(data), size), "fuzz");
    ptxemu::Checker(*module).check_module();
  } catch (const ptxemu::Error&) {
  }
  return 0;
}
