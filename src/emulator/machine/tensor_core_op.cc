#include "emulator/machine/tensor_core_op.h"

#include <fmt/format.h>

#include <cstring>

#include "emulator/machine/mbarrier.h"

namespace ptxemu {

namespace {

void check_shared(const Cta& cta, uint32_t offset, uint32_t bytes, const char* operand) {
  if (offset + bytes <= cta.shared_bytes) return;
  throw Trap{"out-of-bounds",
             fmt::format("{} reaches offset {:#x} of the shared memory of CTA rank {}, which has "
                         "{:#x} bytes",
                         operand, offset + bytes - 1, cta.rank, cta.shared_bytes),
             -1, fmt::format("smem+{:#x}", offset)};
}

// The two sides of a product. Large, so one a host thread.
struct Sides {
  MmaSide a, b;
};
Sides& sides() {
  static thread_local const std::unique_ptr<Sides> buffers = std::make_unique<Sides>();
  return *buffers;
}

}  // namespace

CtaGroup CtaGroup::of(const Exec& exec, int cta_group) {
  CtaGroup group;
  group.size = cta_group;
  group.cta[0] = exec.cta;
  if (cta_group == 1) return group;
  const auto& ctas = exec.cluster->ctas;
  const uint32_t even = exec.cta->rank & ~1u;
  if (even + 1 >= ctas.size()) {
    throw Trap{"cta-pair", fmt::format(".cta_group::2 in a cluster of {} CTA(s), where CTA rank {} "
                                       "has no peer",
                                       ctas.size(), exec.cta->rank)};
  }
  group.cta[0] = ctas[even].get();
  group.cta[1] = ctas[even + 1].get();
  return group;
}

void gather_matrix(const MatrixSource& source, int to, int rows, MmaSide& side, const AsyncOp& op,
                   const char* operand) {
  const int t = side.elements_per_chunk();
  Cta& cta = *source.cta;
  Observer* observer = cta.cluster->launch.observer.get();
  const bool k_major = source.major == Major::kK;
  const int mn_step = k_major ? 1 : t, k_step = k_major ? t : 1;
  for (int mn = 0; mn < rows; mn += mn_step) {
    for (int k = 0; k < side.products(); k += k_step) {
      const uint32_t offset =
          chunk_offset(source.matrix, source.major, t, static_cast<uint32_t>(source.first + mn),
                       static_cast<uint32_t>(k));
      check_shared(cta, offset, 16, operand);
      side.set_chunk(source.major, to + mn, k, cta.shared + offset);
      if (observer != nullptr) {
        Region region{.space = Region::Space::kShared, .cta = &cta, .begin = offset, .bytes = 16};
        if (source.rows_are_lanes) {
          region.lane = static_cast<uint32_t>(mn);
          region.lanes = static_cast<uint32_t>(mn_step);
        }
        op.note_read(*cta.cluster, region);
      }
    }
  }
}

// --- MMA -----------------------------------------------------------------------------------------

MmaOp::MmaOp(const Exec& exec, const CtaGroup& group, const MmaOperands& operands)
    : AsyncOp(EngineKind::kTensorCore, exec), group_(group), operands_(operands) {
  queue = group.queue();
  accumulator = uint64_t{1} << 63 | uint64_t{operands.d.column} << 48 |
                uint64_t{operands.d.lane} << 32 | static_cast<uint64_t>(operands.kind) << 24 |
                static_cast<uint64_t>(operands.shape.m) << 12 |
                static_cast<uint64_t>(operands.shape.n);
}

// "Data Path Layout Organization" (PTX ISA 9.7.16.10.5): layouts A and D use every lane, F every
// other run of 16, B all lanes in two halves of columns (see multiply_run).
uint32_t MmaOp::lane_of(int row) const {
  const uint32_t r = static_cast<uint32_t>(row);
  if (rows() == 64 && group_.size == 1) return operands_.d.lane + r % 16 + 32 * (r / 16);
  return r;
}

void MmaOp::check() const {
  const InstructionDescriptor& shape = operands_.shape;
  const bool half = shape.m == 64;
  const uint32_t lane = operands_.d.lane;
  if (lane != 0 && !(half && lane == 16)) {
    throw Trap{"tmem-lane", fmt::format("D of tcgen05.mma starts at lane {}; accepted: {}", lane,
                                        half ? "0, 16" : "0")};
  }
  if (operands_.a_in_tensor_memory && operands_.a_address.lane != lane) {
    throw Trap{"tmem-lane",
               fmt::format("A of tcgen05.mma starts at lane {} and D at lane {}: they must agree",
                           operands_.a_address.lane, lane)};
  }
  const uint32_t columns = static_cast<uint32_t>(two_by_two() ? shape.n / 2 : shape.n);
  for (int i = 0; i < group_.size; ++i) {
    const auto& memory = group_.cta[i]->state<TensorMemory>();
    memory.check(operands_.d.column, columns, "D of tcgen05.mma");
    if (operands_.a_in_tensor_memory) {
      memory.check(operands_.a_address.column, 8, "A of tcgen05.mma");
    }
  }
}

void MmaOp::load_a(int cta, MmaSide& side) const {
  const InstructionDescriptor& shape = operands_.shape;
  Cta& owner = *group_.cta[cta];
  if (!operands_.a_in_tensor_memory) {
    side.reset(shape.a, shape.k, rows(), true);
    const Major major = shape.transpose_a ? Major::kMN : Major::kK;
    gather_matrix({&owner, operands_.a, major, 0, rows() == 128}, 0, rows(), side, *this,
                  "A of tcgen05.mma");
    side.finish(shape.negate_a);
    return;
  }
  // In the 2x2 layout both halves of the lanes hold all 64 rows, a copy for each half of D.
  const int count = two_by_two() ? 128 : rows();
  side.reset(shape.a, shape.k, count, true);
  auto& memory = owner.state<TensorMemory>();
  const int bytes = container_bytes(shape.a), per_word = 4 / bytes;
  for (int k = 0; k < shape.k; ++k) {
    const uint32_t* column =
        memory.column(operands_.a_address.column + static_cast<uint32_t>(k / per_word));
    const int shift = 8 * bytes * (k % per_word);
    for (int row = 0; row < count; row += 16) side.set_run(row, k, column + lane_of(row), shift);
  }
  side.finish(shape.negate_a);
  if (owner.cluster->launch.observer != nullptr) {
    Region region{.space = Region::Space::kTensor, .cta = &owner};
    region.column = operands_.a_address.column;
    region.columns = 8;
    region.lanes = rows() == 64 && group_.size == 1 ? 16 : 128;
    for (region.lane = lane_of(0); region.lane < 128; region.lane += 32) {
      note_read(*owner.cluster, region);
      if (region.lanes == 128) break;
    }
  }
}

// Columns [begin, end) of B, to rows 0 and on of the side: each CTA holds N / group columns.
void MmaOp::load_b(int begin, int end, MmaSide& side) const {
  const InstructionDescriptor& shape = operands_.shape;
  const int share = shape.n / group_.size;
  const Major major = shape.transpose_b ? Major::kMN : Major::kK;
  side.reset(shape.b, shape.k, shape.n, false);
  for (int i = 0; i < group_.size; ++i) {
    if (begin >= (i + 1) * share || end <= i * share) continue;
    gather_matrix({group_.cta[i], operands_.b, major}, i * share, share, side, *this,
                  "B of tcgen05.mma");
  }
  side.finish(shape.negate_b);
}

// Columns [begin, end) of D in one CTA, which lie at lanes 64 * half and on in the 2x2 layout.
void MmaOp::multiply_run(int cta, const MmaSide& a, const MmaSide& b, int begin, int end, int half,
                         const MmaRules& rules) const {
  const InstructionDescriptor& shape = operands_.shape;
  auto& memory = group_.cta[cta]->state<TensorMemory>();
  const int first = two_by_two() ? begin - half * shape.n / 2 : begin;
  uint32_t* cells = memory.column(operands_.d.column + static_cast<uint32_t>(first));
  for (int panel = 0; panel * kPanelWidth < rows(); ++panel) {
    MmaTarget target;
    target.stride = TensorMemory::kLanes;
    target.scale = operands_.scale;
    target.lanes = 0;
    for (int run = 0; run < 2; ++run) {
      const uint32_t lane =
          lane_of(panel * kPanelWidth + run * 16) + (two_by_two() ? 64u * half : 0u);
      target.d[run] = cells + lane;
      target.c[run] = operands_.accumulates ? cells + lane : nullptr;
      const uint32_t disabled =
          operands_.disabled[static_cast<size_t>(cta) * 4 + lane / 32] >> (lane % 32) & 0xFFFF;
      target.lanes |= (~disabled & 0xFFFF) << (16 * run);
    }
    const bool own_copy = two_by_two() && operands_.a_in_tensor_memory;
    multiply_panel(a, panel + (own_copy ? 2 * half : 0), b, begin, end, target, rules);
  }
}

void MmaOp::tell_writes(Cluster& cluster, int begin, int end) const {
  Observer* observer = cluster.launch.observer.get();
  if (observer == nullptr) return;
  const bool spread = rows() == 64 && group_.size == 1;
  const uint32_t n = static_cast<uint32_t>(operands_.shape.n);
  for (int i = 0; i < group_.size; ++i) {
    Region region{.space = Region::Space::kTensor, .cta = group_.cta[i]};
    region.column = operands_.d.column + static_cast<uint32_t>(begin);
    region.columns = static_cast<uint32_t>(end - begin);
    region.lanes = spread ? 16 : two_by_two() ? 64 : 128;
    if (two_by_two()) {
      region.lane = static_cast<uint32_t>(begin) >= n / 2 ? 64 : 0;
      region.column -= region.lane == 64 ? n / 2 : 0;
    }
    for (uint32_t lane = spread ? lane_of(0) : region.lane; lane < 128; lane += 32) {
      region.lane = lane;
      region.reduces = operands_.accumulates;
      if (operands_.accumulates) note_read(cluster, region);
      note_write(cluster, region);
      if (!spread) break;
    }
  }
}

void MmaOp::multiply(Cluster& cluster, int begin, int end) const {
  const InstructionDescriptor& shape = operands_.shape;
  MmaRules rules;
  rules.math = cluster.launch.options.math;
  rules.accumulator = shape.d;
  rules.saturate = shape.saturate;
  Sides& work = sides();
  load_b(begin, end, work.b);
  for (int i = 0; i < group_.size; ++i) {
    load_a(i, work.a);
    if (!two_by_two()) {
      multiply_run(i, work.a, work.b, begin, end, 0, rules);
      continue;
    }
    const int middle = shape.n / 2;
    if (begin < middle) multiply_run(i, work.a, work.b, begin, std::min(end, middle), 0, rules);
    if (end > middle) multiply_run(i, work.a, work.b, std::max(begin, middle), end, 1, rules);
  }
  if (two_by_two() && begin < shape.n / 2 && end > shape.n / 2) {
    tell_writes(cluster, begin, shape.n / 2);
    tell_writes(cluster, shape.n / 2, end);
  } else {
    tell_writes(cluster, begin, end);
  }
}

bool MmaOp::advance(Cluster& cluster, bool split) {
  const int n = operands_.shape.n;
  if (next_ == 0) ++cluster.launch.counters.mma;
  const int end = split && next_ == 0 && n > 8 ? n / 16 * 8 : n;
  multiply(cluster, next_, end);
  next_ = end;
  return end == n;
}

// --- Commit --------------------------------------------------------------------------------------

TensorCommitOp::TensorCommitOp(const Exec& exec, const CtaGroup& group, std::vector<Cta*> targets,
                               uint32_t offset)
    : AsyncOp(EngineKind::kTensorCore, exec), targets_(std::move(targets)), offset_(offset) {
  queue = group.queue();
  only_signals = true;
}

bool TensorCommitOp::advance(Cluster& cluster, bool) {
  for (Cta* target : targets_) mbarrier_async_arrive(cluster, *target, offset_, 1, 0, *this);
  return true;
}

}  // namespace ptxemu
