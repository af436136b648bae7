// bar, barrier, barrier.cluster ("Parallel Synchronization and Communication Instructions", PTX ISA
// 9.7.13.1 and 9.7.13.4).
#include "emulator/machine/barriers.h"

#include <fmt/format.h>

#include <bit>

#include "emulator/isa/decoder.h"
#include "emulator/machine/exec.h"

namespace ptxemu {

namespace {

enum class Reduction : uint8_t { kNone, kPopc, kAnd, kOr };

struct BarrierForm {
  bool aligned = true;
  bool arrives_only = false;
  Reduction reduction = Reduction::kNone;
  Slot number = kNoSlot, count = kNoSlot;  // u32 slots; count may be absent
  Slot p = kNoSlot;                        // the predicate that is reduced
  bool p_negated = false;
};

NamedBarrier& barrier_of(const Exec& exec, uint32_t number) {
  if (number >= NamedBarriers::kCount) {
    throw Trap{"barrier-number", fmt::format("barrier {}; accepted: 0 to 15", number)};
  }
  return exec.cta->state<NamedBarriers>().barriers[number];
}

void set_expected(const Exec& exec, const Insn& insn, const BarrierForm& form, uint32_t number,
                  NamedBarrier& barrier) {
  const bool counted = form.count != kNoSlot;
  const uint32_t count =
      counted ? exec.lanes<uint32_t>(form.count)[exec.first_lane()] : live_threads(*exec.cta);
  if (count == 0 || count % 32 != 0) {
    throw Trap{"barrier-count",
               fmt::format("barrier {} with {} threads; accepted: multiples of 32", number, count)};
  }
  if (barrier.arrived != 0 && barrier.expected != count && barrier.counted == counted) {
    exec.launch->report(
        exec, insn, Severity::kError, "barrier-mixed-counts",
        fmt::format("{} threads, where those that came before said {}", count, barrier.expected),
        fmt::format("barrier {}", number));
  }
  barrier.expected = count;
  barrier.counted = counted;
}

void reduce(const Exec& exec, const BarrierForm& form, NamedBarrier& barrier) {
  if (form.reduction == Reduction::kNone) return;
  uint32_t p = exec.predicate(form.p);
  if (form.p_negated) p = ~p;
  barrier.population += static_cast<uint32_t>(std::popcount(p & exec.mask));
  barrier.all &= (~p & exec.mask) == 0;
  barrier.any |= (p & exec.mask) != 0;
}

void store_result(const Exec& exec, const Insn& insn, const BarrierForm& form,
                  const NamedBarrier& barrier, uint64_t generation) {
  const NamedBarrier::Result& result = barrier.result[generation % 2];
  if (form.reduction == Reduction::kPopc) {
    exec.each(exec.lanes<uint32_t>(insn.d), [&](int) { return result.population; });
  } else if (form.reduction != Reduction::kNone) {
    const bool value = form.reduction == Reduction::kAnd ? result.all : result.any;
    exec.set_predicate(insn.d, value ? ~0u : 0u);
  }
}

Flow run_barrier(Exec& exec, const Insn& insn) {
  const auto& form = insn.form<BarrierForm>();
  const uint32_t number = exec.lanes<uint32_t>(form.number)[exec.first_lane()];
  NamedBarrier& barrier = barrier_of(exec, number);
  if (exec.resumed(Wait::Kind::kNamedBarrier)) {
    const uint64_t generation = exec.group->wait.value;
    if (barrier.generation == generation) return Flow::kBlocked;
    store_result(exec, insn, form, barrier, generation);
    exec.tell(&Observer::barrier_passed, insn, number, generation);
    return Flow::kNext;
  }
  if (form.aligned) exec.require_converged(insn);
  set_expected(exec, insn, form, number, barrier);
  reduce(exec, form, barrier);
  const uint64_t generation = barrier.generation;
  const uint32_t all = exec.warp->lanes & ~exec.warp->exited;
  const bool whole = form.aligned || exec.mask == all;
  if (whole) {
    barrier.arrived += 32;
  } else {
    barrier.arrive_in_part(*exec.warp, exec.mask);
  }
  exec.tell(&Observer::barrier_arrive, insn, number, generation);
  if (barrier.arrived > barrier.expected) {
    throw Trap{"barrier-overflow", fmt::format("{} threads at barrier {}, which awaits {}",
                                               barrier.arrived, number, barrier.expected)};
  }
  complete_named_barriers(*exec.cta);
  if (form.arrives_only) return Flow::kNext;
  if (barrier.generation == generation) {
    return exec.block(Wait::Kind::kNamedBarrier, number, generation);
  }
  store_result(exec, insn, form, barrier, generation);
  exec.tell(&Observer::barrier_passed, insn, number, generation);
  return Flow::kNext;
}

void decode_barrier(Decoder& decoder, Insn& insn, bool is_bar) {
  BarrierForm form;
  decoder.take("cta");
  form.aligned = decoder.take("aligned") || is_bar;
  form.arrives_only = decoder.take("arrive");
  const bool reduces = decoder.take("red");
  if (!form.arrives_only && !reduces) decoder.take("sync");
  size_t i = 0;
  if (reduces) {
    form.reduction = decoder.take_one<Reduction>(
        {{"popc", Reduction::kPopc}, {"and", Reduction::kAnd}, {"or", Reduction::kOr}},
        Reduction::kNone);
    const Type type = decoder.need_type();
    const Type wanted = form.reduction == Reduction::kPopc ? Type::kU32 : Type::kPred;
    if (form.reduction == Reduction::kNone) decoder.fail("no operation; accepted: popc, and, or");
    if (type != wanted)
      decoder.fail_type(type, form.reduction == Reduction::kPopc ? ".u32" : ".pred");
    insn.d = decoder.dest(i++, type);
  }
  form.number = decoder.source(i++, Type::kU32);
  const size_t last = decoder.operand_count() - (reduces ? 1 : 0);
  if (i < last) form.count = decoder.source(i++, Type::kU32);
  if (reduces) form.p = decoder.predicate(decoder.operand(i++), &form.p_negated);
  decoder.need_operands(i, i);
  if (form.arrives_only && form.count == kNoSlot)
    decoder.fail_syntax("arrive without a thread count; accepted: barrier, count");
  decoder.set_form(insn, form);
  insn.run = run_barrier;
}

// --- barrier.cluster ---------------------------------------------------------------------------

struct ClusterForm {
  bool aligned = false;
  bool releases = true;  // of an arrive; false: .relaxed
};

Flow cluster_arrive(Exec& exec, const Insn& insn) {
  const auto& form = insn.form<ClusterForm>();
  if (form.aligned) exec.require_converged(insn);
  auto& barrier = exec.cluster->state<ClusterBarrier>();
  auto& arrival = exec.warp->state<ClusterArrival>();
  if ((arrival.waiting & exec.mask) != 0) {
    throw Trap{"cluster-barrier-order", "a second barrier.cluster.arrive without a wait between"};
  }
  exec.for_lanes(
      [&](int lane) { arrival.generation[static_cast<size_t>(lane)] = barrier.generation; });
  arrival.waiting |= exec.mask;
  exec.tell(&Observer::cluster_arrive, insn, barrier.generation,
            {.releases = form.releases, .scope = Scope::kCluster});
  barrier.complete_if_all(*exec.cluster);
  return Flow::kNext;
}

Flow cluster_wait(Exec& exec, const Insn& insn) {
  const auto& form = insn.form<ClusterForm>();
  if (form.aligned && !exec.resumed(Wait::Kind::kClusterBarrier)) exec.require_converged(insn);
  auto& barrier = exec.cluster->state<ClusterBarrier>();
  auto& arrival = exec.warp->state<ClusterArrival>();
  if ((arrival.waiting & exec.mask) != exec.mask) {
    throw Trap{"cluster-barrier-order", "barrier.cluster.wait without an arrive before"};
  }
  const uint64_t generation = arrival.generation[static_cast<size_t>(exec.first_lane())];
  if (barrier.generation == generation) {
    return exec.block(Wait::Kind::kClusterBarrier, 0, generation);
  }
  arrival.waiting &= ~exec.mask;
  exec.tell(&Observer::cluster_passed, insn, generation);
  return Flow::kNext;
}

void decode_cluster_arrive(Decoder& decoder, Insn& insn) {
  ClusterForm form;
  form.aligned = decoder.take("aligned");
  form.releases = !decoder.take("relaxed");
  decoder.take("release");
  decoder.need_operands(0, 0);
  decoder.set_form(insn, form);
  insn.run = cluster_arrive;
}

void decode_cluster_wait(Decoder& decoder, Insn& insn) {
  ClusterForm form;
  form.aligned = decoder.take("aligned");
  decoder.take("acquire");
  decoder.need_operands(0, 0);
  decoder.set_form(insn, form);
  insn.run = cluster_wait;
}

void decode_bar(Decoder& decoder, Insn& insn) { decode_barrier(decoder, insn, true); }
void decode_barrier_cta(Decoder& decoder, Insn& insn) { decode_barrier(decoder, insn, false); }

constexpr std::string_view kBar =
    "Parallel Synchronization and Communication Instructions: bar, barrier";
constexpr std::string_view kCluster =
    "Parallel Synchronization and Communication Instructions: barrier.cluster";
constexpr InstructionRow kRows[] = {
    {"bar", decode_bar, kBar},
    {"barrier", decode_barrier_cta, kBar},
    {"barrier.cluster.arrive", decode_cluster_arrive, kCluster},
    {"barrier.cluster.wait", decode_cluster_wait, kCluster},
};

}  // namespace

std::span<const InstructionRow> barrier_rows() { return kRows; }

}  // namespace ptxemu
