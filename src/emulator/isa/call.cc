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

// An argument or a result on the caller's side: a variable of its parameter area or a register,
// with the size that it has there.
struct Passed {
  ParamVariable variable;
  bool is_constant = false;  // of 8 bytes, of which the callee takes what its parameter holds
};

struct CallForm {
  std::string_view name;   // of a direct call
  Slot pointer = kNoSlot;  // of an indirect one
  const Module* module = nullptr;
  SystemCall system = nullptr;
  std::vector<Passed> arguments, results;
};

// Where a value of one lane lies.
std::span<std::byte> place_of(const Frame& frame, const ParamVariable& variable, int lane) {
  const auto l = static_cast<size_t>(lane);
  std::byte* at = variable.slot != kNoSlot
                      ? frame.registers + variable.slot + l * std::max(variable.bytes, 2u)
                      : frame.params.get() + l * frame.function->param_bytes + variable.offset;
  return {at, variable.bytes};
}

void copy_value(const Exec& exec, const Frame& from, const ParamVariable& source, const Frame& to,
                const ParamVariable& target) {
  const uint32_t bytes = std::min(source.bytes, target.bytes);
  if (bytes == 0) return;
  exec.for_lanes([&](int lane) {
    std::memcpy(place_of(to, target, lane).data(), place_of(from, source, lane).data(), bytes);
  });
}

// Why what is passed does not fit what the callee declares; empty when it does. Nothing is read or
// written beyond the shorter of the two, but a value cut in silence would be a wrong one.
std::string mismatch(const char* what, std::string_view callee, const std::vector<Passed>& passed,
                     const std::vector<ParamVariable>& declared) {
  if (passed.size() != declared.size()) {
    return fmt::format("{} {}s for {}; accepted: {}", passed.size(), what, callee, declared.size());
  }
  for (size_t i = 0; i < passed.size(); ++i) {
    const uint32_t bytes = passed[i].variable.bytes, wanted = declared[i].bytes;
    const bool byte_in_register = wanted == 1 && bytes == 2 && passed[i].variable.slot != kNoSlot;
    if (bytes == wanted || byte_in_register || (passed[i].is_constant && bytes > wanted)) continue;
    return fmt::format("{} {} of {} has {} bytes; accepted: {}, as the function declares", what, i,
                       callee, bytes, wanted);
  }
  return "";
}

