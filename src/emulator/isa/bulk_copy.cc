// cp.async.bulk, cp.reduce.async.bulk and their groups ("Data Movement and Conversion Instructions:
// Bulk copy"; PTX ISA 9.7.9.25.4).
#include "emulator/isa/bulk_copy.h"

#include <fmt/format.h>

#include <cstring>

#include "emulator/isa/reduce_words.h"
#include "emulator/machine/mbarrier.h"

namespace ptxemu {
namespace {

constexpr uint32_t kUnit = 16;

struct BulkCopy {
  Space to_space = Space::kGlobal, from_space = Space::kShared;
  Address to, from, barrier;
  Slot size = kNoSlot;
  Slot cta_mask = kNoSlot;   // multicast
  Slot byte_mask = kNoSlot;  // of each 16 bytes
  Reducer reducer;           // apply is null for a copy
  bool sums_floats = false;
};

struct Piece {
  std::byte* host;
  Region region;
  Region part(uint64_t begin, uint64_t end) const {
    Region part = region;
    part.begin += begin;
    part.bytes = end - begin;
    return part;
  }
};

// Where the first half ends under Policy::kSplit.
uint32_t half_of(uint32_t bytes) { return bytes / 2 / kUnit * kUnit; }

// Into shared memory of one CTA or more; signals a barrier in each.
class BulkInOp final : public AsyncOp {
 public:
  BulkInOp(const Exec& exec, const BulkCopy& copy)
      : AsyncOp(EngineKind::kCopyIn, exec), copy_(copy) {}
  struct Target {
    Piece piece;
    BarrierPlace barrier;
  };
  Piece source;
  std::vector<Target> targets;
  uint32_t bytes = 0;

  bool advance(Cluster& cluster, bool split) override {
    if (done_ == bytes) {
      for (const Target& target : targets) {
        mbarrier_async_arrive(cluster, *target.barrier.cta, target.barrier.offset, 0, bytes, *this);
      }
      return true;
    }
    const uint32_t end = split && done_ == 0 && half_of(bytes) != 0 ? half_of(bytes) : bytes;
    note_read(cluster, source.part(done_, end));
    for (const Target& target : targets) {
      move(target.piece.host, done_, end);
      Region written = target.piece.part(done_, end);
      written.reduces = copy_.reducer.apply != nullptr;
      note_write(cluster, written);
    }
    done_ = end;
    return false;
  }

 private:
  void move(std::byte* to, uint32_t begin, uint32_t end) {
    if (copy_.reducer.apply == nullptr) {
      std::memmove(to + begin, source.host + begin, end - begin);  // they may overlap
    } else {
      copy_.reducer.apply(to + begin, source.host + begin, nullptr,
                          (end - begin) / copy_.reducer.bytes);
    }
  }
  const BulkCopy& copy_;
  uint32_t done_ = 0;
};

// From shared to global memory; part of a bulk group.
class BulkOutOp final : public AsyncOp {
 public:
  BulkOutOp(const Exec& exec, const BulkCopy& copy)
      : AsyncOp(EngineKind::kCopyOut, exec), copy_(copy) {}
  Piece source, target;
  uint32_t bytes = 0;
  uint32_t byte_mask = 0xFFFF;
  std::shared_ptr<BulkStatus> status;

  bool advance(Cluster& cluster, bool split) override {
    if (bytes == 0) return status->read = status->done = true;
    if (buffer_.empty()) buffer_.resize(bytes);
    const uint32_t half = half_of(bytes);
    if (read_ < bytes) {
      const uint32_t end = split && read_ == 0 && half != 0 ? half : bytes;
      std::memcpy(buffer_.data() + read_, source.host + read_, end - read_);
      note_read(cluster, source.part(read_, end));
      read_ = end;
      status->read = read_ == bytes;
      return false;
    }
    const uint32_t end = split && written_ == 0 && half != 0 ? half : bytes;
    std::vector<std::byte> before;
    if (cluster.launch.observer != nullptr)
      before.assign(target.host + written_, target.host + end);
    write(written_, end);
    Region region = target.part(written_, end);
    region.before = before.empty() ? nullptr : before.data();
    region.reduces = copy_.reducer.apply != nullptr;
    region.sums_floats = copy_.sums_floats;
    note_write(cluster, region);
    written_ = end;
    status->done = written_ == bytes;
    return status->done;
  }

