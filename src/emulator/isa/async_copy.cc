// cp.async and what waits for it ("Data Movement and Conversion Instructions: Non-bulk copy"; PTX
// ISA 9.7.9.25.3, cp.async.mbarrier.arrive 9.7.13.15.16); the rows of the bulk copies too.
#include <algorithm>
#include <array>
#include <cstring>
#include <deque>

#include "emulator/isa/addressing.h"
#include "emulator/isa/async_ops.h"
#include "emulator/isa/builder.h"
#include "emulator/isa/bulk_copy.h"
#include "emulator/machine/mbarrier.h"

namespace ptxemu {
namespace {

// An arrival that happens when the copies it was issued behind are done.
struct DelayedArrival {
  BarrierPlace barrier;
  size_t copies = 0;  // still to come
};

class CopyOp;

// Kernels that never wait leave what is done behind: it is forgotten, and the two oldest groups
// become one, which nobody who waits for all but the latest can tell.
constexpr size_t kMostRemembered = 4096;

// Warp state: what each thread has issued.
struct CopyGroups {
  using Ids = std::vector<uint64_t>;
  struct Lane {
    Ids open;
    std::deque<Ids> groups;
    size_t look_at = kMostRemembered;  // ids in a list before those that are done are looked for
  };
  // A copy that was done before an arrival was issued behind it.
  struct Done {
    uint64_t id;
    uint32_t mask;
  };
  Lane lanes[32];
  std::vector<CopyOp*> pending;  // of the warp; ops take themselves out
  std::deque<Done> done;         // the latest
};

void forget_done(const Exec& exec, CopyGroups::Lane* lane, CopyGroups::Ids* ids) {
  if (ids->size() < lane->look_at) return;
  std::erase_if(*ids, [&](uint64_t id) { return !exec.cluster->engines.is_pending(id); });
  lane->look_at = std::max(kMostRemembered, 2 * ids->size());
}

void join_oldest(const Exec& exec, CopyGroups::Lane* lane) {
  auto& groups = lane->groups;
  if (groups.size() <= kMostRemembered) return;
  CopyGroups::Ids oldest = std::move(groups.front());
  groups.pop_front();
  oldest.insert(oldest.end(), groups.front().begin(), groups.front().end());
  forget_done(exec, lane, &oldest);
  groups.front() = std::move(oldest);
}

struct AsyncCopy {
  MemoryOperand to;
  MemoryOperand from;
  uint32_t bytes = 0;
  Slot source_bytes = kNoSlot;  // how many of them are read; the rest are zeros
  Slot ignore = kNoSlot;        // predicate: all are zeros
  bool ignore_negated = false;
};

class CopyOp final : public AsyncOp {
 public:
  CopyOp(const Exec& exec, uint32_t bytes)
      : AsyncOp(EngineKind::kCopyAsync, exec),
        bytes_(bytes),
        groups_(exec.warp->state<CopyGroups>()) {
    groups_.pending.push_back(this);
  }
  CopyOp(const CopyOp&) = delete;
  CopyOp& operator=(const CopyOp&) = delete;
  ~CopyOp() override { std::erase(groups_.pending, this); }

  struct Lane {
    std::byte *to, *from;  // from: null when nothing is read
    uint32_t read;         // bytes
    Region source, target;
  };
  std::vector<Lane> lanes;
  uint32_t mask = 0;
  std::vector<std::shared_ptr<DelayedArrival>> followers;

  bool advance(Cluster& cluster, bool split) override {
    const size_t end = split && next_ == 0 && lanes.size() > 1 ? lanes.size() / 2 : lanes.size();
    for (; next_ < end; ++next_) copy(cluster, lanes[next_]);
    if (next_ < lanes.size()) return false;
    if (followers.empty()) {
      groups_.done.push_back({id, mask});
      if (groups_.done.size() > kMostRemembered) groups_.done.pop_front();
    }
    for (const auto& arrival : followers) {
      if (--arrival->copies != 0) {
        // The arrival that comes with the last of them speaks for this one too.
        if (Observer* observer = cluster.launch.observer.get()) {
          observer->mbarrier_async_arrive(*this, *arrival->barrier.cta, arrival->barrier.offset, 0,
                                          0);
        }
        continue;
      }
      mbarrier_async_arrive(cluster, *arrival->barrier.cta, arrival->barrier.offset, 1, 0, *this);
    }
    return true;
  }

