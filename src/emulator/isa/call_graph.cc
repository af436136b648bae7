#include "emulator/isa/call_graph.h"

#include <map>
#include <set>

namespace ptxemu {
namespace {

struct Calls {
  std::set<const Function*> callees;  // with a body
  bool by_pointer = false;
};

// "Control Flow Instructions: call" (PTX ISA 9.7.12.5): a list of results may stand before the
// function, which is a name or a register.
Calls calls_of(const Module& module, const Function& function) {
  Calls calls;
  for (const Statement& statement : function.statements) {
    if (statement.words.front() != "call") continue;
    for (const Operand& operand : statement.operands) {
      if (operand.kind == Operand::Kind::kList) continue;
      calls.by_pointer |= operand.kind == Operand::Kind::kRegister;
      const Function* callee = module.find(operand.text);
      if (callee != nullptr && !callee->is_declaration) calls.callees.insert(callee);
      break;
    }
  }
  return calls;
}

}  // namespace

// A function whose callees have all been done is done: what calls itself never is.
bool calls_are_bounded(const Module& module, const std::vector<const Function*>& functions) {
  std::map<const Function*, std::vector<const Function*>> callers;
  std::map<const Function*, size_t> callees_left;
  std::vector<const Function*> done;
  for (const Function* function : functions) {
    const Calls calls = calls_of(module, *function);
    if (calls.by_pointer) return false;
    for (const Function* callee : calls.callees) callers[callee].push_back(function);
    callees_left[function] = calls.callees.size();
    if (calls.callees.empty()) done.push_back(function);
  }
  for (size_t i = 0; i < done.size(); ++i) {
    for (const Function* caller : callers[done[i]]) {
      if (--callees_left[caller] == 0) done.push_back(caller);
    }
  }
  return done.size() == functions.size();
}

}  // namespace ptxemu
