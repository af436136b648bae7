// tcgen05.cp and tcgen05.shift ("Tensor Memory Data Movement Instructions", PTX ISA 9.7.16.9).
#include <fmt/format.h>

#include <cstring>

#include "emulator/machine/tensor_core_op.h"

namespace ptxemu {

namespace {

struct CopySize {
  uint32_t rows, columns;
};

CopySize size_of(CopyShape shape) {
  switch (shape) {
    case CopyShape::k128x256b: return {128, 8};
    case CopyShape::k4x256b: return {4, 8};
    case CopyShape::k128x128b: return {128, 4};
    case CopyShape::k64x128b: return {64, 4};
    case CopyShape::k32x128b: return {32, 4};
  }
  return {0, 0};
}

// The lanes that get row `row`, relative to the address.
struct CopyLanes {
  uint32_t lane[4];
  uint32_t count;
};

CopyLanes lanes_of(CopyShape shape, bool pairs_02_13, uint32_t row) {
  switch (shape) {
    case CopyShape::k4x256b: return {{32 * row}, 1};  // one row a quarter
    case CopyShape::k64x128b: {
      if (pairs_02_13) return {{row, row + 64}, 2};
      const uint32_t lane = 64 * (row / 32) + row % 32;
      return {{lane, lane + 32}, 2};
    }
    case CopyShape::k32x128b: return {{row, row + 32, row + 64, row + 96}, 4};
    default: return {{row}, 1};
  }
}

}  // namespace

Tcgen05CpOp::Tcgen05CpOp(const Exec& exec, const CtaGroup& group, CopyShape shape, bool pairs_02_13,
                         const MatrixDescriptor& source, TensorAddress to)
    : AsyncOp(EngineKind::kTensorCore, exec),
      group_(group),
      shape_(shape),
      pairs_02_13_(pairs_02_13),
      source_(source),
      to_(to) {
  queue = group.queue();
}

void Tcgen05CpOp::check() const {
  const bool few = shape_ == CopyShape::k4x256b;
  if (few ? to_.lane >= 32 : to_.lane != 0) {
    throw Trap{"tmem-lane",
               fmt::format("tcgen05.cp to lane {}; accepted: {}", to_.lane, few ? "0 to 31" : "0")};
  }
  for (int i = 0; i < group_.size; ++i) {
    group_.cta[i]->state<TensorMemory>().check(to_.column, size_of(shape_).columns, "tcgen05.cp");
  }
}

void Tcgen05CpOp::copy(Cluster& cluster, Cta& cta) const {
  auto& memory = cta.state<TensorMemory>();
  Observer* observer = cluster.launch.observer.get();
  const CopySize size = size_of(shape_);
  for (uint32_t row = 0; row < size.rows; ++row) {
    const CopyLanes lanes = lanes_of(shape_, pairs_02_13_, row);
    for (uint32_t chunk = 0; chunk * 4 < size.columns; ++chunk) {
      const uint32_t offset = chunk_offset(source_, Major::kK, 16, row, chunk * 16);
      if (offset + 16 > cta.shared_bytes) {
        throw Trap{"out-of-bounds",
                   fmt::format("tcgen05.cp reads offset {:#x} of the shared memory of CTA rank {}, "
                               "which has {:#x} bytes",
                               offset, cta.rank, cta.shared_bytes)};
      }
      uint32_t words[4];
      std::memcpy(words, cta.shared + offset, sizeof(words));
      for (uint32_t i = 0; i < lanes.count * 4; ++i) {
        memory.column(to_.column + chunk * 4 + i % 4)[to_.lane + lanes.lane[i / 4]] = words[i % 4];
      }
      note_read(cluster,
                {.space = Region::Space::kShared, .cta = &cta, .begin = offset, .bytes = 16});
    }
    if (observer == nullptr) continue;
    for (uint32_t i = 0; i < lanes.count; ++i) {
      Region region{.space = Region::Space::kTensor, .cta = &cta};
      region.lane = to_.lane + lanes.lane[i];
      region.lanes = 1;
      region.column = to_.column;
      region.columns = size.columns;
      note_write(cluster, region);
    }
  }
}

bool Tcgen05CpOp::advance(Cluster& cluster, bool) {
  for (int i = 0; i < group_.size; ++i) copy(cluster, *group_.cta[i]);
  return true;
}

Tcgen05ShiftOp::Tcgen05ShiftOp(const Exec& exec, const CtaGroup& group, TensorAddress at)
    : AsyncOp(EngineKind::kTensorCore, exec), group_(group), at_(at) {
  queue = group.queue();
}

void Tcgen05ShiftOp::check() const {
  if (at_.lane % 32 != 0) {
    throw Trap{"tmem-lane",
               fmt::format("tcgen05.shift at lane {}; accepted: multiples of 32", at_.lane)};
  }
  for (int i = 0; i < group_.size; ++i) {
    group_.cta[i]->state<TensorMemory>().check(at_.column, 8, "tcgen05.shift");
  }
}

bool Tcgen05ShiftOp::advance(Cluster& cluster, bool) {
  Observer* observer = cluster.launch.observer.get();
  for (int i = 0; i < group_.size; ++i) {
    auto& memory = group_.cta[i]->state<TensorMemory>();
    for (uint32_t column = 0; column < 8; ++column) {
      uint32_t* cells = memory.column(at_.column + column) + at_.lane;
      // Lane i takes what lane i + 1 had: a .4x256b copy then gives the last one its new row.
      std::memmove(cells, cells + 1, 31 * sizeof(*cells));
    }
    if (observer == nullptr) continue;
    Region region{.space = Region::Space::kTensor, .cta = group_.cta[i]};
    region.lane = at_.lane;
    region.lanes = 32;
    region.column = at_.column;
    region.columns = 8;
    note_read(cluster, region);
    region.lanes = 31;
    note_write(cluster, region);
  }
  return true;
}

}  // namespace ptxemu
