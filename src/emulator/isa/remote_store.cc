// st.async and red.async, which write the shared memory of any CTA of the cluster and signal a
// barrier there, and st.bulk (PTX ISA 9.7.9.12, 9.7.13.7, 9.7.9.13).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "emulator/isa/addressing.h"
#include "emulator/isa/async_ops.h"
#include "emulator/isa/memory_ops.h"
#include "emulator/isa/reduce_words.h"
#include "emulator/machine/mbarrier.h"

namespace ptxemu {
namespace {

constexpr uint32_t kMostElementBytes = 8, kMostElements = 4;

struct RemoteStore {
  MemoryOperand operand;
  Space barrier_space = Space::kGeneric;
  Address barrier;
  bool signals = false;
  Reducer reducer;  // apply is null for a store
  uint32_t element_bytes = 0, count = 1;
  Slot values[kMostElements];
};

class RemoteStoreOp final : public AsyncOp {
 public:
  RemoteStoreOp(const Exec& exec, const RemoteStore& store)
      : AsyncOp(EngineKind::kRemoteStore, exec), store_(store) {}

  struct Lane {
    std::byte* host;
    Region region;
    std::array<std::byte, kMostElementBytes * kMostElements> value;
    BarrierPlace barrier;
  };
  std::vector<Lane> lanes;

  bool advance(Cluster& cluster, bool split) override {
    const size_t end = split ? next_ + 1 : lanes.size();
    for (; next_ < end; ++next_) write(cluster, lanes[next_]);
    return next_ == lanes.size();
  }

 private:
  void write(Cluster& cluster, const Lane& lane) {
    const uint32_t bytes = store_.operand.bytes;
    if (store_.reducer.apply != nullptr) {
      store_.reducer.apply(lane.host, lane.value.data(), nullptr, 1);
    } else {
      std::memcpy(lane.host, lane.value.data(), bytes);
    }
    note_write(cluster, lane.region);
    if (lane.barrier.cta != nullptr) {
      mbarrier_async_arrive(cluster, *lane.barrier.cta, lane.barrier.offset, 0, bytes, *this);
    }
  }