std::string mismatch(const CallForm& form, const CodeFunction& callee) {
  const std::string why = mismatch("argument", callee.name, form.arguments, callee.params);
  if (!why.empty() || form.results.empty()) return why;
  return mismatch("result", callee.name, form.results, callee.results);
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

void check_depth(const Exec& exec, const CodeFunction& callee, const Frame& caller) {
  const uint64_t most = exec.launch->options.max_call_depth;
  if (most != 0 && caller.depth >= most) {
    throw Trap{"limit", fmt::format("{} calls inside each other, and {} is one more: "
                                    "--max-call-depth is {}",
                                    caller.depth, callee.name, most)};
  }
  const uint64_t local = uint64_t{caller.local_base} + caller.function->local_bytes;
  if (local + callee.local_bytes > kMostLocalBytes) {
    throw Trap{
        "local-memory",
        fmt::format("{} needs {} bytes of local memory after {} of its callers; a thread has "
                    "{}",
                    callee.name, callee.local_bytes, local, kMostLocalBytes)};
  }
}

Flow run_call(Exec& exec, const Insn& insn) {
  const auto& form = insn.form<CallForm>();
  part_at_call(exec, insn, form);
  const CodeFunction& callee = callee_of(exec, form);
  const Frame& caller = *exec.group->frame;
  if (const std::string why = mismatch(form, callee); !why.empty()) {
    throw Trap{"call-arguments", why};
  }
  check_depth(exec, callee, caller);
  auto frame = make_frame(callee, *exec.warp, *exec.launch,
                          caller.local_base + caller.function->local_bytes);
  for (size_t i = 0; i < form.arguments.size(); ++i) {
    copy_value(exec, caller, form.arguments[i].variable, *frame, callee.params[i]);
  }
  enter(exec, insn, std::move(frame));
  return Flow::kJump;
}

Flow run_system_call(Exec& exec, const Insn& insn) {
  const auto& form = insn.form<CallForm>();
  const Frame& frame = *exec.group->frame;
  exec.for_lanes([&](int lane) {
    std::vector<std::span<const std::byte>> arguments;
    for (const Passed& passed : form.arguments) {
      arguments.push_back(place_of(frame, passed.variable, lane));
    }
    std::span<std::byte> result;
    if (!form.results.empty()) result = place_of(frame, form.results[0].variable, lane);
    form.system(exec, lane, arguments, result);
  });
  return Flow::kNext;
}

// One argument or result. `type` is what the callee declares, kNone where that is not known: a
// constant is then passed in 64 bits, of which the callee takes what its parameter holds.
Passed decode_passed(Decoder& decoder, const Operand& operand, bool is_result, Type type) {
  using Kind = Operand::Kind;
  const ParamVariable* variable = decoder.builder().param_variable(operand);
  if (variable != nullptr) return {*variable, false};
  Passed value;
  int bits = 0;
  const bool is_number = operand.kind == Kind::kInteger || operand.kind == Kind::kFloat;
  if (is_result && operand.kind == Kind::kRegister) {
    value.variable.slot = decoder.dest_any(operand, Type::kB32, &bits);
  } else if (!is_result && operand.kind == Kind::kRegister) {
    value.variable.slot = decoder.source_any(operand, Type::kB32, &bits);
  } else if (!is_result && is_number) {
    const Type wide = type == Type::kF32 || type == Type::kF64 ? type : Type::kB64;
    value.variable.slot = decoder.source_any(operand, wide, &bits);
    value.is_constant = true;
  } else {
    decoder.fail_syntax(fmt::format("argument {}; accepted: .param variables, registers{}",
                                    operand.text, is_result ? "" : ", constants"));
  }
  value.variable.bytes = static_cast<uint32_t>(bits) / 8;
  return value;
}

// `declared`: the callee's variables, null where it is not known.
std::vector<Passed> decode_list(Decoder& decoder, const Operand& list, bool is_result,
                                const std::vector<Variable>* declared) {
  std::vector<Passed> passed;
  for (const Operand& operand : list.list) {
    const size_t i = passed.size();
    const bool known = declared != nullptr && i < declared->size();
    passed.push_back(
        decode_passed(decoder, operand, is_result, known ? (*declared)[i].type : Type::kNone));
  }
  return passed;
}

// The callee's parameters and results as it declares them, before it is decoded itself.
std::vector<ParamVariable> sizes_of(const std::vector<Variable>& variables) {
  std::vector<ParamVariable> sizes;
  for (const Variable& variable : variables) {
    // What does not fit 32 bits is refused where the callee is decoded.
    const auto bytes = static_cast<uint32_t>(std::min<uint64_t>(variable.bytes, ~uint32_t{0}));
    sizes.push_back({variable.name, 0, bytes, kNoSlot});
  }
  return sizes;
}

// A call by name is compared with the declaration while it is decoded; the system's functions, too.
void check_call(Decoder& decoder, const CallForm& form) {
  const Function* callee = form.module->find(form.name);
  if (callee == nullptr) return;
  std::string why = mismatch("argument", form.name, form.arguments, sizes_of(callee->params));
  if (why.empty() && !form.results.empty()) {
    why = mismatch("result", form.name, form.results, sizes_of(callee->results));
  }
  if (!why.empty()) decoder.fail_syntax(why);
}

}  // namespace

void decode_call(Decoder& decoder, Insn& insn) {
  decoder.take("uni");
  CallForm form;
  form.module = &decoder.builder().program().module;
  size_t i = 0;
  if (decoder.operand(i).kind == Operand::Kind::kList) {
    form.results = decode_list(decoder, decoder.operand(i++), true, nullptr);
  }
  const Operand& target = decoder.operand(i++);
  if (target.kind == Operand::Kind::kRegister) {
    form.pointer = decoder.source(target, Type::kU64);
  } else {
    form.name = target.text;
  }
  if (i < decoder.operand_count() && decoder.operand(i).kind == Operand::Kind::kList) {
    const Function* callee = form.module->find(form.name);
    form.arguments = decode_list(decoder, decoder.operand(i++), false,
                                 callee == nullptr ? nullptr : &callee->params);
  }
  insn.run = run_call;
  const bool is_direct = form.pointer == kNoSlot;
  const CodeFunction* callee = is_direct ? decoder.builder().callee(form.name) : nullptr;
  if (callee != nullptr) {
    form.name = callee->name;  // its own, where an alias is called
  } else if (is_direct) {
    form.system = find_system_call(form.name);
    if (form.system == nullptr) {
      decoder.fail(fmt::format("a call of {}, which has no body here; accepted: {}", form.name,
                               system_call_names()));
    }
    insn.run = run_system_call;
  }
  if (is_direct) check_call(decoder, form);
  decoder.set_form(insn, std::move(form));
}

Flow return_from_function(Exec& exec, const Insn& insn) {
  if (exec.frame().function->is_entry) {
    exit_lanes(exec, insn);
    return Flow::kExit;
  }
  const std::shared_ptr<Frame> callee = exec.group->frame;
  const Frame& caller = *callee->caller;
  const Insn& call = caller.function->code[callee->return_pc - 1];
  const auto& form = call.form<CallForm>();
  const auto& results = callee->function->results;
  for (size_t i = 0; i < form.results.size() && i < results.size(); ++i) {
    copy_value(exec, *callee, results[i], caller, form.results[i].variable);
  }
  leave(exec);
  return Flow::kJump;
}

}  // namespace ptxemu
