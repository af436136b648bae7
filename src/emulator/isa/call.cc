// call, and the way back ("Control Flow Instructions: call", PTX ISA 9.7.12.5).
#include <fmt/format.h>

#include <cstring>

#include "emulator/isa/builder.h"
#include "emulator/isa/control.h"
#include "emulator/isa/decoder.h"
#include "emulator/isa/system_calls.h"
#include "emulator/machine/exec.h"
#include "emulator/machine/simt.h"

namespace ptxemu {

namespace {

// An argument or a result on the caller's side: bytes of its parameter area, or a register.
struct Passed {
  Slot slot = kNoSlot;
  int bits = 0;  // of the register
  uint32_t offset = 0;
};

struct CallForm {
  std::string_view name;   // of a direct call
  Slot pointer = kNoSlot;  // of an indirect one
  const Module* module = nullptr;
  SystemCall system = nullptr;
  std::vector<Passed> arguments, results;
};

void copy_value(const Exec& exec, const Frame& from, const ParamVariable& source, const Frame& to,
                const ParamVariable& target) {
  const uint32_t bytes = std::min(source.bytes, target.bytes);
  exec.for_lanes([&](int lane) {
    auto place = [lane](const Frame& frame, const ParamVariable& variable) {
      const auto l = static_cast<size_t>(lane);
      return variable.slot != kNoSlot
                 ? frame.registers + variable.slot + l * std::max(variable.bytes, 2u)
                 : frame.params.get() + l * frame.function->param_bytes + variable.offset;
    };
    std::memcpy(place(to, target), place(from, source), bytes);
  });
}

ParamVariable as_param(const Passed& passed, uint32_t bytes) {
  ParamVariable variable;
  variable.offset = passed.offset;
  variable.slot = passed.slot;
  variable.bytes = passed.slot == kNoSlot ? bytes : static_cast<uint32_t>(passed.bits) / 8;
  return variable;
}

// A call that not all lanes of the group make, or not of one function, parts them like a branch:
// those of one target go first, and all meet after the call.
void part_at_call(Exec& exec, const Insn& insn, const CallForm& form) {
  uint32_t same = exec.mask;
  if (form.pointer != kNoSlot) {
    const uint64_t* pointer = exec.lanes<uint64_t>(form.pointer);
    const uint64_t first = pointer[exec.first_lane()];
    exec.for_lanes([&](int lane) { same &= pointer[lane] == first ? ~0u : ~(1u << lane); });
  }
  if (same == exec.group->mask) return;
  Insn meeting = insn;
  meeting.reconverge = insn.pc + 1;
  diverge(exec, meeting, same, insn.pc);
  if (same != exec.mask) exec.warp->groups.back()->pc = insn.pc;
  exec.mask = same;
}

const CodeFunction& callee_of(const Exec& exec, const CallForm& form) {
  std::string_view name = form.name;
  if (form.pointer != kNoSlot) {
    const uint64_t value = exec.lanes<uint64_t>(form.pointer)[exec.first_lane()];
    const uint64_t index = value - kFunctionWindow;
    if (index >= form.module->functions.size()) {
      throw Trap{"call-target", fmt::format("a call of {:#x}, where no function is", value)};
    }
    name = form.module->functions[index].name;
  }
  const auto found = exec.launch->code->functions.find(name);
  if (found == exec.launch->code->functions.end()) {
    throw Trap{"call-target", fmt::format("a call of {}, which has no body", name)};
  }
  return *found->second;
}

Flow run_call(Exec& exec, const Insn& insn) {
  const auto& form = *static_cast<const CallForm*>(insn.data);
  part_at_call(exec, insn, form);
  const CodeFunction& callee = callee_of(exec, form);
  const Frame& caller = *exec.group->frame;
  auto frame = make_frame(callee, *exec.warp, *exec.launch,
                          caller.local_base + caller.function->local_bytes);
  if (callee.params.size() != form.arguments.size()) {
    throw Trap{"call-arguments",
               fmt::format("{} arguments for {}, which takes {}", form.arguments.size(),
                           callee.name, callee.params.size())};
  }
  for (size_t i = 0; i < form.arguments.size(); ++i) {
    copy_value(exec, caller, as_param(form.arguments[i], callee.params[i].bytes), *frame,
               callee.params[i]);
  }
  enter(exec, insn, std::move(frame));
  return Flow::kJump;
}

Flow run_system_call(Exec& exec, const Insn& insn) {
  const auto& form = *static_cast<const CallForm*>(insn.data);
  const Frame& frame = *exec.group->frame;
  auto place = [&](const Passed& passed, int lane) {
    const auto l = static_cast<size_t>(lane);
    return passed.slot != kNoSlot
               ? frame.registers + passed.slot + l * static_cast<size_t>(passed.bits) / 8
               : frame.params.get() + l * frame.function->param_bytes + passed.offset;
  };
  exec.for_lanes([&](int lane) {
    std::vector<std::byte*> arguments;
    for (const Passed& passed : form.arguments) arguments.push_back(place(passed, lane));
    std::byte* result = form.results.empty() ? nullptr : place(form.results[0], lane);
    form.system(exec, lane, arguments, result);
  });
  return Flow::kNext;
}

// One argument or result. `type` is what the callee declares, kNone where that is not known: a
// constant is then passed in 64 bits, of which the callee takes what its parameter holds.
Passed decode_passed(Decoder& decoder, const Operand& operand, bool is_result, Type type) {
  using Kind = Operand::Kind;
  Passed value;
  if (const ParamVariable* variable = decoder.builder().param_variable(operand)) {
    value.offset = variable->offset;
    value.slot = variable->slot;
  } else if (is_result && operand.kind == Kind::kRegister) {
    value.slot = decoder.dest_any(operand, &value.bits);
  } else if (!is_result && operand.kind == Kind::kRegister) {
    value.slot = decoder.source_any(operand, Type::kB32, &value.bits);
  } else if (!is_result && (operand.kind == Kind::kInteger || operand.kind == Kind::kFloat)) {
    const Type wide = type == Type::kF32 || type == Type::kF64 ? type : Type::kB64;
    value.slot = decoder.source_any(operand, wide, &value.bits);
  } else {
    decoder.fail_syntax(fmt::format("argument {}: accepted: .param variables, registers{}",
                                    operand.text, is_result ? "" : ", constants"));
  }
  return value;
}

std::vector<Passed> decode_results(Decoder& decoder, const Operand& list) {
  std::vector<Passed> passed;
  for (const Operand& operand : list.list) {
    passed.push_back(decode_passed(decoder, operand, true, Type::kNone));
  }
  return passed;
}

std::vector<Passed> decode_arguments(Decoder& decoder, const Operand& list,
                                     const Function* callee) {
  std::vector<Passed> passed;
  for (const Operand& operand : list.list) {
    const size_t i = passed.size();
    const bool known = callee != nullptr && i < callee->params.size();
    passed.push_back(
        decode_passed(decoder, operand, false, known ? callee->params[i].type : Type::kNone));
  }
  return passed;
}

}  // namespace

void decode_call(Decoder& decoder, Insn& insn) {
  decoder.take("uni");
  CallForm form;
  form.module = &decoder.builder().program().module;
  size_t i = 0;
  if (decoder.operand(i).kind == Operand::Kind::kList) {
    form.results = decode_results(decoder, decoder.operand(i++));
  }
  const Operand& target = decoder.operand(i++);
  if (target.kind == Operand::Kind::kRegister) {
    form.pointer = decoder.source(target, Type::kU64);
  } else {
    form.name = target.text;
  }
  if (i < decoder.operand_count() && decoder.operand(i).kind == Operand::Kind::kList) {
    form.arguments = decode_arguments(decoder, decoder.operand(i++), form.module->find(form.name));
  }
  insn.run = run_call;
  if (form.pointer == kNoSlot && decoder.builder().callee(form.name) == nullptr) {
    form.system = find_system_call(form.name);
    if (form.system == nullptr) {
      decoder.fail(fmt::format("a call of {}, which has no body here; accepted: {}", form.name,
                               system_call_names()));
    }
    insn.run = run_system_call;
  }
  insn.data = decoder.keep(std::move(form));
}

Flow return_from_function(Exec& exec, const Insn& insn) {
  if (exec.frame().function->is_entry) {
    exit_lanes(exec, insn);
    return Flow::kExit;
  }
  const std::shared_ptr<Frame> callee = exec.group->frame;
  const Frame& caller = *callee->caller;
  const Insn& call = caller.function->code[callee->return_pc - 1];
  const auto& form = *static_cast<const CallForm*>(call.data);
  const auto& results = callee->function->results;
  for (size_t i = 0; i < form.results.size() && i < results.size(); ++i) {
    copy_value(exec, *callee, results[i], caller, as_param(form.results[i], results[i].bytes));
  }
  leave(exec);
  return Flow::kJump;
}

}  // namespace ptxemu