  const RemoteStore& store_;
  size_t next_ = 0;
};

Flow run_store(Exec& exec, const Insn& insn) {
  const RemoteStore& store = insn.form<RemoteStore>();
  const MemoryOperand& operand = store.operand;
  if (store.signals && exec.cluster->ctas.size() == 1 && exec.launch->options.check) {
    exec.launch->report(exec, insn, Severity::kError, "remote-store-alone",
                        "a store that signals an mbarrier, in a cluster of one CTA: it is for "
                        "clusters of two or more");
  }
  LaneHosts hosts;
  resolve_lanes(exec, operand, &hosts);
  auto op = std::make_unique<RemoteStoreOp>(exec, store);
  std::vector<Region> writes;
  exec.for_lanes([&](int lane) {
    RemoteStoreOp::Lane entry{hosts.at[lane], {}, {}, {}};
    const uint64_t at = lane_address(exec, operand.address.base, operand.address.wide,
                                     operand.address.offset, lane);
    if (store.signals) {
      const SharedLocation place = locate_shared(exec, at, operand.bytes, Space::kSharedCluster);
      entry.region = shared_region(place.cta, place.offset, operand.bytes);
      entry.barrier = barrier_place(exec, store.barrier, store.barrier_space, lane);
      if (entry.barrier.cta != place.cta) {
        throw Trap{"remote-barrier",
                   "destination and mbarrier lie in different CTAs: they must be of one", lane};
      }
    } else {
      entry.region = global_region(at, operand.bytes);
    }
    entry.region.reduces = store.reducer.apply != nullptr;
    const uint32_t register_bytes = std::max(store.element_bytes, 2u);
    for (uint32_t i = 0; i < store.count; ++i) {
      std::memcpy(entry.value.data() + i * store.element_bytes,
                  exec.slot_bytes(store.values[i], 32 * register_bytes) + lane * register_bytes,
                  store.element_bytes);
    }
    op->lanes.push_back(entry);
    writes.push_back(entry.region);
  });
  op->held_bytes = op->lanes.size() * sizeof(RemoteStoreOp::Lane);
  // A reduction keeps what is there until it happens.
  const bool keeps = store.reducer.apply != nullptr;
  start(exec, insn, std::move(op), keeps ? std::span<const Region>{} : writes);
  return Flow::kNext;
}

// [a], b{, [mbar]} and the qualifiers that both have.
void decode_remote(Decoder& decoder, Insn& insn, RemoteStore store, Type type) {
  store.operand.writes = true;
  if (store.signals && store.operand.space != Space::kGeneric &&
      store.operand.space != Space::kSharedCluster) {
    decoder.fail("another destination with a barrier; accepted: .shared::cluster");
  }
  if (!store.signals && store.operand.space != Space::kGeneric &&
      store.operand.space != Space::kGlobal) {
    decoder.fail("another destination without a barrier; accepted: .global");
  }
  decoder.finish();
  decoder.need_operands(store.signals ? 3 : 2, store.signals ? 3 : 2);
  store.element_bytes = static_cast<uint32_t>(bytes_of(type));
  if (type == Type::kPred || store.element_bytes > kMostElementBytes)
    decoder.fail_type(type, "types of 1 to 8 bytes");
  store.operand.bytes = store.element_bytes * store.count;
  store.operand.address = decoder.address(0);
  const auto values = decoder.elements(decoder.operand(1));
  if (values.size() != store.count)
    decoder.fail_syntax(
        fmt::format("a vector of another size; accepted: {} registers", store.count));
  for (uint32_t i = 0; i < store.count; ++i) store.values[i] = decoder.source(*values[i], type);
  if (store.signals) {
    store.barrier_space = store.operand.space;
    store.barrier = decoder.address(2);
  }
  decoder.set_form(insn, store);
  insn.run = run_store;
}

struct ClearForm {
  MemoryOperand place;
  bool wide_size;  // the number of bytes has 64 bits
};

Flow clear(Exec& exec, const Insn& insn) {
  const ClearForm& form = insn.form<ClearForm>();
  const MemoryOperand& operand = form.place;
  exec.for_lanes([&](int lane) {
    const uint64_t at = lane_address(exec, operand.address.base, operand.address.wide,
                                     operand.address.offset, lane);
    const uint64_t bytes = lane_address(exec, insn.a, form.wide_size, 0, lane);
    if (at % 8 != 0 || bytes % 8 != 0) {
      throw Trap{"misaligned", "st.bulk takes an address and a size that are multiples of 8", lane};
    }
    if (bytes > kOffsetMask) {
      throw Trap{"out-of-bounds",
                 fmt::format("st.bulk of {} bytes: at most {} are of one CTA's shared memory",
                             bytes, kOffsetMask),
                 lane};
    }
    if (operand.space == Space::kGeneric && space_of(at) != Space::kSharedCluster) {
      throw Trap{"out-of-bounds", "st.bulk at a generic address outside shared memory", lane};
    }
    const SharedLocation place =
        locate_shared(exec, at, static_cast<uint32_t>(bytes), operand.space);
    std::memset(place.host(), 0, bytes);
    if (exec.observer == nullptr) return;
    // Told as one access of this lane.
    uint64_t address[32] = {};
    Cta* ctas[32] = {};
    address[lane] = place.offset;
    ctas[lane] = place.cta;
    Exec one = exec;
    one.mask = 1u << lane;
    exec.observer->access(one, insn,
                          {.space = MemoryAccess::Space::kShared,
                           .reads = false,
                           .writes = true,
                           .atomic = false,
                           .bytes = static_cast<uint32_t>(bytes),
                           .address = address,
                           .cta = ctas});
  });
  exec.cluster->note_progress();
  return Flow::kNext;
}

}  // namespace

void decode_store_async(Decoder& decoder, Insn& insn) {
  RemoteStore store;
  store.signals = decoder.take("mbarrier::complete_tx::bytes");
  store.operand.space = decoder.take_space();
  if (store.signals) {
    decoder.take("weak");
    decoder.take("cluster");
  } else {
    decoder.take("mmio");
    if (!decoder.take("release"))
      decoder.fail("st.async without a barrier and .release; accepted: .release");
    if (!decoder.take("gpu") && !decoder.take("sys"))
      decoder.fail("another scope; accepted: .gpu, .sys");
  }
  store.count = take_vector(decoder);
  const Type type = decoder.need_type();
  if (store.count > kMostElements || (store.count > 1 && !store.signals)) {
    decoder.fail("a vector that st.async does not have; accepted: .v2, .v4, with a barrier");
  }
  // 4 or 8 bytes with a barrier, 1 to 8 without one, and 16 for a vector at most.
  const auto bytes = static_cast<uint32_t>(bytes_of(type));
  const bool packed = type == Type::kF16x2 || type == Type::kBF16x2 || type == Type::kF32x2;
  const bool half = type == Type::kF16 || type == Type::kBF16;
  const bool large = bytes <= kMostElementBytes && bytes * store.count > 16;
  if (packed || half || large || bytes < (store.signals ? 4 : 1)) {
    decoder.fail(
        "st.async does not store this type; accepted: .b32, .b64, .u32, .u64, .s32, .s64, .f32, "
        ".f64, and without a barrier those of 8 and 16 bits");
  }
  decode_remote(decoder, insn, store, type);
}

void decode_reduce_async(Decoder& decoder, Insn& insn) {
  RemoteStore store;
  store.signals = decoder.take("mbarrier::complete_tx::bytes");
  store.operand.space = decoder.take_space();
  if (store.signals) {
    if (!decoder.take("relaxed") || !decoder.take("cluster")) {
      decoder.fail("another red.async with a barrier; accepted: .relaxed.cluster");
    }
  } else {
    decoder.take("mmio");
    if (!decoder.take("release"))
      decoder.fail("red.async without a barrier and .release; accepted: .release");
    decoder.take_one<int>({{"gpu", 1}, {"cluster", 2}, {"sys", 3}}, 0);
  }
  const ReduceOp op = take_reduce_op(decoder);
  const Type type = decoder.need_type();
  need_reduction(decoder, op, type, ReduceBy::kRemote);
  store.reducer = find_reducer(op, type, false, ReduceIn::kShared);
  decode_remote(decoder, insn, store, type);
}

void decode_store_bulk(Decoder& decoder, Insn& insn) {
  MemoryOperand operand;
  decoder.take("weak");
  operand.space = decoder.take_space();
  if (operand.space != Space::kGeneric && operand.space != Space::kShared) {
    decoder.fail("st.bulk in another space; accepted: .shared, .shared::cta");
  }
  decoder.finish();
  decoder.need_operands(3, 3);
  operand.address = decoder.address(0);
  int bits = 0;
  insn.a = decoder.source_any(decoder.operand(1), Type::kU64, &bits);
  if (bits < 32) decoder.fail_syntax("a size of other bits; accepted: 32, 64");
  if (decoder.constant(2) != 0) decoder.fail_syntax("another value; accepted: 0");
  decoder.set_form(insn, ClearForm{operand, bits == 64});
  insn.run = clear;
}

}  // namespace ptxemu
