// cp.async.bulk.tensor, cp.reduce.async.bulk.tensor and cp.async.bulk.prefetch.tensor ("Data
// Movement and Conversion Instructions: Tensor copy"; PTX ISA 9.7.9.27): tiles, and four rows of a
// matrix (gather4, scatter4). im2col is refused by name.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "emulator/isa/bulk_copy.h"
#include "emulator/isa/reduce_words.h"
#include "emulator/isa/tensor_map_operand.h"
#include "emulator/machine/mbarrier.h"
#include "emulator/machine/tensor_box.h"

namespace ptxemu {
namespace {

constexpr uint32_t kSharedAlign = 128;

struct TensorCopy {
  uint32_t rank = 0;
  bool four_rows = false;  // gather4 or scatter4: coordinates are a column and four rows
  Space shared_space = Space::kShared;
  Address map, shared, barrier;
  Slot coordinates[TensorMap::kMaxRank];
  Slot cta_mask = kNoSlot;   // multicast
  bool pair_signal = false;  // .cta_group::2
  bool reduces = false;
  ReduceOp op = ReduceOp::kAdd;

  uint32_t num_coordinates() const { return four_rows ? 5 : rank; }
};

// A tensor box into shared memory of one CTA or more.
class TmaLoadOp final : public AsyncOp {
 public:
  TmaLoadOp(const Exec& exec, TensorBox box)
      : AsyncOp(EngineKind::kCopyIn, exec), box_(std::move(box)) {
    held_bytes = box_.host_bytes();
  }
  struct Target {
    Cta* cta;
    BarrierPlace barrier;
  };
  std::vector<Target> targets;
  uint32_t offset = 0;  // of the box, in every target
  const TensorBox& box() const { return box_; }

  bool advance(Cluster& cluster, bool split) override {
    if (done_ == box_.rows()) {
      for (const Target& target : targets) {
        mbarrier_async_arrive(cluster, *target.barrier.cta, target.barrier.offset, 0, box_.bytes(),
                              *this);
      }
      return true;
    }
    const uint32_t half = box_.rows() / 2;
    const uint32_t end = split && done_ == 0 && half != 0 ? half : box_.rows();
    for (const Target& target : targets) box_.load(done_, end, target.cta->shared, offset);
    if (cluster.launch.observer != nullptr) tell(cluster, done_, end);
    done_ = end;
    return false;
  }

 private:
  void tell(Cluster& cluster, uint32_t begin, uint32_t end) {
    box_.for_runs(begin, end, [&](uint64_t address, uint64_t bytes) {
      note_read(cluster, global_region(address, bytes));
    });
    for (const Target& target : targets) {
      note_write(cluster, shared_region(target.cta, offset + begin * box_.row_pitch(),
                                        (end - begin) * box_.row_pitch()));
    }
  }
  TensorBox box_;
  uint32_t done_ = 0;  // rows
};

// A box of shared memory to the tensor; part of a bulk group.
class TmaStoreOp final : public AsyncOp {
 public:
  TmaStoreOp(const Exec& exec, TensorBox box, const Reducer& reducer, bool sums_floats,
             SharedLocation from)
      : AsyncOp(EngineKind::kCopyOut, exec),
        box_(std::move(box)),
        reducer_(reducer),
        sums_floats_(sums_floats),
        from_(from),
        buffer_(box_.bytes()) {
    held_bytes = box_.host_bytes() + buffer_.size();
  }
  std::shared_ptr<BulkStatus> status;
  const TensorBox& box() const { return box_; }

