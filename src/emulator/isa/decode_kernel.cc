// From a module to a kernel that can run: which functions it needs, where its parameters and its
// shared variables lie, and each statement as an instruction.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "emulator/error.h"
#include "emulator/isa/builder.h"
#include "emulator/isa/call_graph.h"
#include "emulator/isa/cluster_contact.h"
#include "emulator/isa/control.h"
#include "emulator/isa/control_flow.h"
#include "emulator/isa/decoder.h"
#include "emulator/isa/target.h"
#include "emulator/isa/tensor_forms.h"
#include "emulator/machine/memory.h"

namespace ptxemu {
namespace {

using Kind = Operand::Kind;

uint64_t round_up(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

template <class Visit>
void visit_operands(const Operand& operand, const Visit& visit) {
  visit(operand);
  for (const Operand& inner : operand.list) visit_operands(inner, visit);
}

template <class Visit>
void visit_operands(const Function& function, const Visit& visit) {
  for (const Statement& statement : function.statements) {
    for (const Operand& operand : statement.operands) visit_operands(operand, visit);
  }
}

// The kernel and every function with a body that it can reach: called by name, through a list of
// targets, or whose address it or a variable that it names holds (tables of virtual functions).
std::vector<const Function*> reachable(const Module& module, const Function& entry) {
  std::vector<const Function*> found{&entry};
  std::set<const Function*> known{&entry};
  const auto add = [&](std::string_view name) {
    const Function* function = module.find(name);
    if (function == nullptr || function->is_declaration) return;
    if (known.insert(function).second) found.push_back(function);
  };
  std::map<std::string_view, const Variable*> variables;
  for (const Variable& variable : module.variables) variables.emplace(variable.name, &variable);
  std::set<const Variable*> seen;
  // Tables name tables: those that are left to look into stand in a list, however long the chain.
  const auto look_into = [&](const Variable& first) {
    std::vector<const Variable*> left{&first};
    while (!left.empty()) {
      const Variable& variable = *left.back();
      left.pop_back();
      if (variable.init.empty() || !seen.insert(&variable).second) continue;
      for (const Initializer& init : variable.init) {
        if (init.kind != Initializer::Kind::kAddress) continue;
        add(init.symbol);
        const auto other = variables.find(init.symbol);
        if (other != variables.end()) left.push_back(other->second);
      }
    }
  };
  for (size_t i = 0; i < found.size(); ++i) {
    const Function& function = *found[i];
    visit_operands(function, [&](const Operand& operand) {
      if (operand.kind == Kind::kFunction) add(operand.text);
      if (operand.kind != Kind::kVariable || operand.is_local_variable) return;
      look_into(module.variables.at(operand.index));
    });
    for (const TargetList& targets : function.targets) {
      for (const std::string_view name : targets.functions) add(name);
    }
  }
  return found;
}

// Static variables from the end of the system's part on, in the order of first use; those of
// unknown size share the place after them ("Shared State Space"; PTX ISA 5.1.7).
class SharedLayout {
 public:
  explicit SharedLayout(Program& program) : program_(program) {}

  void add(const Variable& variable) {
    if (variable.space != Space::kShared && variable.space != Space::kSharedCluster) return;
    if (!program_.shared.emplace(&variable, 0).second) return;
    if (variable.is_extern) {
      code().dynamic_shared_align =
          std::max(code().dynamic_shared_align, static_cast<uint32_t>(variable.align));
      code().shared.push_back({variable.name, 0, 0});
      return;
    }
    const uint64_t offset = code().next_shared(variable.align);
    if (offset > kOffsetMask || variable.bytes > kOffsetMask - offset) {
      throw Error(
          ErrorCode::kLaunch, variable.line,
          fmt::format("`{}` of {} bytes after {} others in .shared; accepted: 16 MiB in all",
                      variable.name, variable.bytes, offset));
    }
    program_.shared[&variable] = static_cast<uint32_t>(offset);
    code().static_shared_end = static_cast<uint32_t>(offset + variable.bytes);
    code().shared.push_back(
        {variable.name, static_cast<uint32_t>(offset), static_cast<uint32_t>(variable.bytes)});
  }

  void finish() {
    if (code().dynamic_shared_begin() > kOffsetMask) {
      throw Error(ErrorCode::kLaunch, 0,
                  fmt::format("dynamic shared memory that begins at {}; accepted: at most 16 MiB",
                              code().dynamic_shared_begin()));
    }
    for (SharedVariable& variable : code().shared) {
      if (variable.bytes == 0) variable.offset = code().dynamic_shared_begin();
    }
  }

 private:
  Code& code() { return program_.code; }
  Program& program_;
};

void lay_out_shared(Program& program, const std::vector<const Function*>& functions) {
  SharedLayout layout(program);
  for (const Function* function : functions) {
    visit_operands(*function, [&](const Operand& operand) {
      if (operand.kind != Kind::kVariable || operand.is_local_variable) return;
      layout.add(program.module.variables.at(operand.index));
    });
    for (const Variable& variable : function->variables) layout.add(variable);
  }
  layout.finish();
}

// "Kernel Function Parameters" (PTX ISA 5.1.6.1): one after the other, each at its alignment.
void lay_out_params(const Function& entry, Code& code) {
  uint64_t end = 0;
  for (const Variable& param : entry.params) {
    const uint64_t offset = round_up(end, param.align);
    if (offset > kMostKernelParamBytes || param.bytes > kMostKernelParamBytes - offset) {
      throw Error(ErrorCode::kLaunch, param.line,
                  fmt::format("a parameter of {} bytes after {} of others; accepted: {} in all",
                              param.bytes, end, kMostKernelParamBytes));
    }
    end = offset + param.bytes;
    code.param_offsets.push_back(static_cast<uint32_t>(offset));
    code.param_sizes.push_back(static_cast<uint32_t>(param.bytes));
  }
  code.param_bytes = static_cast<uint32_t>(end);
}

void note_constants(Program& program) {
  for (const Variable& variable : program.module.variables) {
    const auto address = program.symbols.find(variable.name);
    if (variable.space != Space::kConst || address == program.symbols.end()) continue;
    program.code.constants[address->second] = variable.bytes;
  }
}

Insn decode_statement(FunctionBuilder& builder, const Statement& statement) {
  check_in_target(statement.words, statement.operands.size(), builder.program().module.target);
  size_t covered = 0;
  const InstructionRow* row = find_row(statement.words, &covered);
  if (row == nullptr) {
    throw Error(
        ErrorCode::kUnknownForm, statement.line,
        statement_error("no instruction of this name is known; accepted: those of docs/emulator.md",
                        statement.text));
  }
  Insn insn;
  insn.line = statement.line;
  insn.source = statement.source;
  insn.row = row;
  insn.is_move = row->kind == InstructionKind::kMov;
  insn.pc = static_cast<uint32_t>(builder.code().code.size());
  Decoder decoder(builder, statement, *row, covered);
  if (statement.guard.present) {
    Operand guard;
    guard.kind = Kind::kRegister;
    guard.index = statement.guard.reg;
    insn.guard = decoder.source(guard, Type::kPred);
    insn.guard_negated = statement.guard.negated;
  }
  row->decode(decoder, insn);
  decoder.finish();
  return insn;
}

// The instruction after the last: lanes that come here return.
Insn final_return(const Function& function) {
  Insn insn;
  insn.run = return_from_function;
  insn.line = function.statements.empty() ? function.line : function.statements.back().line;
  return insn;
}

void decode_body(FunctionBuilder& builder, const ControlFlow& flow) {
  const Function& function = builder.function();
  CodeFunction& code = builder.code();
  code.sources = function.sources;
  for (const auto& [name, statement] : function.labels) {
    code.labels.emplace_back(name, builder.pc_of(statement));
  }
  for (size_t i = 0; i < function.statements.size(); ++i) {
    const Statement& statement = function.statements[i];
    try {
      Insn insn = decode_statement(builder, statement);
      const uint32_t meet = flow.reconverge[i];
      if (meet != kNoReconvergence) insn.reconverge = builder.pc_of(meet);
      builder.append(insn);
    } catch (const Error& error) {
      if (error.line() != 0) throw;
      throw Error(error.code(), statement.line, statement_error(error.what(), statement.text));
    }
  }
  builder.append(final_return(function));
}

// What each statement reads and writes is what its instruction says, so the function is decoded
// once with a slot for every register. wgmma goes on using its registers until a wait_group, of
// which those that leave groups pending may have left its own.
SlotSharing sharing_of(Program& program, const Function& function, const ControlFlow& flow) {
  CodeFunction trial;
  FunctionBuilder builder(program, function, trial);
  decode_body(builder, flow);
  const auto registers = builder.registers_by_slot();
  return share_slots(function, flow, [&](uint32_t statement, RegisterUses* uses) {
    const InstructionKind kind = kind_of(trial.code[statement]);
    uses->settles = kind == InstructionKind::kWgmmaWait &&
                    trial.code[statement].form<WgmmaGroupWait>().may_stay == 0;
    for (uint32_t i = trial.use_begin[statement]; i < trial.use_begin[statement + 1]; ++i) {
      const auto found = registers.find(trial.uses[i].slot);
      if (found == registers.end()) continue;
      (trial.uses[i].written ? uses->writes : uses->reads).push_back(found->second);
      if (kind == InstructionKind::kWgmma) uses->holds.push_back(found->second);
    }
  });
}

// Parameters in registers are touched by the caller, whom no statement here shows.
bool may_share(const Function& function) {
  const auto none = [](const std::vector<uint32_t>& registers) {
    return std::all_of(registers.begin(), registers.end(),
                       [](uint32_t reg) { return reg == kNoRegister; });
  };
  return none(function.param_registers) && none(function.result_registers);
}

// Registers that the checker follows; a caller writes those of parameters.
void note_unwritten(FunctionBuilder& builder, const SlotSharing& sharing) {
  const auto& params = builder.function().param_registers;
  for (const uint32_t reg : sharing.unwritten) {
    if (std::find(params.begin(), params.end(), reg) != params.end()) continue;
    const Register& known = builder.register_at(reg);
    const uint32_t bytes = FunctionBuilder::slot_bytes(bits_of(known.type));
    builder.code().unwritten.push_back(
        {builder.register_slot(reg), static_cast<uint16_t>(bytes), known.name});
  }
}

void decode_function(Program& program, const Function& function, CodeFunction& code) {
  const ControlFlow flow = analyze(function);
  const SlotSharing sharing = sharing_of(program, function, flow);
  FunctionBuilder builder(program, function, code, may_share(function) ? &sharing : nullptr);
  decode_body(builder, flow);
  note_unwritten(builder, sharing);
}

void number_statements(Code& code) {
  for (const auto& [name, function] : code.functions) {
    for (Insn& insn : function->code) {
      insn.statement = static_cast<uint32_t>(code.lines.size());
      code.lines.push_back(insn.line);
    }
  }
}

}  // namespace

std::shared_ptr<const Code> decode_kernel(std::shared_ptr<const Module> module,
                                          std::string_view name, const SymbolAddresses& symbols) {
  const Function* entry = module->find(name);
  if (entry == nullptr || !entry->is_entry || entry->is_declaration) {
    throw Error(ErrorCode::kLaunch, 0,
                "the module has no kernel " + std::string(name) +
                    "; accepted: the name of an .entry with a body");
  }
  auto code = std::make_shared<Code>();
  code->module = module;
  code->entry = entry;
  Program program{*module, symbols, *code, {}};
  const auto functions = reachable(*module, *entry);
  lay_out_params(*entry, *code);
  lay_out_shared(program, functions);
  note_constants(program);
  for (const Function* function : functions) {
    auto made = std::make_unique<CodeFunction>();
    made->name = function->name;
    made->is_entry = function->is_entry;
    code->functions.emplace(function->name, std::move(made));
  }
  code->clusters_meet = std::any_of(functions.begin(), functions.end(), may_meet);
  code->calls_are_bounded = calls_are_bounded(*module, functions);
  for (const Function* function : functions) {
    decode_function(program, *function, *code->functions.at(function->name));
  }
  number_statements(*code);
  code->main = code->functions.at(entry->name).get();
  return code;
}

}  // namespace ptxemu
