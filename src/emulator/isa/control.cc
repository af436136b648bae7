// bra, brx.idx, ret, exit, trap, brkpt, nanosleep, setmaxnreg, griddepcontrol ("Control Flow
// Instructions", PTX ISA 9.7.12; "Miscellaneous Instructions", 9.7.19). call is in call.cc.
#include "emulator/isa/control.h"

#include <fmt/format.h>

#include "emulator/isa/builder.h"
#include "emulator/isa/decoder.h"
#include "emulator/machine/exec.h"
#include "emulator/machine/simt.h"

namespace ptxemu {

namespace {

// --- Branches ---------------------------------------------------------------------------------

Flow jump(Exec& exec, const Insn& insn, uint32_t target) {
  if (exec.mask == exec.group->mask) {
    exec.group->pc = target;
  } else {
    diverge(exec, insn, exec.mask, target);
  }
  return Flow::kJump;
}

struct BranchTarget {
  uint32_t pc;
};

Flow run_bra(Exec& exec, const Insn& insn) {
  return jump(exec, insn, insn.form<BranchTarget>().pc);
}

void decode_bra(Decoder& decoder, Insn& insn) {
  decoder.take("uni");
  decoder.need_operands(1, 1);
  const Operand& target = decoder.operand(0);
  if (target.kind != Operand::Kind::kLabel)
    decoder.fail_syntax("bra to what is no label; accepted: a label");
  decoder.set_form(insn, BranchTarget{decoder.builder().pc_of(target.index)});
  insn.run = run_bra;
}

struct BranchTargets {
  std::vector<uint32_t> pcs;
};

Flow run_brx(Exec& exec, const Insn& insn) {
  const auto& targets = insn.form<BranchTargets>().pcs;
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
    decoder.set_form(insn, std::move(targets));
    insn.run = run_brx;
    return;
  }
  decoder.fail_syntax(fmt::format(
      "no .branchtargets named {}; accepted: a label before .branchtargets", list.text));
}

// --- Ends -------------------------------------------------------------------------------------

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

// --- nanosleep, setmaxnreg, griddepcontrol ----------------------------------------------------

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

struct RegisterLimit {
  uint32_t wanted;  // registers of a thread
  bool grows;       // .inc, else .dec
};

Flow run_setmaxnreg(Exec& exec, const Insn& insn) {
  auto& pool = exec.cta->state<RegisterPool>();
  const auto [wanted, grows] = insn.form<RegisterLimit>();
  const uint32_t now = exec.warp->register_limit;
  if (!exec.resumed(Wait::Kind::kRegisterPool)) {
    exec.require_converged(insn);
    exec.tell(&Observer::setmaxnreg, insn, wanted);
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
  if (!grows && !decoder.take("dec"))
    decoder.fail("setmaxnreg without a direction; accepted: .inc, .dec");
  decoder.take("sync");
  decoder.take("aligned");
  decoder.need_type();
  decoder.need_operands(1, 1);
  const int64_t count = decoder.constant(0);
  if (count < 24 || count > 256 || count % 8 != 0) {
    decoder.fail_syntax(
        fmt::format("{} registers; accepted: multiples of 8 from 24 to 256", count));
  }
  decoder.set_form(insn, RegisterLimit{static_cast<uint32_t>(count), grows});
  insn.run = run_setmaxnreg;
}

// The machine runs one launch after the other, so a wait never waits; what overlapping launches
// could do to each other is the checker's (observe/grid_dependencies.h).
Flow run_grid_wait(Exec& exec, const Insn& insn) {
  exec.tell(&Observer::grid_wait, insn);
  return Flow::kNext;
}

Flow run_grid_trigger(Exec& exec, const Insn& insn) {
  exec.tell(&Observer::grid_trigger, insn);
  return Flow::kNext;
}

void decode_griddepcontrol(Decoder& decoder, Insn& insn) {
  if (decoder.take("wait")) {
    insn.run = run_grid_wait;
  } else if (decoder.take("launch_dependents")) {
    insn.run = run_grid_trigger;
  } else {
    decoder.fail("accepted: .wait, .launch_dependents");
  }
  decoder.need_operands(0, 0);
}

constexpr InstructionRow kRows[] = {
    {"bra", decode_bra, "Control Flow Instructions: bra"},
    {"brx.idx", decode_brx, "Control Flow Instructions: brx.idx"},
    {"call", decode_call, "Control Flow Instructions: call", ValueFlow::kUses,
     InstructionKind::kCall},
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

std::span<const InstructionRow> control_rows() { return kRows; }

}  // namespace ptxemu
