// bra, brx.idx, call, ret, exit, trap, brkpt, nanosleep, setmaxnreg, griddepcontrol ("Control Flow
// Instructions", PTX ISA 9.7.12; "Miscellaneous Instructions", 9.7.19).
#include "emulator/isa/control.h"

#include <fmt/format.h>

#include <cstring>

#include "emulator/isa/builder.h"
#include "emulator/isa/decoder.h"
#include "emulator/isa/system_calls.h"
#include "emulator/machine/exec.h"
#include "emulator/machine/simt.h"

namespace ptxemu {

namespace {

// --- Branches
// -------------------------------------------------------------------------------------

Flow jump(Exec& exec, const Insn& insn, uint32_t target) {
  if (exec.mask == exec.group->mask) {
    exec.group->pc = target;
  } else {
    diverge(exec, insn, exec.mask, target);
  }
  return Flow::kJump;
}

Flow run_bra(Exec& exec, const Insn& insn) {
  return jump(exec, insn, static_cast<uint32_t>(insn.imm));
}

void decode_bra(Decoder& decoder, Insn& insn) {
  decoder.take("uni");
  decoder.need_operands(1, 1);
  const Operand& target = decoder.operand(0);
  if (target.kind != Operand::Kind::kLabel) decoder.fail_syntax("bra needs a label");
  insn.imm = decoder.builder().pc_of(target.index);
  insn.run = run_bra;
}

struct BranchTargets {
  std::vector<uint32_t> pcs;
};

Flow run_brx(Exec& exec, const Insn& insn) {
  const auto& targets = static_cast<const BranchTargets*>(insn.data)->pcs;
  const uint32_t* index = exec.lanes<uint32_t>(insn.a);
  const uint32_t first = index[exec.first_lane()];
  if (first >= targets.size()) {
    throw Trap{"branch-index", fmt::format("brx.idx with {} of {} targets", first, targets.size())};
  }
  uint32_t same = 0;
  exec.for_lanes([&](int lane) { same |= index[lane] == first ? 1u << lane : 0; });
  // Lanes with another index stay at this instruction and take their turn.
  if (same == exec.group->mask) {
    exec.group->pc = targets[first];
    return Flow::kJump;
  }
  diverge(exec, insn, same, targets[first]);
  if (same != exec.mask) exec.warp->groups.back()->pc = insn.pc;
  return Flow::kJump;
}

void decode_brx(Decoder& decoder, Insn& insn) {
  decoder.take("uni");
  decoder.need_operands(2, 2);
  insn.a = decoder.source(0, Type::kU32);
  const Operand& list = decoder.operand(1);
  if (list.kind == Operand::Kind::kTargets) {
    BranchTargets targets;
    for (uint32_t statement : decoder.builder().function().targets[list.index].statements) {
      targets.pcs.push_back(decoder.builder().pc_of(statement));
    }
    insn.data = decoder.keep(std::move(targets));
    insn.run = run_brx;
    return;
  }
  decoder.fail_syntax(fmt::format("no .branchtargets named {}", list.text));
}

// --- Calls
// ----------------------------------------------------------------------------------------

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

// --- Ends
// -----------------------------------------------------------------------------------------

Flow run_exit(Exec& exec, const Insn& insn) {
  exit_lanes(exec, insn);
  return Flow::kExit;
}

Flow run_ret(Exec& exec, const Insn& insn) {
  const auto end = static_cast<uint32_t>(exec.frame().function->code.size() - 1);
  return jump(exec, insn, end);
}

void decode_exit(Decoder& decoder, Insn& insn) {
  decoder.need_operands(0, 0);
  insn.run = run_exit;
}

void decode_ret(Decoder& decoder, Insn& insn) {
  decoder.take("uni");
  decoder.need_operands(0, 0);
  insn.run = decoder.builder().code().is_entry ? run_exit : run_ret;
}

Flow run_trap(Exec&, const Insn&) { throw Trap{"trap", "the kernel executed trap"}; }

void decode_trap(Decoder& decoder, Insn& insn) {
  decoder.need_operands(0, 0);
  insn.run = run_trap;
}

// --- nanosleep, setmaxnreg, griddepcontrol
// ------------------------------------------------------------

Flow run_nanosleep(Exec& exec, const Insn&) {
  // Others run first; how long is nobody's promise.
  if (exec.resumed(Wait::Kind::kSleep)) return Flow::kNext;
  return exec.block(Wait::Kind::kSleep);
}

void decode_nanosleep(Decoder& decoder, Insn& insn) {
  decoder.need_type();
  decoder.need_operands(1, 1);
  insn.a = decoder.source(0, Type::kU32);
  insn.run = run_nanosleep;
}

// CTA state: registers that warps have given back. What the launch gave them rests on a guess
// (Launch::registers_per_thread).
struct RegisterPool {
  int64_t free = 0;
};

Flow run_setmaxnreg(Exec& exec, const Insn& insn) {
  auto& pool = exec.cta->state<RegisterPool>();
  const auto wanted = static_cast<uint32_t>(insn.imm);
  const uint32_t now = exec.warp->register_limit;
  const bool grows = insn.small != 0;
  if (!exec.resumed(Wait::Kind::kRegisterPool)) {
    exec.require_converged(insn);
    if (grows ? wanted < now : wanted > now) {
      exec.launch->report(
          exec, insn, Severity::kFormal, "setmaxnreg-direction",
          fmt::format("setmaxnreg.{} to {} from {} registers", grows ? "inc" : "dec", wanted, now));
    }
  }
  const int64_t more = (int64_t{wanted} - now) * 32;
  if (more > pool.free) return exec.block(Wait::Kind::kRegisterPool, 0, wanted);
  pool.free -= more;
  exec.warp->register_limit = wanted;
  exec.cluster->note_progress();
  return Flow::kNext;
}

void decode_setmaxnreg(Decoder& decoder, Insn& insn) {
  const bool grows = decoder.take("inc");
  if (!grows && !decoder.take("dec")) decoder.fail("setmaxnreg needs .inc or .dec");
  decoder.take("sync");
  decoder.take("aligned");
  decoder.need_type();
  decoder.need_operands(1, 1);
  const int64_t count = decoder.constant(0);
  if (count < 24 || count > 256 || count % 8 != 0) {
    decoder.fail_syntax(
        fmt::format("{} registers; accepted: multiples of 8 from 24 to 256", count));
  }
  insn.small = grows;
  insn.imm = static_cast<uint64_t>(count);
  insn.run = run_setmaxnreg;
}

// The grid before this one has finished when this one starts, so a wait never waits.
Flow run_nothing(Exec&, const Insn&) { return Flow::kNext; }

void decode_griddepcontrol(Decoder& decoder, Insn& insn) {
  if (!decoder.take("wait") && !decoder.take("launch_dependents")) {
    decoder.fail("accepted: .wait, .launch_dependents");
  }
  decoder.need_operands(0, 0);
  insn.run = run_nothing;
}

constexpr InstructionRow kRows[] = {
    {"bra", decode_bra, "Control Flow Instructions: bra"},
    {"brx.idx", decode_brx, "Control Flow Instructions: brx.idx"},
    {"call", decode_call, "Control Flow Instructions: call"},
    {"ret", decode_ret, "Control Flow Instructions: ret"},
    {"exit", decode_exit, "Control Flow Instructions: exit"},
    {"trap", decode_trap, "Miscellaneous Instructions: trap"},
    {"brkpt", decode_trap, "Miscellaneous Instructions: brkpt"},
    {"nanosleep", decode_nanosleep, "Miscellaneous Instructions: nanosleep"},
    {"setmaxnreg", decode_setmaxnreg, "Miscellaneous Instructions: setmaxnreg"},
    {"griddepcontrol", decode_griddepcontrol,
     "Parallel Synchronization and Communication Instructions: griddepcontrol"},
};

}  // namespace

Flow return_from_function(Exec& exec, const Insn& insn) {
  if (exec.frame().function->is_entry) return run_exit(exec, insn);
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

std::span<const InstructionRow> control_rows() { return kRows; }

}  // namespace ptxemu
