// What the lanes of a warp do together: shfl, vote, match, elect, redux, activemask, bar.warp.sync
// and the like.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "emulator/isa/decoder.h"
#include "emulator/machine/exec.h"
#include "emulator/machine/simt.h"

namespace ptxemu {

namespace {

// Lanes with other member masks (tiles of a warp) stay at the instruction, for a turn of their own.
void keep_lanes(Exec& exec, const Insn& insn, uint32_t lanes) {
  Insn meeting = insn;
  meeting.reconverge = insn.pc + 1;
  diverge(exec, meeting, lanes, insn.pc);
  exec.warp->groups.back()->pc = insn.pc;
  exec.mask = lanes;
}

// Whether all members of every lane's mask are here.
bool all_members_here(const Exec& exec, const uint32_t* members) {
  const uint32_t live = exec.warp->lanes & ~exec.warp->exited;
  bool complete = true;
  exec.for_lanes([&](int lane) {
    complete &= (members[lane] >> lane & 1) != 0 && (members[lane] & live & ~exec.mask) == 0;
  });
  return complete;
}

void need_sync(Decoder& decoder) {
  if (!decoder.take("sync")) decoder.fail("no .sync; accepted: .sync");
}

// The slot of the member mask lies in insn.c, kNoSlot for the forms without .sync. `only_moves`:
// the result depends on single lanes, not on who takes part.
bool gathered(Exec& exec, const Insn& insn, bool only_moves = false) {
  if (insn.c == kNoSlot) return true;
  const uint32_t* masks = exec.lanes<uint32_t>(insn.c);
  const uint32_t members = masks[exec.first_lane()];
  uint32_t others = 0;
  for (uint32_t lane = 0; lane < 32; ++lane) others |= uint32_t{masks[lane] != members} << lane;
  others &= exec.mask;
  if (others != 0 && !(only_moves && all_members_here(exec, masks))) {
    keep_lanes(exec, insn, exec.mask & ~others);
    others = 0;
  }
  if (others == 0 && !exec.gather(members, insn)) {
    exec.block(Wait::Kind::kWarpSync, members);
    return false;
  }
  exec.tell(&Observer::warp_sync, insn);
  return true;
}

// --- shfl: "Data Movement and Conversion Instructions: shfl.sync"
// ----------------------------------

enum class Shuffle : uint8_t { kUp, kDown, kBfly, kIdx };

struct ShuffleForm {
  Shuffle mode;
  Slot p = kNoSlot;      // d|p
  Slot clamp = kNoSlot;  // operand c
};

Flow run_shfl(Exec& exec, const Insn& insn) {
  if (!gathered(exec, insn, true)) return Flow::kBlocked;
  const auto& form = insn.form<ShuffleForm>();
  uint32_t values[32];
  std::copy_n(exec.lanes<uint32_t>(insn.a), 32, values);
  uint32_t in_range = 0;
  uint32_t result[32];
  exec.for_lanes([&](int lane) {
    const uint32_t b = exec.lanes<uint32_t>(insn.b)[lane] & 31;
    const uint32_t c = exec.lanes<uint32_t>(form.clamp)[lane];
    const uint32_t clamp = c & 31, segment = c >> 8 & 31;
    const auto self = static_cast<uint32_t>(lane);
    const uint32_t most = (self & segment) | (clamp & ~segment);
    const uint32_t least = self & segment;
    uint32_t from = self;
    bool ok = false;
    switch (form.mode) {
      case Shuffle::kUp:
        from = self - b;
        ok = static_cast<int32_t>(from) >= static_cast<int32_t>(most);
        break;
      case Shuffle::kDown:
        from = self + b;
        ok = from <= most;
        break;
      case Shuffle::kBfly:
        from = self ^ b;
        ok = from <= most;
        break;
      case Shuffle::kIdx:
        from = least | (b & ~segment);
        ok = from <= most;
        break;
    }
    if (!ok) from = self;
    result[lane] = values[from];
    in_range |= ok ? 1u << lane : 0;
  });
  exec.each(exec.lanes<uint32_t>(insn.d), [&](int lane) { return result[lane]; });
  if (form.p != kNoSlot) exec.set_predicate(form.p, in_range);
  return Flow::kNext;
}

void decode_shfl(Decoder& decoder, Insn& insn) {
  const bool sync = decoder.take("sync");
  const auto mode = decoder.take_one<std::optional<Shuffle>>({{"up", Shuffle::kUp},
                                                              {"down", Shuffle::kDown},
                                                              {"bfly", Shuffle::kBfly},
                                                              {"idx", Shuffle::kIdx}},
                                                             std::nullopt);
  if (!mode) decoder.fail("shfl without a mode; accepted: .up, .down, .bfly, .idx");
  ShuffleForm form;
  form.mode = *mode;
  const Type type = decoder.need_type();
  if (type == Type::kPred || bits_of(type) != 32) decoder.fail_type(type, ".b32, .u32, .s32, .f32");
  decoder.need_operands(sync ? 5 : 4, sync ? 5 : 4);
  const Operand& d = decoder.operand(0);
  if (d.kind == Operand::Kind::kPair) {
    insn.d = decoder.dest(d.list[0], Type::kB32);
    form.p = decoder.dest(d.list[1], Type::kPred);
  } else {
    insn.d = decoder.dest(d, Type::kB32);
  }
  insn.a = decoder.source(1, Type::kB32);
  insn.b = decoder.source(2, Type::kB32);
  form.clamp = decoder.source(3, Type::kB32);
  if (sync) insn.c = decoder.source(4, Type::kB32);
  decoder.set_form(insn, form);
  insn.run = run_shfl;
}

// --- vote, activemask: "Parallel Synchronization and Communication Instructions: vote.sync"
// ---------

enum class Vote : uint8_t { kAll, kAny, kUni, kBallot };

struct VoteForm {
  Vote mode;
  bool negated;  // !p
};

Flow run_vote(Exec& exec, const Insn& insn) {
  if (!gathered(exec, insn)) return Flow::kBlocked;
  const VoteForm& form = insn.form<VoteForm>();
  uint32_t p = exec.predicate(insn.a);
  if (form.negated) p = ~p;
  p &= exec.mask;
  switch (form.mode) {
    case Vote::kAll: exec.set_predicate(insn.d, p == exec.mask ? ~0u : 0); break;
    case Vote::kAny: exec.set_predicate(insn.d, p != 0 ? ~0u : 0); break;
    case Vote::kUni: exec.set_predicate(insn.d, p == 0 || p == exec.mask ? ~0u : 0); break;
    case Vote::kBallot: exec.each(exec.lanes<uint32_t>(insn.d), [p](int) { return p; }); break;
  }
  return Flow::kNext;
}

void decode_vote(Decoder& decoder, Insn& insn) {
  const bool sync = decoder.take("sync");
  const auto mode = decoder.take_one<std::optional<Vote>>(
      {{"all", Vote::kAll}, {"any", Vote::kAny}, {"uni", Vote::kUni}, {"ballot", Vote::kBallot}},
      std::nullopt);
  if (!mode) decoder.fail("vote without a mode; accepted: .all, .any, .uni, .ballot");
  const Type type = decoder.need_type();
  if (type != (*mode == Vote::kBallot ? Type::kB32 : Type::kPred))
    decoder.fail_type(type, *mode == Vote::kBallot ? ".b32" : ".pred");
  decoder.need_operands(sync ? 3 : 2, sync ? 3 : 2);
  insn.d = decoder.dest(0, type);
  bool negated = false;
  insn.a = decoder.predicate(decoder.operand(1), &negated);
  decoder.set_form(insn, VoteForm{*mode, negated});
  if (sync) insn.c = decoder.source(2, Type::kB32);
  insn.run = run_vote;
}

Flow run_activemask(Exec& exec, const Insn& insn) {
  const uint32_t mask = exec.mask;
  exec.each(exec.lanes<uint32_t>(insn.d), [mask](int) { return mask; });
  return Flow::kNext;
}

void decode_activemask(Decoder& decoder, Insn& insn) {
  const Type type = decoder.need_type();
  if (type != Type::kB32) decoder.fail_type(type, ".b32");
  decoder.need_operands(1, 1);
  insn.d = decoder.dest(0, Type::kB32);
  insn.run = run_activemask;
}

// --- match.sync ---------------------------------------------------------------------------------

struct MatchForm {
  Slot unanimous = kNoSlot;  // p of d|p
};

template <class T, bool kAll>
Flow run_match(Exec& exec, const Insn& insn) {
  if (!gathered(exec, insn)) return Flow::kBlocked;
  const T* a = exec.lanes<T>(insn.a);
  uint32_t equal[32];
  uint32_t unanimous = 0;
  exec.for_lanes([&](int lane) {
    equal[lane] = 0;
    exec.for_lanes([&](int other) { equal[lane] |= a[other] == a[lane] ? 1u << other : 0; });
    if (equal[lane] == exec.mask) unanimous |= 1u << lane;
  });
  const uint32_t mask = exec.mask;
  exec.each(exec.lanes<uint32_t>(insn.d), [&](int lane) {
    return !kAll ? equal[lane] : unanimous == mask ? mask : 0;
  });
  const Slot p = insn.form<MatchForm>().unanimous;
  if (p != kNoSlot) exec.set_predicate(p, unanimous == mask ? ~0u : 0);
  return Flow::kNext;
}

void decode_match(Decoder& decoder, Insn& insn) {
  need_sync(decoder);
  const bool all = decoder.take("all");
  if (!all && !decoder.take("any")) decoder.fail("match without a mode; accepted: .any, .all");
  const Type type = decoder.need_type();
  if (type != Type::kB32 && type != Type::kB64) decoder.fail_type(type, ".b32, .b64");
  decoder.need_operands(3, 3);
  const Operand& d = decoder.operand(0);
  MatchForm form;
  if (d.kind == Operand::Kind::kPair) {
    if (!all) decoder.fail_syntax("a predicate of match.any; accepted: one register");
    insn.d = decoder.dest(d.list[0], Type::kB32);
    form.unanimous = decoder.dest(d.list[1], Type::kPred);
  } else {
    insn.d = decoder.dest(d, Type::kB32);
  }
  decoder.set_form(insn, form);
  insn.a = decoder.source(1, type);
  insn.c = decoder.source(2, Type::kB32);
  if (bits_of(type) == 64) {
    insn.run = all ? run_match<uint64_t, true> : run_match<uint64_t, false>;
  } else {
    insn.run = all ? run_match<uint32_t, true> : run_match<uint32_t, false>;
  }
}

// --- elect.sync: the lowest lane leads, as on hardware
// --------------------------------------------

Flow run_elect(Exec& exec, const Insn& insn) {
  if (!gathered(exec, insn)) return Flow::kBlocked;
  const int leader = exec.first_lane();
  exec.each(exec.lanes<uint32_t>(insn.a), [leader](int) { return static_cast<uint32_t>(leader); });
  exec.set_predicate(insn.d, 1u << leader);
  return Flow::kNext;
}

void decode_elect(Decoder& decoder, Insn& insn) {
  need_sync(decoder);
  decoder.need_operands(2, 2);
  const Operand& d = decoder.operand(0);
  if (d.kind != Operand::Kind::kPair)
    decoder.fail_syntax("one result of elect.sync; accepted: d|p");
  insn.a = decoder.dest(d.list[0], Type::kB32);
  insn.d = decoder.dest(d.list[1], Type::kPred);
  insn.c = decoder.source(1, Type::kB32);
  insn.run = run_elect;
}

// --- redux.sync
// -----------------------------------------------------------------------------------

template <class T, class F>
Flow reduce(Exec& exec, const Insn& insn, F combine) {
  if (!gathered(exec, insn)) return Flow::kBlocked;
  const T* a = exec.lanes<T>(insn.a);
  T value = a[exec.first_lane()];
  for (uint32_t m = exec.mask & (exec.mask - 1); m != 0; m &= m - 1) {
    value = combine(value, a[std::countr_zero(m)]);
  }
  exec.each(exec.lanes<T>(insn.d), [value](int) { return value; });
  return Flow::kNext;
}

struct ReduxFloatForm {
  bool max;  // else min
  bool absolute, keeps_nan;
};

Flow run_redux_float(Exec& exec, const Insn& insn) {
  if (!gathered(exec, insn)) return Flow::kBlocked;
  const ReduxFloatForm& form = insn.form<ReduxFloatForm>();
  const float* a = exec.lanes<float>(insn.a);
  float value = NAN;
  bool saw_nan = false;
  exec.for_lanes([&](int lane) {
    const float x = form.absolute ? std::fabs(a[lane]) : a[lane];
    saw_nan |= std::isnan(x);
    if (std::isnan(value)) {
      value = x;
    } else if (form.max ? x > value || (x == value && std::signbit(value))
                        : x < value || (x == value && std::signbit(x))) {
      value = x;
    }
  });
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((form.keeps_nan && saw_nan) || std::isnan(value)) bits = 0x7fffffffu;
  exec.each(exec.lanes<uint32_t>(insn.d), [bits](int) { return bits; });
  return Flow::kNext;
}

template <class T, class Op>
Flow run_redux(Exec& exec, const Insn& insn) {
  return reduce<T>(exec, insn, Op{});
}
struct Add {
  uint32_t operator()(uint32_t a, uint32_t b) const { return a + b; }
};
struct And {
  uint32_t operator()(uint32_t a, uint32_t b) const { return a & b; }
};
struct Or {
  uint32_t operator()(uint32_t a, uint32_t b) const { return a | b; }
};
struct Xor {
  uint32_t operator()(uint32_t a, uint32_t b) const { return a ^ b; }
};
template <class T>
struct Min {
  T operator()(T a, T b) const { return b < a ? b : a; }
};
template <class T>
struct Max {
  T operator()(T a, T b) const { return a < b ? b : a; }
};

void decode_redux(Decoder& decoder, Insn& insn) {
  need_sync(decoder);
  enum class Op { kAdd, kMin, kMax, kAnd, kOr, kXor, kNone };
  const Op op = decoder.take_one<Op>({{"add", Op::kAdd},
                                      {"min", Op::kMin},
                                      {"max", Op::kMax},
                                      {"and", Op::kAnd},
                                      {"or", Op::kOr},
                                      {"xor", Op::kXor}},
                                     Op::kNone);
  const bool absolute = decoder.take("abs"), keeps_nan = decoder.take("NaN");
  const Type type = decoder.need_type();
  const bool bitwise = op == Op::kAnd || op == Op::kOr || op == Op::kXor;
  if (bitwise ? type != Type::kB32
              : type != Type::kU32 && type != Type::kS32 && type != Type::kF32) {
    decoder.fail_type(type, bitwise ? ".b32" : ".u32, .s32, .f32");
  }
  decoder.need_operands(3, 3);
  insn.d = decoder.dest(0, type);
  insn.a = decoder.source(1, type);
  insn.c = decoder.source(2, Type::kB32);
  if (type == Type::kF32) {
    if (op != Op::kMin && op != Op::kMax)
      decoder.fail("another operation of f32; accepted: .min, .max");
    decoder.set_form(insn, ReduxFloatForm{op == Op::kMax, absolute, keeps_nan});
    insn.run = run_redux_float;
    return;
  }
  if (absolute || keeps_nan) decoder.fail(".abs or .NaN of another type; accepted: of .f32");
  const bool is_s32 = type == Type::kS32;
  switch (op) {
    case Op::kAdd: insn.run = run_redux<uint32_t, Add>; break;
    case Op::kAnd: insn.run = run_redux<uint32_t, And>; break;
    case Op::kOr: insn.run = run_redux<uint32_t, Or>; break;
    case Op::kXor: insn.run = run_redux<uint32_t, Xor>; break;
    case Op::kMin:
      insn.run = is_s32 ? run_redux<int32_t, Min<int32_t>> : run_redux<uint32_t, Min<uint32_t>>;
      break;
    case Op::kMax:
      insn.run = is_s32 ? run_redux<int32_t, Max<int32_t>> : run_redux<uint32_t, Max<uint32_t>>;
      break;
    case Op::kNone:
      decoder.fail("redux.sync without an operation; accepted: .add, .min, .max, .and, .or, .xor");
  }
}

// --- bar.warp.sync
// ----------------------------------------------------------------------------------

Flow run_warp_sync(Exec& exec, const Insn& insn) {
  return gathered(exec, insn, true) ? Flow::kNext : Flow::kBlocked;
}

void decode_warp_sync(Decoder& decoder, Insn& insn) {
  decoder.need_operands(1, 1);
  insn.c = decoder.source(0, Type::kB32);
  insn.run = run_warp_sync;
}

constexpr InstructionRow kRows[] = {
    {"shfl", decode_shfl, "Data Movement and Conversion Instructions: shfl.sync", ValueFlow::kMoves,
     InstructionKind::kShuffle},
    {"vote", decode_vote, "Parallel Synchronization and Communication Instructions: vote.sync"},
    {"activemask", decode_activemask,
     "Parallel Synchronization and Communication Instructions: activemask"},
    {"match", decode_match, "Parallel Synchronization and Communication Instructions: match.sync"},
    {"elect", decode_elect, "Parallel Synchronization and Communication Instructions: elect.sync"},
    {"redux", decode_redux, "Parallel Synchronization and Communication Instructions: redux.sync"},
    {"bar.warp.sync", decode_warp_sync,
     "Parallel Synchronization and Communication Instructions: bar.warp.sync", ValueFlow::kUses,
     InstructionKind::kWarpSync},
};

}  // namespace

std::span<const InstructionRow> warp_rows() { return kRows; }

}  // namespace ptxemu