  bool advance(Cluster& cluster, bool split) override {
    const uint32_t half = box_.rows() / 2;
    if (read_ < box_.rows()) {
      const uint32_t end = split && read_ == 0 && half != 0 ? half : box_.rows();
      box_.read_shared(read_, end, from_.cta->shared, from_.offset, buffer_.data());
      note_read(cluster, shared_region(from_.cta, from_.offset + read_ * box_.row_pitch(),
                                       (end - read_) * box_.row_pitch()));
      read_ = end;
      status->read = read_ == box_.rows();
      return false;
    }
    const uint32_t end = split && written_ == 0 && half != 0 ? half : box_.rows();
    const bool is_observed = cluster.launch.observer != nullptr;
    bool is_known = true;  // no run of bytes goes from one allocation to another
    std::vector<std::byte> before;
    if (is_observed) {
      box_.for_runs(written_, end, [&](uint64_t address, uint64_t bytes) {
        const std::byte* at = cluster.launch.memory->find(address, bytes);
        if (at != nullptr) before.insert(before.end(), at, at + bytes);
        is_known &= at != nullptr;
      });
    }
    box_.store(written_, end, buffer_.data(), reducer_.apply == nullptr ? nullptr : &reducer_);
    if (is_observed) {
      size_t run = 0;
      box_.for_runs(written_, end, [&](uint64_t address, uint64_t bytes) {
        Region region = global_region(address, bytes);
        if (is_known) region.before = before.data() + std::exchange(run, run + bytes);
        region.reduces = reducer_.apply != nullptr;
        region.sums_floats = sums_floats_;
        note_write(cluster, region);
      });
    }
    written_ = end;
    status->done = written_ == box_.rows();
    return status->done;
  }

