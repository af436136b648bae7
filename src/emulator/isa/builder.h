// What a function is while it is decoded: slots for its registers and constants, addresses of its
// variables, and what its instructions own.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <tuple>
#include <vector>

#include "emulator/isa/code.h"
#include "emulator/isa/liveness.h"
#include "emulator/parse/ast.h"

namespace ptxemu {

// What the functions of one kernel share while they are decoded.
struct Program {
  const Module& module;
  const SymbolAddresses& symbols;
  Code& code;
  std::map<const Variable*, uint32_t> shared;  // offsets of .shared variables; dynamic ones: 0
};

class FunctionBuilder {
 public:
  // `sharing`, which must outlive it: the slots of the registers; null: each has its own.
  FunctionBuilder(Program& program, const Function& function, CodeFunction& code,
                  const SlotSharing* sharing = nullptr);

  // --- Slots --------------------------------------------------------------------------------
  // Where a register lies; a slot of its own is made on first use.
  Slot register_slot(uint32_t index);
  const Register& register_at(uint32_t index) const;
  // The registers that have a slot of their own so far, by slot.
  std::map<Slot, uint32_t> registers_by_slot() const;
  // A slot that holds `value` in every lane (bits 1: a predicate). Equal constants share one.
  Slot constant(uint64_t value, int bits, ConstantSlot::Base base = ConstantSlot::Base::kNone);
  // 32 lanes of `bits` that nobody else uses.
  Slot allocate(int bits);
  // A slot of `bits` that takes what nobody reads; one for each width.
  Slot sink(int bits);
  // The condition code register's carry flag, a predicate ("Extended-Precision Integer Arithmetic
  // Instructions"; PTX ISA 9.7.2).
  Slot carry_slot();
  // Bytes of a slot of `bits`: a predicate is 4, 8 and 16 bits lie in 16.
  static uint32_t slot_bytes(int bits);

  // --- Names --------------------------------------------------------------------------------
  // The address of a variable, parameter, result or function, without Operand::integer.
  struct Symbol {
    Space space = Space::kGlobal;
    ConstantSlot::Base base = ConstantSlot::Base::kNone;
    uint64_t value = 0;
  };
  Symbol address_of(const Operand& operand) const;
  // The .param variable of this function that a call passes; null when the operand is none.
  const ParamVariable* param_variable(const Operand& operand) const;
  // Null when the module has no body for it.
  const CodeFunction* callee(std::string_view name) const;
  // Where the code of a statement begins.
  uint32_t pc_of(uint32_t statement) const { return statement; }

  // --- The instruction that is being decoded --------------------------------------------------
  void use(Slot slot, uint32_t bytes, bool written);
  void keep_alive(std::shared_ptr<void> owned) { code_.owned.push_back(std::move(owned)); }
  void append(const Insn& insn);  // with the uses since the last

  const Function& function() const { return function_; }
  Program& program() { return program_; }
  CodeFunction& code() { return code_; }

 private:
  void lay_out_params();
  void lay_out_locals();
  uint32_t add_param(const Variable& variable, uint32_t reg, std::vector<ParamVariable>* list);
  Symbol address_of(const Variable& variable, bool is_local) const;

  Program& program_;
  const Function& function_;
  CodeFunction& code_;
  const SlotSharing* sharing_;
  std::vector<Slot> register_slots_;  // by register
  std::vector<Slot> shared_slots_;    // by SlotSharing's index
  Slot carry_ = kNoSlot;
  std::map<int, Slot> sinks_;  // by bits
  std::map<std::tuple<int, ConstantSlot::Base, uint64_t>, Slot> constants_;
  std::map<const Variable*, uint32_t> locals_;        // offsets of .local variables
  std::map<const Variable*, ParamVariable> scratch_;  // .param variables of the body
};

}  // namespace ptxemu
