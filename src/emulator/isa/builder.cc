#include "emulator/isa/builder.h"

#include <fmt/format.h>

#include "emulator/error.h"

namespace ptxemu {
namespace {

uint64_t round_up(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Gives out `bytes` at the next multiple of `align`, *end being where the area ends so far. `bytes`
// is any number, so it is compared with what is left before anything is added to it.
uint32_t place(uint64_t bytes, uint64_t align, uint64_t most, uint32_t line, const char* what,
               uint32_t* end) {
  const uint64_t begin = round_up(*end, align);
  if (begin > most || bytes > most - begin) {
    throw Error(ErrorCode::kLaunch, line,
                fmt::format("{} of {} bytes do not fit after {} others; accepted: {} in all", what,
                            bytes, *end, most));
  }
  *end = static_cast<uint32_t>(begin + bytes);
  return static_cast<uint32_t>(begin);
}

}  // namespace

FunctionBuilder::FunctionBuilder(Program& program, const Function& function, CodeFunction& code,
                                 const SlotSharing* sharing)
    : program_(program),
      function_(function),
      code_(code),
      sharing_(sharing),
      register_slots_(function.registers.size(), kNoSlot),
      shared_slots_(sharing == nullptr ? 0 : sharing->slot_bits.size(), kNoSlot) {
  lay_out_params();
  lay_out_locals();
  code_.use_begin.push_back(0);
}

uint32_t FunctionBuilder::slot_bytes(int bits) {
  if (bits == 1) return 4;
  return static_cast<uint32_t>(bits <= 16 ? 64 : bits * 4);
}

Slot FunctionBuilder::allocate(int bits) {
  const uint32_t bytes = slot_bytes(bits);
  const Slot slot = place(bytes, bits == 1 ? 4 : 64, kMostRegisterBytes, function_.line,
                          "registers of a warp", &code_.register_bytes);
  code_.slot_bytes.resize(round_up(code_.register_bytes, 4) / 4);
  code_.slot_bytes[slot / 4] = static_cast<uint16_t>(bytes);
  return slot;
}

const Register& FunctionBuilder::register_at(uint32_t index) const {
  return function_.registers.at(index);
}

Slot FunctionBuilder::register_slot(uint32_t index) {
  Slot& slot = register_slots_.at(index);
  if (slot != kNoSlot) return slot;
  const int bits = bits_of(register_at(index).type);
  const uint32_t place = sharing_ == nullptr ? SlotSharing::kUnused : sharing_->slot_of.at(index);
  if (place == SlotSharing::kUnused) return slot = allocate(bits);
  if (shared_slots_.at(place) == kNoSlot) shared_slots_[place] = allocate(bits);
  return slot = shared_slots_[place];
}

std::map<Slot, uint32_t> FunctionBuilder::registers_by_slot() const {
  std::map<Slot, uint32_t> result;
  for (uint32_t i = 0; i < register_slots_.size(); ++i) {
    if (register_slots_[i] != kNoSlot) result[register_slots_[i]] = i;
  }
  return result;
}

Slot FunctionBuilder::sink(int bits) {
  const auto [entry, is_new] = sinks_.try_emplace(bits, kNoSlot);
  if (is_new) entry->second = allocate(bits);
  return entry->second;
}

Slot FunctionBuilder::carry_slot() {
  if (carry_ == kNoSlot) carry_ = allocate(1);
  return carry_;
}

Slot FunctionBuilder::constant(uint64_t value, int bits, ConstantSlot::Base base) {
  if (bits == 8) bits = 16;
  if (base == ConstantSlot::Base::kNone && bits < 64) value &= (uint64_t{1} << bits) - 1;
  const auto [entry, is_new] = constants_.try_emplace({bits, base, value}, kNoSlot);
  if (is_new) {
    entry->second = allocate(bits);
    code_.constants.push_back({entry->second, bits, base, value});
  }
  return entry->second;
}

// A parameter of a function that is not the kernel, or of a call: in the frame's .param area, by
// its own alignment ("Parameter State Space"; PTX ISA 5.1.6).
uint32_t FunctionBuilder::add_param(const Variable& variable, uint32_t reg,
                                    std::vector<ParamVariable>* list) {
  if (reg != kNoRegister && register_at(reg).type == Type::kPred) {
    throw Error(ErrorCode::kUnknownForm, variable.line,
                fmt::format("{} is a predicate; accepted as parameters: registers of 8 to 128 bits",
                            variable.name));
  }
  const uint32_t offset = place(variable.bytes, variable.align, kMostCallParamBytes, variable.line,
                                ".param variables of calls", &code_.param_bytes);
  ParamVariable param{variable.name, offset, static_cast<uint32_t>(variable.bytes), kNoSlot};
  if (reg != kNoRegister) param.slot = register_slot(reg);
  if (list != nullptr) list->push_back(param);
  if (list == nullptr) scratch_[&variable] = param;
  return param.offset;
}

void FunctionBuilder::lay_out_params() {
  if (!function_.is_entry) {
    for (size_t i = 0; i < function_.params.size(); ++i) {
      add_param(function_.params[i], function_.param_registers.at(i), &code_.params);
    }
    for (size_t i = 0; i < function_.results.size(); ++i) {
      add_param(function_.results[i], function_.result_registers.at(i), &code_.results);
    }
  }
  for (const Variable& variable : function_.variables) {
    if (variable.space == Space::kParam) add_param(variable, kNoRegister, nullptr);
  }
}

void FunctionBuilder::lay_out_locals() {
  for (const Variable& variable : function_.variables) {
    if (variable.space != Space::kLocal) continue;
    locals_[&variable] = place(variable.bytes, variable.align, kMostLocalBytes, variable.line,
                               ".local variables of a thread", &code_.local_bytes);
  }
  code_.local_bytes = static_cast<uint32_t>(round_up(code_.local_bytes, 16));
}

FunctionBuilder::Symbol FunctionBuilder::address_of(const Variable& variable, bool is_local) const {
  using Base = ConstantSlot::Base;
  switch (variable.space) {
    case Space::kShared:
    case Space::kSharedCluster:
      return {Space::kShared, variable.is_extern ? Base::kDynamicShared : Base::kShared,
              program_.shared.at(&variable)};
    case Space::kLocal: return {Space::kLocal, Base::kLocal, locals_.at(&variable)};
    case Space::kParam:
      return {Space::kParam, Base::kNone, kFrameParams + scratch_.at(&variable).offset};
    default: break;
  }
  // The symbols are the module's: one of a body may have the name of one of them.
  const auto found = program_.symbols.find(variable.name);
  if (is_local || found == program_.symbols.end()) {
    throw Error(ErrorCode::kUnknownForm, variable.line,
                "variable " + std::string(variable.name) + " in ." +
                    std::string(name_of(variable.space)) +
                    " has no address in this machine; accepted: one in .global, .const, .shared, "
                    ".local, .param");
  }
  return {variable.space, Base::kNone, found->second};
}

FunctionBuilder::Symbol FunctionBuilder::address_of(const Operand& operand) const {
  using Kind = Operand::Kind;
  if (operand.kind == Kind::kFunction) {
    const Function* function = program_.module.find(operand.text);
    if (function == nullptr) {
      throw Error(
          ErrorCode::kSyntax, 0,
          "no function " + std::string(operand.text) + "; accepted: a function of the module");
    }
    return {Space::kGlobal, ConstantSlot::Base::kNone,
            kFunctionWindow + static_cast<uint64_t>(function - program_.module.functions.data())};
  }
  if (operand.kind == Kind::kVariable) {
    const bool is_local = operand.is_local_variable;
    return address_of(is_local ? function_.variables.at(operand.index)
                               : program_.module.variables.at(operand.index),
                      is_local);
  }
  if (operand.kind == Kind::kParameter && function_.is_entry) {
    return {Space::kParam, ConstantSlot::Base::kNone,
            program_.code.param_offsets.at(operand.index)};
  }
  const ParamVariable* param = param_variable(operand);
  if (param == nullptr)
    throw Error(ErrorCode::kSyntax, 0,
                "an operand that has no address; accepted: a variable, parameter or function");
  return {Space::kParam, ConstantSlot::Base::kNone, kFrameParams + param->offset};
}

const ParamVariable* FunctionBuilder::param_variable(const Operand& operand) const {
  using Kind = Operand::Kind;
  if (operand.kind == Kind::kParameter && !function_.is_entry) {
    return &code_.params.at(operand.index);
  }
  if (operand.kind == Kind::kResult) return &code_.results.at(operand.index);
  if (operand.kind == Kind::kVariable && operand.is_local_variable) {
    const auto found = scratch_.find(&function_.variables.at(operand.index));
    return found == scratch_.end() ? nullptr : &found->second;
  }
  return nullptr;
}

const CodeFunction* FunctionBuilder::callee(std::string_view name) const {
  const Function* function = program_.module.find(name);
  if (function == nullptr) return nullptr;
  const auto found = program_.code.functions.find(function->name);
  return found == program_.code.functions.end() ? nullptr : found->second.get();
}

void FunctionBuilder::use(Slot slot, uint32_t bytes, bool written) {
  code_.uses.push_back({slot, static_cast<uint16_t>(bytes), written});
}

void FunctionBuilder::append(const Insn& insn) {
  code_.code.push_back(insn);
  code_.code.back().pc = static_cast<uint32_t>(code_.code.size() - 1);
  code_.use_begin.push_back(static_cast<uint32_t>(code_.uses.size()));
}

}  // namespace ptxemu
