// mbarrier.* ("Parallel Synchronization and Communication Instructions: mbarrier"; PTX ISA
// 9.7.13.15). cp.async.mbarrier.arrive is in async_copy.cc.
#include "emulator/machine/mbarrier.h"

#include <fmt/format.h>

#include "emulator/isa/async_ops.h"

namespace ptxemu {
namespace {

struct BarrierInsn {
  Space space = Space::kGeneric;
  Address address;
  Slot count = kNoSlot;   // arrivals, or those of init; kNoSlot: one
  Slot bytes = kNoSlot;   // expected; kNoSlot: none
  Slot wanted = kNoSlot;  // a parity, or a state word
  bool drop = false, no_complete = false;
  bool completes = false;  // complete_tx, else expect_tx
  bool parity = false, may_block = false;
  bool ordered = true;  // an arrival releases, a wait acquires; else .relaxed
  Scope scope = Scope::kCta;
};

const BarrierInsn& barrier_of(const Insn& insn) { return insn.form<BarrierInsn>(); }

uint32_t checked_count(uint32_t count, int lane) {
  if (count >= 1 && count <= kMaxMbarrierCount) return count;
  throw Trap{"mbarrier-count",
             fmt::format("a count of {}: 1 to {} are accepted", count, kMaxMbarrierCount), lane};
}

// A thread's operation on the barrier, which must be known to be initialised.
void note_use(const Exec& exec, const Insn& insn, BarrierPlace place) {
  exec.tell(&Observer::mbarrier_used, insn, *place.cta, place.offset);
}

// --- init, inval --------------------------------------------------------------------------------

// Known kernels let all lanes of a warp initialise a barrier: the same again changes nothing.
void report_reinit(const Exec& exec, const Insn& insn, BarrierPlace place,
                   const MbarrierRecord& old, uint32_t count, int lane) {
  MbarrierState fresh;
  fresh.pending = fresh.expected = count;
  const bool same = old.phases == 0 && old.arrivals == 0 &&
                    read_mbarrier(*place.cta, place.offset).word() == fresh.word();
  exec.launch->report(exec, insn, same ? Severity::kFormal : Severity::kError, "mbarrier-reinit",
                      fmt::format("mbarrier.init over a barrier that is in use: phase {}, {}",
                                  old.phases, old.last_arrivals()),
                      fmt::format("smem+0x{:x}", place.offset), lane);
}

Flow init(Exec& exec, const Insn& insn) {
  const BarrierInsn& barrier = barrier_of(insn);
  const uint32_t* counts = exec.lanes<uint32_t>(barrier.count);
  exec.for_lanes([&](int lane) {
    const BarrierPlace place = barrier_place(exec, barrier.address, barrier.space, lane);
    const uint32_t count = checked_count(counts[lane], lane);
    const MbarrierRecord* old = place.cta->state<MbarrierRecords>().find(place.offset);
    if (exec.launch->options.check && old != nullptr && old->live) {
      report_reinit(exec, insn, place, *old, count, lane);
    }
    mbarrier_init(*place.cta, place.offset, count);
    exec.tell(&Observer::mbarrier_init, insn, *place.cta, place.offset, count);
  });
  return Flow::kNext;
}

Flow invalidate(Exec& exec, const Insn& insn) {
  const BarrierInsn& barrier = barrier_of(insn);
  exec.for_lanes([&](int lane) {
    const BarrierPlace place = barrier_place(exec, barrier.address, barrier.space, lane);
    mbarrier_invalidate(*place.cta, place.offset);
    exec.tell(&Observer::mbarrier_inval, insn, *place.cta, place.offset);
  });
  return Flow::kNext;
}

// --- arrive, arrive_drop, expect_tx, complete_tx ------------------------------------------------

Flow arrive(Exec& exec, const Insn& insn) {
  const BarrierInsn& barrier = barrier_of(insn);
  exec.for_lanes([&](int lane) {
    const BarrierPlace place = barrier_place(exec, barrier.address, barrier.space, lane);
    note_use(exec, insn, place);
    ThreadArrival arrival{.drop = barrier.drop, .order = {barrier.ordered, barrier.scope}};
    if (barrier.count != kNoSlot) {
      arrival.count = checked_count(exec.lanes<uint32_t>(barrier.count)[lane], lane);
    }
    if (barrier.bytes != kNoSlot) {
      arrival.expects = true;
      arrival.expect = exec.lanes<uint32_t>(barrier.bytes)[lane];
    }
    if (barrier.no_complete && read_mbarrier(*place.cta, place.offset).pending <= arrival.count) {
      throw Trap{"mbarrier-no-complete",
                 "mbarrier.arrive.noComplete would complete the phase, which it must not", lane};
    }
    const uint64_t before = mbarrier_thread_arrive(exec, insn, *place.cta, place.offset, arrival);
    if (insn.d != kNoSlot) exec.lanes<uint64_t>(insn.d)[lane] = before;
  });
  return Flow::kNext;
}

Flow count_bytes(Exec& exec, const Insn& insn) {
  const BarrierInsn& barrier = barrier_of(insn);
  const uint32_t* bytes = exec.lanes<uint32_t>(barrier.bytes);
  const bool completes = barrier.completes;
  exec.for_lanes([&](int lane) {
    const BarrierPlace place = barrier_place(exec, barrier.address, barrier.space, lane);
    const int64_t count = bytes[lane];
    note_use(exec, insn, place);
    mbarrier_thread_arrive(exec, insn, *place.cta, place.offset,
                           {.count = 0, .expect = completes ? -count : count, .expects = true});
  });
  return Flow::kNext;
}

// --- waits --------------------------------------------------------------------------------------

bool is_done(const Exec& exec, const BarrierInsn& barrier, BarrierPlace place, int lane) {
  const MbarrierState state = read_mbarrier(*place.cta, place.offset);
  if (barrier.parity) return (state.phase & 1) != (exec.lanes<uint32_t>(barrier.wanted)[lane] & 1);
  return state.phase != MbarrierState::of(exec.lanes<uint64_t>(barrier.wanted)[lane]).phase;
}

uint32_t phase_parity(const Exec& exec, const BarrierInsn& barrier, int lane) {
  if (barrier.parity) return exec.lanes<uint32_t>(barrier.wanted)[lane] & 1;
  return MbarrierState::of(exec.lanes<uint64_t>(barrier.wanted)[lane]).phase & 1;
}

uint64_t object_of(BarrierPlace place) {
  return uint64_t{place.cta->rank} << kRankShift | place.offset;
}

// A try_wait may give up before its phase is over: now and then it does, in all lanes alike, at
// once or after it has waited. One that has waited gives up again only when something has moved
// since, so that waits for what never comes end as a deadlock, and not where it has seen its phase
// end: by the next try the barrier might be a phase further.
bool gives_up(Exec& exec, bool done) {
  constexpr uint64_t kAtOnce = 16, kWhileItWaits = 64;  // one of so many tries
  const Policy policy = exec.launch->options.policy;
  if (policy != Policy::kRandom && policy != Policy::kSplit) return false;
  if (!exec.resumed(Wait::Kind::kMbarrier)) return exec.cluster->random() % kAtOnce == 0;
  uint64_t& gave_up = exec.group->wait.gave_up;
  if (done || gave_up == exec.cluster->progress || exec.cluster->random() % kWhileItWaits != 0) {
    return false;
  }
  gave_up = exec.cluster->progress;
  return true;
}

void tell_observed(const Exec& exec, const Insn& insn, const BarrierInsn& barrier, uint32_t done) {
  BarrierPlace told;
  for (; done != 0; done &= done - 1) {
    const int lane = std::countr_zero(done);
    const BarrierPlace place = barrier_place(exec, barrier.address, barrier.space, lane);
    if (place.cta == told.cta && place.offset == told.offset) continue;
    told = place;
    exec.observer->mbarrier_observed(
        exec, insn, *place.cta, place.offset,
        {phase_parity(exec, barrier, lane), barrier.ordered, barrier.scope});
    if (!is_done(exec, barrier, place, lane)) {
      exec.observer->mbarrier_overtaken(exec, insn, *place.cta, place.offset);
    }
  }
}

uint64_t phases_of(BarrierPlace place) {
  return place.cta->state<MbarrierRecords>().find(place.offset)->phases;
}

// A wait that has begun passes when its phase completes, even where the barrier is a phase further
// by the time the warp's turn comes.
bool has_completed_since(const Exec& exec, BarrierPlace place) {
  const Wait& begun = exec.group->wait;
  return begun.kind == Wait::Kind::kMbarrier && begun.object == object_of(place) &&
         phases_of(place) != begun.value;
}

Flow wait(Exec& exec, const Insn& insn) {
  const BarrierInsn& barrier = barrier_of(insn);
  uint32_t done = 0;
  BarrierPlace first;
  exec.for_lanes([&](int lane) {
    const BarrierPlace place = barrier_place(exec, barrier.address, barrier.space, lane);
    if (first.cta == nullptr) {
      first = place;
      note_use(exec, insn, place);
    }
    if (place.cta != exec.cta && exec.launch->options.check) {
      exec.launch->report(exec, insn, Severity::kError, "mbarrier-remote-wait",
                          fmt::format("a wait on the barrier of CTA rank {}: a thread may wait "
                                      "only for those of its own CTA",
                                      place.cta->rank),
                          fmt::format("smem+0x{:x}", place.offset), lane);
    }
    if (is_done(exec, barrier, place, lane) || has_completed_since(exec, place)) {
      done |= 1u << lane;
    }
  });
  if (barrier.may_block) {
    if (gives_up(exec, done != 0)) {
      done = 0;
    } else if (done == 0 && !exec.group->wait.expired) {
      const uint32_t parity = phase_parity(exec, barrier, exec.first_lane());
      if (!exec.resumed(Wait::Kind::kMbarrier)) {
        exec.tell(&Observer::mbarrier_waits, insn, *first.cta, first.offset, parity);
      }
      exec.group->wait.parity = parity;
      return exec.block(Wait::Kind::kMbarrier, object_of(first), phases_of(first));
    }
  }
  exec.group->wait.expired = false;
  if (exec.observer != nullptr) tell_observed(exec, insn, barrier, done);
  exec.set_predicate(insn.d, done);
  return Flow::kNext;
}

Flow pending_count(Exec& exec, const Insn& insn) {
  const uint64_t* states = exec.lanes<uint64_t>(insn.a);
  exec.each(exec.lanes<uint32_t>(insn.d),
            [&](int lane) { return MbarrierState::of(states[lane]).pending; });
  return Flow::kNext;
}

// --- Decoding -----------------------------------------------------------------------------------

// .shared, .shared::cta, .shared::cluster or none; the type .b64.
void take_place(Decoder& decoder, bool remote, BarrierInsn* barrier) {
  barrier->space = decoder.take_space();
  const bool known = barrier->space == Space::kGeneric || barrier->space == Space::kShared ||
                     (remote && barrier->space == Space::kSharedCluster);
  if (!known) {
    decoder.fail(
        remote ? "an mbarrier in another space; accepted: .shared, .shared::cta, .shared::cluster"
               : "an mbarrier in another space; accepted: .shared, .shared::cta");
  }
  if (decoder.need_type() != Type::kB64)
    decoder.fail("an mbarrier of another type; accepted: .b64");
}

// {.sem.scope}, which only observers ask for: .release or .acquire, and .cta, when they are left
// out.
void take_order(Decoder& decoder, std::string_view strong, BarrierInsn* barrier) {
  const bool is_strong = decoder.take(strong), relaxed = decoder.take("relaxed");
  const bool cta = decoder.take("cta"), cluster = decoder.take("cluster");
  if ((is_strong || relaxed) != (cta || cluster)) {
    decoder.fail("an ordering without its scope, or a scope alone; accepted: both or neither");
  }
  if (is_strong && relaxed) decoder.fail("two orderings; accepted: one");
  if (cta && cluster) decoder.fail("two scopes; accepted: one");
  barrier->ordered = !relaxed;
  barrier->scope = cluster ? Scope::kCluster : Scope::kCta;
}

void decode_init(Decoder& decoder, Insn& insn) {
  BarrierInsn barrier;
  take_place(decoder, false, &barrier);
  decoder.finish();
  decoder.need_operands(2, 2);
  barrier.address = decoder.address(0);
  barrier.count = decoder.source(1, Type::kU32);
  decoder.set_form(insn, barrier);
  insn.run = init;
}

void decode_inval(Decoder& decoder, Insn& insn) {
  BarrierInsn barrier;
  take_place(decoder, false, &barrier);
  decoder.finish();
  decoder.need_operands(1, 1);
  barrier.address = decoder.address(0);
  decoder.set_form(insn, barrier);
  insn.run = invalidate;
}

void decode_any_arrive(Decoder& decoder, Insn& insn, bool drop) {
  BarrierInsn barrier;
  barrier.drop = drop;
  const bool expects = decoder.take("expect_tx");
  barrier.no_complete = decoder.take("noComplete");
  if (expects && barrier.no_complete)
    decoder.fail("both .expect_tx and .noComplete; accepted: one of them");
  take_order(decoder, "release", &barrier);
  take_place(decoder, !barrier.no_complete, &barrier);
  decoder.finish();
  const bool needs_count = expects || barrier.no_complete;
  decoder.need_operands(needs_count ? 3 : 2, 3);
  barrier.address = decoder.address(1);
  insn.d = decoder.dest_or_none(0, Type::kB64);
  if (insn.d != kNoSlot && barrier.space == Space::kSharedCluster) {
    decoder.fail_syntax("a state of an arrival at .shared::cluster; accepted: _");
  }
  if (decoder.operand_count() == 3) {
    (expects ? barrier.bytes : barrier.count) = decoder.source(2, Type::kU32);
  }
  decoder.set_form(insn, barrier);
  insn.run = arrive;
}

void decode_arrive(Decoder& decoder, Insn& insn) { decode_any_arrive(decoder, insn, false); }
void decode_arrive_drop(Decoder& decoder, Insn& insn) { decode_any_arrive(decoder, insn, true); }

void decode_bytes(Decoder& decoder, Insn& insn, bool completes) {
  BarrierInsn barrier;
  if (decoder.take("relaxed") != (decoder.take_one<int>({{"cta", 1}, {"cluster", 2}}, 0) != 0)) {
    decoder.fail("an ordering without its scope, or a scope alone; accepted: both or neither");
  }
  take_place(decoder, true, &barrier);
  decoder.finish();
  decoder.need_operands(2, 2);
  barrier.address = decoder.address(0);
  barrier.bytes = decoder.source(1, Type::kU32);
  barrier.completes = completes;
  decoder.set_form(insn, barrier);
  insn.run = count_bytes;
}

void decode_expect(Decoder& decoder, Insn& insn) { decode_bytes(decoder, insn, false); }
void decode_complete(Decoder& decoder, Insn& insn) { decode_bytes(decoder, insn, true); }

void decode_wait(Decoder& decoder, Insn& insn, bool may_block) {
  BarrierInsn barrier;
  barrier.may_block = may_block;
  barrier.parity = decoder.take("parity");
  take_order(decoder, "acquire", &barrier);
  take_place(decoder, false, &barrier);
  decoder.finish();
  decoder.need_operands(3, may_block ? 4 : 3);
  barrier.address = decoder.address(1);
  insn.d = decoder.dest(0, Type::kPred);
  barrier.wanted = decoder.source(2, barrier.parity ? Type::kU32 : Type::kB64);
  if (decoder.operand_count() == 4) decoder.source(3, Type::kU32);  // how long to suspend
  decoder.set_form(insn, barrier);
  insn.run = wait;
}

void decode_test_wait(Decoder& decoder, Insn& insn) { decode_wait(decoder, insn, false); }
void decode_try_wait(Decoder& decoder, Insn& insn) { decode_wait(decoder, insn, true); }

void decode_pending_count(Decoder& decoder, Insn& insn) {
  if (decoder.need_type() != Type::kB64) decoder.fail("a state of another type; accepted: .b64");
  decoder.finish();
  decoder.need_operands(2, 2);
  insn.a = decoder.source(1, Type::kB64);
  insn.d = decoder.dest(0, Type::kU32);
  insn.run = pending_count;
}

constexpr std::string_view kSection =
    "Parallel Synchronization and Communication Instructions: mbarrier";

constexpr InstructionRow kRows[] = {
    {"mbarrier.init", decode_init, kSection},
    {"mbarrier.inval", decode_inval, kSection},
    {"mbarrier.arrive", decode_arrive, kSection},
    {"mbarrier.arrive_drop", decode_arrive_drop, kSection},
    {"mbarrier.expect_tx", decode_expect, kSection},
    {"mbarrier.complete_tx", decode_complete, kSection},
    {"mbarrier.test_wait", decode_test_wait, kSection},
    {"mbarrier.try_wait", decode_try_wait, kSection},
    {"mbarrier.pending_count", decode_pending_count, kSection},
};

}  // namespace

std::span<const InstructionRow> mbarrier_rows() { return kRows; }

}  // namespace ptxemu