 private:
  void write(uint32_t begin, uint32_t end) {
    if (copy_.reducer.apply != nullptr) {
      copy_.reducer.apply(target.host + begin, buffer_.data() + begin, nullptr,
                          (end - begin) / copy_.reducer.bytes);
    } else if (byte_mask == 0xFFFF) {
      std::memcpy(target.host + begin, buffer_.data() + begin, end - begin);
    } else {
      for (uint32_t i = begin; i < end; ++i) {
        if ((byte_mask >> (i % kUnit) & 1) != 0) target.host[i] = buffer_[i];
      }
    }
  }
  const BulkCopy& copy_;
  std::vector<std::byte> buffer_;
  uint32_t read_ = 0, written_ = 0;
};

Piece piece_at(const Exec& exec, const Address& address, Space space, uint32_t bytes, int lane,
               AccessKind kind) {
  const uint64_t at = lane_address(exec, address.base, address.wide, address.offset, lane);
  std::byte* host = resolve(exec, lane, space, at, bytes, kind, kUnit);
  if (space == Space::kGlobal) return {host, global_region(at, bytes)};
  const SharedLocation place = locate_shared(exec, at, bytes, space);
  return {host, shared_region(place.cta, place.offset, bytes)};
}

uint32_t checked_size(const Exec& exec, const BulkCopy& copy, int lane) {
  const uint32_t bytes = exec.lanes<uint32_t>(copy.size)[lane];
  if (bytes % kUnit == 0) return bytes;
  throw Trap{"misaligned",
             fmt::format("a bulk copy of {} bytes: a multiple of 16 is accepted", bytes), lane};
}

// A copy from shared memory goes to another CTA, and signals a barrier there.
void check_target(const Exec& exec, const Insn& insn, const BulkCopy& copy, const Cta* to,
                  const Cta* barrier, int lane) {
  if (!exec.launch->options.check) return;
  if (copy.from_space == Space::kShared && to == exec.cta) {
    // An H200 copies all the same.
    exec.launch->report(exec, insn, Severity::kFormal, "copy-to-own-cta",
                        "a copy from .shared::cta to .shared::cluster stays in its own CTA: the "
                        "destination must be in another",
                        "", lane);
  }
  if (barrier != to) {
    exec.launch->report(exec, insn, Severity::kFormal, "bulk-barrier",
                        fmt::format("the copy goes to CTA rank {} and names the mbarrier of rank "
                                    "{}: it should be the destination's",
                                    to->rank, barrier->rank),
                        "", lane);
  }
}

void start_in(const Exec& exec, const Insn& insn, const BulkCopy& copy, int lane) {
  const uint32_t bytes = checked_size(exec, copy, lane);
  auto op = std::make_unique<BulkInOp>(exec, copy);
  op->lane = static_cast<uint32_t>(lane);
  op->bytes = bytes;
  op->source = piece_at(exec, copy.from, copy.from_space, bytes, lane, AccessKind::kRead);
  const Piece to = piece_at(exec, copy.to, copy.to_space, bytes, lane, AccessKind::kWrite);
  const BarrierPlace barrier = barrier_place(exec, copy.barrier, copy.to_space, lane);
  std::vector<Region> writes;
  if (copy.cta_mask == kNoSlot) {
    check_target(exec, insn, copy, to.region.cta, barrier.cta, lane);
    op->targets.push_back({to, barrier});
    writes.push_back(to.region);
  } else {
    for (Cta* cta : multicast_targets(exec, copy.cta_mask, lane)) {
      const auto offset = static_cast<uint32_t>(to.region.begin);
      const Region region = shared_region(cta, offset, bytes);
      op->targets.push_back({{cta->shared + offset, region}, {cta, barrier.offset}});
      writes.push_back(region);
    }
  }
  count_copied(*exec.cluster, bytes * writes.size());
  const bool keeps = copy.reducer.apply != nullptr;
  start(exec, insn, std::move(op), keeps ? std::span<const Region>{} : writes);
}

void start_out(const Exec& exec, const Insn& insn, const BulkCopy& copy, int lane) {
  const uint32_t bytes = checked_size(exec, copy, lane);
  auto op = std::make_unique<BulkOutOp>(exec, copy);
  op->lane = static_cast<uint32_t>(lane);
  op->bytes = bytes;
  op->source = piece_at(exec, copy.from, copy.from_space, bytes, lane, AccessKind::kRead);
  op->target = piece_at(exec, copy.to, copy.to_space, bytes, lane, AccessKind::kWrite);
  if (copy.byte_mask != kNoSlot) op->byte_mask = exec.lanes<uint16_t>(copy.byte_mask)[lane];
  op->held_bytes = bytes;
  op->status = join_bulk_group(exec, *op, lane);
  count_copied(*exec.cluster, bytes);
  start(exec, insn, std::move(op), {});
}

Flow run_in(Exec& exec, const Insn& insn) {
  const BulkCopy& copy = insn.form<BulkCopy>();
  exec.for_lanes([&](int lane) { start_in(exec, insn, copy, lane); });
  return Flow::kNext;
}

Flow run_out(Exec& exec, const Insn& insn) {
  const BulkCopy& copy = insn.form<BulkCopy>();
  exec.for_lanes([&](int lane) { start_out(exec, insn, copy, lane); });
  return Flow::kNext;
}

Flow commit(Exec& exec, const Insn&) {
  auto& groups = exec.warp->state<BulkGroups>();
  exec.for_lanes([&](int lane) { groups.commit(lane); });
  return Flow::kNext;
}

struct GroupWait {
  uint64_t may_stay;  // groups that need not be done
  bool read_only;     // .read: done with their sources
};

Flow wait(Exec& exec, const Insn& insn) {
  auto& groups = exec.warp->state<BulkGroups>();
  const GroupWait& form = insn.form<GroupWait>();
  bool ready = true;
  exec.for_lanes([&](int lane) { ready &= groups.ready(lane, form.may_stay, form.read_only); });
  if (!ready) return exec.block(Wait::Kind::kBulkGroup, form.read_only, form.may_stay);
  exec.for_lanes(
      [&](int lane) { groups.observe(exec, insn, lane, form.may_stay, form.read_only); });
  return Flow::kNext;
}

Flow do_nothing(Exec&, const Insn&) { return Flow::kNext; }

bool is_shared(Space space) { return space == Space::kShared || space == Space::kSharedCluster; }

// The spaces and how completion is seen; true for a barrier, false for a group.
bool take_route(Decoder& decoder, BulkCopy* copy) {
  copy->to_space = decoder.take_space();
  copy->from_space = decoder.take_space();
  const bool signals = decoder.take("mbarrier::complete_tx::bytes");
  const bool grouped = decoder.take("bulk_group");
  const bool in = is_shared(copy->to_space) &&
                  (copy->from_space == Space::kGlobal ||
                   (copy->from_space == Space::kShared && copy->to_space == Space::kSharedCluster));
  const bool out = copy->to_space == Space::kGlobal && copy->from_space == Space::kShared;
  if (!(in && signals && !grouped) && !(out && grouped && !signals)) {
    decoder.fail(
        "no such copy; accepted: .shared::cta.global, .shared::cluster.global and "
        ".shared::cluster.shared::cta with .mbarrier::complete_tx::bytes, .global.shared::cta with "
        ".bulk_group");
  }
  return signals;
}

// [to], [from], size{, [barrier]}, and after them what the qualifiers ask for.
void decode_operands(Decoder& decoder, Insn& insn, BulkCopy copy, bool signals) {
  const bool multicast = decoder.take("multicast::cluster");
  const bool policy = decoder.take("L2::cache_hint");
  const bool masked = decoder.take("cp_mask");
  decoder.finish();
  if (multicast &&
      (!signals || copy.from_space != Space::kGlobal || copy.reducer.apply != nullptr)) {
    decoder.fail(".multicast::cluster of another copy; accepted: from .global to .shared::cluster");
  }
  if (masked && (signals || copy.reducer.apply != nullptr)) {
    decoder.fail(".cp_mask of another copy; accepted: to .global");
  }
  const size_t count = size_t{3} + signals + multicast + policy + masked;
  decoder.need_operands(count, count);
  copy.to = decoder.address(0);
  copy.from = decoder.address(1);
  copy.size = decoder.source(2, Type::kU32);
  size_t next = 3;
  if (signals) copy.barrier = decoder.address(next++);
  if (multicast) copy.cta_mask = decoder.source(next++, Type::kU16);
  if (policy) decoder.source(next++, Type::kB64);
  if (masked) copy.byte_mask = decoder.source(next++, Type::kU16);
  decoder.set_form(insn, copy);
  insn.run = signals ? run_in : run_out;
}

}  // namespace

void count_copied(Cluster& cluster, uint64_t bytes) { cluster.launch.counters.tma_bytes += bytes; }

void decode_bulk_copy(Decoder& decoder, Insn& insn) {
  BulkCopy copy;
  const bool signals = take_route(decoder, &copy);
  decode_operands(decoder, insn, copy, signals);
}

void decode_bulk_reduce(Decoder& decoder, Insn& insn) {
  BulkCopy copy;
  const bool signals = take_route(decoder, &copy);
  if (signals && copy.from_space != Space::kShared) {
    decoder.fail("a reduction of another space; accepted: of .shared::cta");
  }
  const ReduceOp op = take_reduce_op(decoder);
  const bool no_flush = decoder.take("noftz");
  const Type type = decoder.need_type();
  const bool half = type == Type::kF16 || type == Type::kBF16;
  if ((half && op == ReduceOp::kAdd) != no_flush) {
    decoder.fail(
        ".noftz is missing or out of place; accepted: with .add of .f16 and .bf16, which need it");
  }
  need_reduction(decoder, op, type, signals ? ReduceBy::kBulkShared : ReduceBy::kBulkGlobal);
  // f32 sums keep subnormals, as measured on an H200 (those of red.global.add.f32 flush them).
  copy.reducer = find_reducer(op, type, false);
  copy.sums_floats = op == ReduceOp::kAdd && is_float(type);
  decode_operands(decoder, insn, copy, signals);
}

void decode_bulk_prefetch(Decoder& decoder, Insn& insn) {
  if (!decoder.take("L2") || decoder.take_space() != Space::kGlobal) {
    decoder.fail("a bulk prefetch of another kind; accepted: .L2.global");
  }
  const bool policy = decoder.take("L2::cache_hint");
  decoder.finish();
  decoder.need_operands(policy ? 3 : 2, policy ? 3 : 2);
  decoder.address(0);
  decoder.source(1, Type::kU32);
  if (policy) decoder.source(2, Type::kB64);
  insn.run = do_nothing;
}

void decode_bulk_commit(Decoder& decoder, Insn& insn) {
  decoder.finish();
  decoder.need_operands(0, 0);
  insn.run = commit;
}

void decode_bulk_wait(Decoder& decoder, Insn& insn) {
  const bool read_only = decoder.take("read");
  decoder.finish();
  decoder.need_operands(1, 1);
  const int64_t keep = decoder.constant(0);
  if (keep < 0) decoder.fail_syntax("a negative number of groups; accepted: 0 and more");
  decoder.set_form(insn, GroupWait{static_cast<uint64_t>(keep), read_only});
  insn.run = wait;
}

}  // namespace ptxemu