 private:
  void copy(Cluster& cluster, const Lane& lane) {
    if (lane.read != 0) {
      std::memcpy(lane.to, lane.from, lane.read);
      note_read(cluster, lane.source);
    }
    std::memset(lane.to + lane.read, 0, bytes_ - lane.read);
    note_write(cluster, lane.target);
  }
  uint32_t bytes_;
  CopyGroups& groups_;
  size_t next_ = 0;
};

// The arrivals of lanes that have nothing to wait for.
class ArriveOp final : public AsyncOp {
 public:
  explicit ArriveOp(const Exec& exec) : AsyncOp(EngineKind::kCopyAsync, exec) {}
  std::vector<BarrierPlace> barriers;
  bool advance(Cluster& cluster, bool) override {
    for (const BarrierPlace& barrier : barriers) {
      mbarrier_async_arrive(cluster, *barrier.cta, barrier.offset, 1, 0, *this);
    }
    return true;
  }
};

uint32_t bytes_to_read(const Exec& exec, const AsyncCopy& copy, int lane) {
  if (copy.ignore != kNoSlot) {
    const bool ignore = (exec.predicate(copy.ignore) >> lane & 1) != 0;
    return ignore != copy.ignore_negated ? 0 : copy.bytes;
  }
  if (copy.source_bytes == kNoSlot) return copy.bytes;
  const uint32_t bytes = exec.lanes<uint32_t>(copy.source_bytes)[lane];
  if (bytes <= copy.bytes) return bytes;
  throw Trap{"bad-size", "cp.async reads more bytes than it writes", lane};
}

Flow run_copy(Exec& exec, const Insn& insn) {
  const AsyncCopy& copy = insn.form<AsyncCopy>();
  auto op = std::make_unique<CopyOp>(exec, copy.bytes);
  op->mask = exec.mask;
  LaneHosts targets;
  resolve_lanes(exec, copy.to, &targets);
  std::vector<Region> writes;
  exec.for_lanes([&](int lane) {
    const auto at = [&](const MemoryOperand& operand) {
      return lane_address(exec, operand.address.base, operand.address.wide, operand.address.offset,
                          lane);
    };
    CopyOp::Lane entry{targets.at[lane], nullptr, bytes_to_read(exec, copy, lane), {}, {}};
    const SharedLocation place = locate_shared(exec, at(copy.to), copy.bytes, Space::kShared);
    entry.target = shared_region(place.cta, place.offset, copy.bytes);
    writes.push_back(entry.target);
    if (entry.read != 0) {
      entry.from = resolve(exec, lane, Space::kGlobal, at(copy.from), entry.read, AccessKind::kRead,
                           copy.bytes);
      entry.source = global_region(at(copy.from), entry.read);
    }
    op->lanes.push_back(entry);
  });
  exec.cluster->engines.name(*op);
  auto& groups = exec.warp->state<CopyGroups>();
  exec.for_lanes([&](int lane) {
    forget_done(exec, &groups.lanes[lane], &groups.lanes[lane].open);
    groups.lanes[lane].open.push_back(op->id);
  });
  start(exec, insn, std::move(op), writes);
  return Flow::kNext;
}

Flow commit(Exec& exec, const Insn&) {
  auto& groups = exec.warp->state<CopyGroups>();
  exec.for_lanes([&](int lane) {
    CopyGroups::Lane& state = groups.lanes[lane];
    state.groups.push_back(std::move(state.open));
    state.open.clear();
    join_oldest(exec, &state);
  });
  return Flow::kNext;
}

bool all_done(const Exec& exec, const CopyGroups::Ids& ids) {
  for (uint64_t id : ids) {
    if (exec.cluster->engines.is_pending(id)) return false;
  }
  return true;
}

void tell_done(const Exec& exec, const Insn& insn, const CopyGroups::Ids& ids) {
  if (exec.observer == nullptr) return;
  for (uint64_t id : ids) exec.observer->op_done_observed(exec, insn, id);
}

struct GroupWait {
  uint64_t may_stay = 0;     // groups that need not be done
  bool uncommitted = false;  // wait_all: what is in no group yet must be done, too
};

Flow wait(Exec& exec, const Insn& insn) {
  const GroupWait& form = insn.form<GroupWait>();
  auto& groups = exec.warp->state<CopyGroups>();
  const bool all = form.uncommitted;
  bool ready = true;
  exec.for_lanes([&](int lane) {
    CopyGroups::Lane& state = groups.lanes[lane];
    const size_t keep = std::min<uint64_t>(form.may_stay, state.groups.size());
    for (size_t i = 0; i + keep < state.groups.size(); ++i) {
      ready = ready && all_done(exec, state.groups[i]);
    }
    if (all) ready = ready && all_done(exec, state.open);
  });
  if (!ready) return exec.block(Wait::Kind::kCopyGroup, all, form.may_stay);
  exec.for_lanes([&](int lane) {
    CopyGroups::Lane& state = groups.lanes[lane];
    while (state.groups.size() > form.may_stay) {
      tell_done(exec, insn, state.groups.front());
      state.groups.pop_front();
    }
    if (!all) return;
    tell_done(exec, insn, state.open);
    state.open.clear();
  });
  return Flow::kNext;
}

struct ArriveInsn {
  Space space = Space::kGeneric;
  Address address;
  bool increments = true;
};

// The lane's arrival speaks also for those of its copies that are done.
void tell_followed(const Exec& exec, const BarrierPlace& place, int lane,
                   const std::deque<CopyGroups::Done>& done) {
  if (exec.observer == nullptr) return;
  for (const CopyGroups::Done& copy : done) {
    if ((copy.mask >> lane & 1) == 0) continue;
    exec.observer->mbarrier_follows(*place.cta, place.offset, copy.id);
  }
}

Flow run_arrive(Exec& exec, const Insn& insn) {
  const ArriveInsn& arrive = insn.form<ArriveInsn>();
  auto& groups = exec.warp->state<CopyGroups>();
  auto at_once = std::make_unique<ArriveOp>(exec);
  exec.for_lanes([&](int lane) {
    const BarrierPlace place = barrier_place(exec, arrive.address, arrive.space, lane);
    if (arrive.increments) mbarrier_await_one_more(*place.cta, place.offset);
    tell_followed(exec, place, lane, groups.done);
    auto arrival = std::make_shared<DelayedArrival>();
    arrival->barrier = place;
    for (CopyOp* op : groups.pending) {
      if ((op->mask >> lane & 1) == 0) continue;
      op->followers.push_back(arrival);
      ++arrival->copies;
    }
    if (arrival->copies == 0) at_once->barriers.push_back(place);
  });
  // Those whose lanes have all arrived need not be told of again.
  std::erase_if(groups.done,
                [&](CopyGroups::Done& copy) { return (copy.mask &= ~exec.mask) == 0; });
  if (!at_once->barriers.empty()) start(exec, insn, std::move(at_once), {});
  return Flow::kNext;
}

void decode_copy(Decoder& decoder, Insn& insn) {
  AsyncCopy copy;
  const bool all_levels = decoder.take("ca");
  if (!all_levels && !decoder.take("cg"))
    decoder.fail("cp.async without a cache level; accepted: .ca, .cg");
  copy.to.space = decoder.take_space();
  copy.from.space = decoder.take_space();
  if (copy.to.space != Space::kShared || copy.from.space != Space::kGlobal) {
    decoder.fail("cp.async between other spaces; accepted: .shared.global, .shared::cta.global");
  }
  decoder.take_one<int>({{"L2::64B", 1}, {"L2::128B", 1}, {"L2::256B", 1}}, 0);
  const bool policy = decoder.take("L2::cache_hint");
  decoder.finish();
  decoder.need_operands(3 + policy, 4 + policy);
  copy.to.address = decoder.address(0);
  copy.from.address = decoder.address(1);
  const int64_t bytes = decoder.constant(2);
  if (bytes != 16 && (!all_levels || (bytes != 4 && bytes != 8))) {
    decoder.fail_syntax("the size of the copy; accepted: 16, and with .ca 4, 8");
  }
  copy.bytes = copy.to.bytes = static_cast<uint32_t>(bytes);
  copy.to.writes = true;
  if (decoder.operand_count() == size_t{4} + policy) {
    const Operand& fourth = decoder.operand(3);
    // src-size, or the predicate ignore-src.
    if (fourth.kind == Operand::Kind::kRegister &&
        decoder.builder().register_at(fourth.index).type == Type::kPred) {
      copy.ignore = decoder.predicate(fourth, &copy.ignore_negated);
    } else {
      copy.source_bytes = decoder.source(fourth, Type::kU32);
    }
  }
  if (policy) decoder.source(decoder.operand_count() - 1, Type::kB64);
  decoder.set_form(insn, copy);
  insn.run = run_copy;
}

void decode_commit(Decoder& decoder, Insn& insn) {
  decoder.finish();
  decoder.need_operands(0, 0);
  insn.run = commit;
}

void decode_wait(Decoder& decoder, Insn& insn) {
  decoder.finish();
  decoder.need_operands(1, 1);
  const int64_t keep = decoder.constant(0);
  if (keep < 0) decoder.fail_syntax("a negative number of groups; accepted: 0 and more");
  decoder.set_form(insn, GroupWait{.may_stay = static_cast<uint64_t>(keep)});
  insn.run = wait;
}

void decode_wait_all(Decoder& decoder, Insn& insn) {
  decoder.finish();
  decoder.need_operands(0, 0);
  decoder.set_form(insn, GroupWait{.uncommitted = true});
  insn.run = wait;
}

void decode_arrive(Decoder& decoder, Insn& insn) {
  ArriveInsn arrive;
  arrive.increments = !decoder.take("noinc");
  arrive.space = decoder.take_space();
  if (arrive.space != Space::kGeneric && arrive.space != Space::kShared) {
    decoder.fail("an mbarrier in another space; accepted: .shared, .shared::cta");
  }
  if (decoder.need_type() != Type::kB64)
    decoder.fail("an mbarrier of another type; accepted: .b64");
  decoder.finish();
  decoder.need_operands(1, 1);
  arrive.address = decoder.address(0);
  decoder.set_form(insn, arrive);
  insn.run = run_arrive;
}

constexpr std::string_view kCopy = "Data Movement and Conversion Instructions: cp.async";
constexpr std::string_view kBulk = "Data Movement and Conversion Instructions: cp.async.bulk";

constexpr InstructionRow kRows[] = {
    {"cp.async", decode_copy, kCopy},
    {"cp.async.commit_group", decode_commit,
     "Data Movement and Conversion Instructions: cp.async.commit_group"},
    {"cp.async.wait_group", decode_wait,
     "Data Movement and Conversion Instructions: cp.async.wait_group / cp.async.wait_all"},
    {"cp.async.wait_all", decode_wait_all,
     "Data Movement and Conversion Instructions: cp.async.wait_group / cp.async.wait_all"},
    {"cp.async.mbarrier.arrive", decode_arrive,
     "Parallel Synchronization and Communication Instructions: cp.async.mbarrier.arrive"},
    {"cp.async.bulk", decode_bulk_copy, kBulk},
    {"cp.reduce.async.bulk", decode_bulk_reduce,
     "Data Movement and Conversion Instructions: cp.reduce.async.bulk"},
    {"cp.async.bulk.prefetch", decode_bulk_prefetch,
     "Data Movement and Conversion Instructions: cp.async.bulk.prefetch"},
    {"cp.async.bulk.commit_group", decode_bulk_commit,
     "Data Movement and Conversion Instructions: cp.async.bulk.commit_group"},
    {"cp.async.bulk.wait_group", decode_bulk_wait,
     "Data Movement and Conversion Instructions: cp.async.bulk.wait_group"},
};

}  // namespace

std::span<const InstructionRow> async_copy_rows() { return kRows; }

}  // namespace ptxemu