 private:
  TensorBox box_;
  Reducer reducer_;
  bool sums_floats_;
  SharedLocation from_;
  std::vector<std::byte> buffer_;
  uint32_t read_ = 0, written_ = 0;  // rows
};

// Where a store's box begins: an H200 ends one that begins before the tensor as an illegal
// instruction (measured in one and two dimensions; that rows of scatter4 are treated alike is an
// assumption). Loads may.
void check_store_start(const TensorCopy& copy, const int32_t* start, int lane) {
  for (uint32_t i = 0; i < copy.num_coordinates(); ++i) {
    if (start[i] >= 0) continue;
    throw Trap{"out-of-bounds",
               fmt::format("a tensor store from coordinate {} in dimension {}: a store's "
                           "coordinates must be 0 or more, as only its end may lie outside",
                           start[i], copy.four_rows ? std::min(i, 1u) : i),
               lane};
  }
}

TensorBox make_box(const Exec& exec, const Insn& insn, const TensorCopy& copy, bool store, int lane,
                   TensorMap* map) {
  *map = read_tensor_map(exec, insn, copy.map, lane);
  if (map->rank != copy.rank) {
    throw Trap{"bad-tensor-map",
               fmt::format("a {}d copy with a tensor map of rank {}", copy.rank, map->rank), lane};
  }
  std::array<int32_t, TensorMap::kMaxRank> start{};
  for (uint32_t i = 0; i < copy.num_coordinates(); ++i) {
    start[i] = exec.lanes<int32_t>(copy.coordinates[i])[lane];
  }
  // Inside the tensor or not; measured on an H200, which ends such a copy as an illegal
  // instruction.
  if (start[0] * static_cast<int64_t>(bytes_of(map->type)) % 16 != 0) {
    throw Trap{"misaligned",
               fmt::format("a tensor copy from element {} of {}: its first coordinate times {} "
                           "bytes must be a multiple of 16",
                           start[0], name_of(map->type), bytes_of(map->type)),
               lane};
  }
  if (store) check_store_start(copy, start.data(), lane);
  if (copy.four_rows) {
    return TensorBox(*map, start[0], std::span(start).subspan<1, 4>(), *exec.launch->memory);
  }
  return TensorBox(*map, start, *exec.launch->memory);
}

SharedLocation shared_place(const Exec& exec, const TensorCopy& copy, uint32_t bytes, int lane) {
  const uint64_t at =
      lane_address(exec, copy.shared.base, copy.shared.wide, copy.shared.offset, lane);
  if (at % kSharedAlign != 0) {
    throw Trap{
        "misaligned",
        fmt::format("shared address 0x{:x} of a tensor copy: a multiple of 128 is accepted", at),
        lane};
  }
  return locate_shared(exec, at, bytes, copy.shared_space);
}

// Which barrier the copy to one CTA signals: at the same place in that CTA, or with .cta_group::2
// in the CTA of its pair that has the parity of the CTA whose barrier was named.
BarrierPlace signal_of(const Exec& exec, const TensorCopy& copy, BarrierPlace named, Cta* target) {
  uint32_t rank = target->rank;
  if (copy.pair_signal) rank = (rank & ~1u) | (named.cta->rank & 1u);
  if (rank >= exec.cluster->ctas.size()) {
    throw Trap{"cluster-rank", ".cta_group::2 in a cluster without pairs of CTAs"};
  }
  return {exec.cluster->ctas[rank].get(), named.offset};
}

void check_barrier(const Exec& exec, const Insn& insn, const BarrierPlace& named, const Cta* target,
                   int lane) {
  if (!exec.launch->options.check || named.cta == target) return;
  exec.launch->report(exec, insn, Severity::kError, "tma-barrier",
                      fmt::format("the copy goes to CTA rank {} and names the mbarrier of rank {}: "
                                  "without .cta_group::2 it must be the destination's",
                                  target->rank, named.cta->rank),
                      fmt::format("smem+0x{:x}", named.offset), lane);
}

void start_load(const Exec& exec, const Insn& insn, const TensorCopy& copy, int lane) {
  TensorMap map;
  auto op = std::make_unique<TmaLoadOp>(exec, make_box(exec, insn, copy, false, lane, &map));
  op->lane = static_cast<uint32_t>(lane);
  const uint32_t bytes = op->box().bytes();
  const SharedLocation to = shared_place(exec, copy, op->box().shared_bytes(), lane);
  const BarrierPlace named = barrier_place(exec, copy.barrier, copy.shared_space, lane);
  op->offset = to.offset;
  if (copy.cta_mask == kNoSlot) {
    if (!copy.pair_signal) check_barrier(exec, insn, named, to.cta, lane);
    op->targets.push_back({to.cta, signal_of(exec, copy, named, to.cta)});
  } else {
    for (Cta* cta : multicast_targets(exec, copy.cta_mask, lane)) {
      op->targets.push_back({cta, signal_of(exec, copy, named, cta)});
    }
  }
  count_copied(*exec.cluster, bytes * op->targets.size());
  std::vector<Region> writes;
  // Rows with gaps between them leave the gaps as they are.
  if (op->box().row_pitch() == op->box().row_bytes()) {
    for (const auto& target : op->targets) {
      writes.push_back(shared_region(target.cta, to.offset, bytes));
    }
  }
  start(exec, insn, std::move(op), writes);
}

// Which tensors an H200 reduces, as measured: those of .tf32 add as .f32 do; no float wider than 16
// bits has an order, and .s64 has nothing but one.
bool tensor_reduction_takes(ReduceOp op, TensorType type) {
  switch (type) {
    case TensorType::kU8:
    case TensorType::kU16: return false;
    case TensorType::kS64: return op == ReduceOp::kMin || op == ReduceOp::kMax;
    case TensorType::kF32:
    case TensorType::kF32Ftz:
    case TensorType::kF64:
    case TensorType::kTF32:
    case TensorType::kTF32Ftz: return op == ReduceOp::kAdd;
    default: return true;  // as far as there is a reducer
  }
}

Reducer reducer_of(const TensorCopy& copy, TensorType type, int lane) {
  if (!copy.reduces) return {};
  constexpr Type kTypes[kTensorTypes] = {
      Type::kNone, Type::kNone, Type::kU32, Type::kS32,  Type::kU64, Type::kS64, Type::kF16,
      Type::kF32,  Type::kF32,  Type::kF64, Type::kBF16, Type::kF32, Type::kF32};
  const bool flush = type == TensorType::kF32Ftz || type == TensorType::kTF32Ftz;
  const Reducer reducer = find_reducer(copy.op, kTypes[static_cast<int>(type)], flush);
  if (!tensor_reduction_takes(copy.op, type) || reducer.apply == nullptr) {
    throw Trap{"bad-tensor-map",
               fmt::format("this reduction does not take a tensor of {}", name_of(type)), lane};
  }
  return reducer;
}

void start_store(const Exec& exec, const Insn& insn, const TensorCopy& copy, int lane) {
  TensorMap map;
  TensorBox box = make_box(exec, insn, copy, true, lane, &map);
  const SharedLocation from = shared_place(exec, copy, box.shared_bytes(), lane);
  auto op = std::make_unique<TmaStoreOp>(
      exec, std::move(box), reducer_of(copy, map.type, lane),
      copy.reduces && copy.op == ReduceOp::kAdd && map.type >= TensorType::kF16, from);
  op->lane = static_cast<uint32_t>(lane);
  op->status = join_bulk_group(exec, *op, lane);
  count_copied(*exec.cluster, op->box().bytes());
  start(exec, insn, std::move(op), {});
}

Flow run_load(Exec& exec, const Insn& insn) {
  const TensorCopy& copy = insn.form<TensorCopy>();
  exec.for_lanes([&](int lane) { start_load(exec, insn, copy, lane); });
  return Flow::kNext;
}

Flow run_store(Exec& exec, const Insn& insn) {
  const TensorCopy& copy = insn.form<TensorCopy>();
  exec.for_lanes([&](int lane) { start_store(exec, insn, copy, lane); });
  return Flow::kNext;
}

Flow do_nothing(Exec&, const Insn&) { return Flow::kNext; }

// --- Decoding -----------------------------------------------------------------------------------

uint32_t take_rank(Decoder& decoder) {
  const uint32_t rank =
      decoder.take_one<uint32_t>({{"1d", 1}, {"2d", 2}, {"3d", 3}, {"4d", 4}, {"5d", 5}}, 0);
  if (rank == 0) decoder.fail("a tensor copy without a rank; accepted: .1d to .5d");
  return rank;
}

void take_mode(Decoder& decoder, bool is_load, TensorCopy* copy) {
  for (std::string_view word : {"im2col", "im2col::w", "im2col::w::128", "im2col_no_offs"}) {
    if (decoder.has(word)) {
      decoder.fail("the mode ." + std::string(word) + " is not modelled; accepted: .tile, " +
                   (is_load ? ".tile::gather4" : ".tile::scatter4"));
    }
  }
  copy->four_rows = decoder.take(is_load ? "tile::gather4" : "tile::scatter4");
  if (copy->four_rows && copy->rank != 2) decoder.fail("four rows of another rank; accepted: .2d");
  if (!copy->four_rows) decoder.take("tile");
}

// [map, {coordinates}]
void take_tensor(Decoder& decoder, size_t i, TensorCopy* copy) {
  const Operand& tensor = decoder.operand(i);
  if (tensor.kind != Operand::Kind::kTensor || tensor.list.size() != 2) {
    decoder.fail_syntax("operand " + std::to_string(i) +
                        " is no place in a tensor; accepted: [tensorMap, {coordinates}]");
  }
  copy->map = tensor_map_address(decoder, tensor.list[0]);
  const auto coordinates = decoder.elements(tensor.list[1]);
  if (coordinates.size() != copy->num_coordinates()) {
    decoder.fail_syntax(std::to_string(coordinates.size()) + " coordinates of a " +
                        (copy->four_rows ? "copy of four rows: a column and four are accepted"
                                         : std::to_string(copy->rank) + "d copy"));
  }
  for (uint32_t i = 0; i < copy->num_coordinates(); ++i) {
    copy->coordinates[i] = decoder.source(*coordinates[i], Type::kS32);
  }
}

void decode_load(Decoder& decoder, Insn& insn, TensorCopy copy) {
  if (!decoder.take("mbarrier::complete_tx::bytes")) {
    decoder.fail("a tensor load without its barrier; accepted: .mbarrier::complete_tx::bytes");
  }
  const int group = decoder.take_one<int>({{"cta_group::1", 1}, {"cta_group::2", 2}}, 0);
  copy.pair_signal = group == 2;
  const bool multicast = decoder.take("multicast::cluster");
  const bool policy = decoder.take("L2::cache_hint");
  decoder.finish();
  const size_t count = size_t{3} + multicast + policy;
  decoder.need_operands(count, count);
  copy.shared = decoder.address(0);
  take_tensor(decoder, 1, &copy);
  copy.barrier = decoder.address(2);
  if (multicast) copy.cta_mask = decoder.source(3, Type::kU16);
  if (policy) decoder.source(count - 1, Type::kB64);
  decoder.set_form(insn, copy);
  insn.run = run_load;
}

void decode_store(Decoder& decoder, Insn& insn, TensorCopy copy) {
  if (!decoder.take("bulk_group"))
    decoder.fail("a tensor store without its group; accepted: .bulk_group");
  const bool policy = decoder.take("L2::cache_hint");
  decoder.finish();
  decoder.need_operands(policy ? 3 : 2, policy ? 3 : 2);
  take_tensor(decoder, 0, &copy);
  copy.shared = decoder.address(1);
  if (policy) decoder.source(2, Type::kB64);
  decoder.set_form(insn, copy);
  insn.run = run_store;
}

// The spaces in the order destination, source; true for a load.
bool take_route(Decoder& decoder, TensorCopy* copy) {
  const Space to = decoder.take_space(), from = decoder.take_space();
  const bool load = from == Space::kGlobal && (to == Space::kShared || to == Space::kSharedCluster);
  if (!load && !(to == Space::kGlobal && from == Space::kShared)) {
    decoder.fail(
        "a tensor copy between other spaces; accepted: .shared::cta.global, "
        ".shared::cluster.global, .global.shared::cta");
  }
  copy->shared_space = load ? to : from;
  return load;
}

void decode_copy(Decoder& decoder, Insn& insn) {
  TensorCopy copy;
  copy.rank = take_rank(decoder);
  const bool is_load = take_route(decoder, &copy);
  take_mode(decoder, is_load, &copy);
  if (is_load) {
    decode_load(decoder, insn, copy);
  } else {
    decode_store(decoder, insn, copy);
  }
}

void decode_reduce(Decoder& decoder, Insn& insn) {
  TensorCopy copy;
  copy.rank = take_rank(decoder);
  if (take_route(decoder, &copy))
    decoder.fail("a tensor reduction between other spaces; accepted: .global.shared::cta");
  take_mode(decoder, false, &copy);
  copy.reduces = true;
  copy.op = take_reduce_op(decoder);
  if (copy.op == ReduceOp::kExchange)
    decoder.fail(
        "a tensor reduction has no .exch; accepted: .add, .min, .max, .inc, .dec, .and, .or, .xor");
  decode_store(decoder, insn, copy);
}

void decode_prefetch(Decoder& decoder, Insn& insn) {
  TensorCopy copy;
  copy.rank = take_rank(decoder);
  take_mode(decoder, true, &copy);
  if (!decoder.take("L2") || decoder.take_space() != Space::kGlobal) {
    decoder.fail("a tensor prefetch of another kind; accepted: .L2.global");
  }
  const bool policy = decoder.take("L2::cache_hint");
  decoder.finish();
  decoder.need_operands(policy ? 2 : 1, policy ? 2 : 1);
  take_tensor(decoder, 0, &copy);
  if (policy) decoder.source(1, Type::kB64);
  insn.run = do_nothing;
}

constexpr InstructionRow kRows[] = {
    {"cp.async.bulk.tensor", decode_copy,
     "Data Movement and Conversion Instructions: cp.async.bulk.tensor"},
    {"cp.reduce.async.bulk.tensor", decode_reduce,
     "Data Movement and Conversion Instructions: cp.reduce.async.bulk.tensor"},
    {"cp.async.bulk.prefetch.tensor", decode_prefetch,
     "Data Movement and Conversion Instructions: cp.async.bulk.prefetch.tensor"},
    {"tensormap.replace", decode_tensormap_replace,
     "Data Movement and Conversion Instructions: tensormap.replace"},
    {"tensormap.cp_fenceproxy", decode_tensormap_copy,
     "Parallel Synchronization and Communication Instructions: tensormap.cp_fenceproxy"},
};

}  // namespace

std::span<const InstructionRow> tma_rows() { return kRows; }

}  // namespace ptxemu
