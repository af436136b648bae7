#include "emulator/machine/tensor_transfer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace ptxemu {

namespace {

// The columns that a transfer spans, both halves of .16x32bx2 taken by themselves.
uint32_t column_span(const Transfer& transfer) {
  uint32_t columns = transfer.registers;
  if (rows_of(transfer.shape) == 16 && transfer.shape != TransferShape::k16x32bx2) columns *= 2;
  return transfer.halfwords ? columns * 2 : columns;
}

// The first of the one or two columns of a register.
TensorCell cell_of(const Transfer& transfer, uint32_t thread, uint32_t reg) {
  TensorCell cell = tensor_cell(transfer.shape, thread, reg, 0);
  if (transfer.halfwords) cell.column *= 2;
  if (transfer.shape == TransferShape::k16x32bx2) {
    cell.column += (thread >> 4) * transfer.half_split;
  }
  return {transfer.at.lane + cell.row, transfer.at.column + cell.column};
}

}  // namespace

uint32_t registers_of(TransferShape shape) {
  switch (shape) {
    case TransferShape::k16x128b: return 2;
    case TransferShape::k16x256b: return 4;
    default: return 1;
  }
}

TensorCell tensor_cell(TransferShape shape, uint32_t thread, uint32_t reg, uint32_t half_split) {
  const uint32_t t = thread, r = reg;
  switch (shape) {
    case TransferShape::k32x32b: return {t, r};
    case TransferShape::k16x64b: return {(t >> 2) + 8 * (t & 1), 2 * r + ((t >> 1) & 1)};
    case TransferShape::k16x128b: return {(t >> 2) + 8 * (r & 1), 4 * (r >> 1) + (t & 3)};
    case TransferShape::k16x256b:
      return {(t >> 2) + 8 * ((r >> 1) & 1), 8 * (r >> 2) + 2 * (t & 3) + (r & 1)};
    case TransferShape::k16x32bx2: return {t & 15, r + (t >> 4) * half_split};
  }
  return {0, 0};
}

std::vector<Region> regions_of(const Transfer& transfer, Cta* cta) {
  Region region{.space = Region::Space::kTensor, .cta = cta};
  region.lane = transfer.at.lane;
  region.lanes = rows_of(transfer.shape);
  region.column = transfer.at.column;
  region.columns = column_span(transfer);
  if (transfer.shape != TransferShape::k16x32bx2) return {region};
  Region second = region;
  second.column += transfer.half_split;
  return {region, second};
}

void check_transfer(const Transfer& transfer, const Warp& warp, const char* what) {
  auto& memory = warp.cta->state<TensorMemory>();
  for (const Region& region : regions_of(transfer, warp.cta)) {
    memory.check(region.column, region.columns, what);
  }
}

TensorAddress in_quarter(TensorAddress address, TransferShape shape, const Warp& warp,
                         const char* what) {
  const uint32_t quarter = warp.index % 4 * 32, lane = address.lane;
  const bool own = lane / 32 * 32 == quarter || lane < 32;
  if (!own || lane % 32 + rows_of(shape) > 32 || lane % 16 != 0) {
    throw Trap{"tmem-lane-quarter",
               fmt::format("{} of lanes {} to {} by warp {}, which may access lanes {} to {}", what,
                           lane, lane + rows_of(shape) - 1, warp.index, quarter, quarter + 31),
               -1, name_tensor_cells(lane, rows_of(shape), address.column, 1)};
  }
  return {quarter + lane % 32, address.column};
}

uint32_t reduce_pair(const TransferReduction& reduction, uint32_t a, uint32_t b) {
  using Kind = TransferReduction::Kind;
  if (reduction.kind == Kind::kUnsigned) return reduction.maximum ? std::max(a, b) : std::min(a, b);
  if (reduction.kind == Kind::kSigned) {
    const int32_t x = static_cast<int32_t>(a), y = static_cast<int32_t>(b);
    return static_cast<uint32_t>(reduction.maximum ? std::max(x, y) : std::min(x, y));
  }
  const float x = std::bit_cast<float>(a), y = std::bit_cast<float>(b);
  if (std::isnan(x) || std::isnan(y)) {
    if (reduction.keeps_nan || (std::isnan(x) && std::isnan(y))) return 0x7FFFFFFF;
    return std::isnan(x) ? b : a;
  }
  if (x == y) return std::signbit(x) == reduction.maximum ? b : a;  // -0 is less than +0
  return (x > y) == reduction.maximum ? a : b;
}

TmemLoadOp::TmemLoadOp(const Exec& exec, const Insn& insn, const Transfer& transfer,
                       const TransferReduction& reduction)
    : AsyncOp(EngineKind::kTensorLoad, exec),
      cta_(exec.cta),
      owner_(exec.warp),
      frame_(exec.group->frame),
      mask_(exec.mask),
      transfer_(transfer),
      reduction_(reduction),
      reduced_(insn.d),
      slots_(insn.list) {
  queue = tensor_memory_queue(cta_->rank, exec.warp->index);
}

void TmemLoadOp::load_register(uint32_t reg) {
  auto& memory = cta_->state<TensorMemory>();
  auto* d = reinterpret_cast<uint32_t*>(frame_->registers + slots_[reg]);
  const bool plain = transfer_.shape == TransferShape::k32x32b && !transfer_.halfwords;
  if (plain && mask_ == ~0u) {
    std::memcpy(d, memory.column(transfer_.at.column + reg) + transfer_.at.lane, 128);
    return;
  }
  for (uint32_t lane = 0; lane < 32; ++lane) {
    if ((mask_ >> lane & 1) == 0) continue;
    const TensorCell cell = cell_of(transfer_, lane, reg);
    const uint32_t low = memory.column(cell.column)[cell.row];
    d[lane] =
        transfer_.halfwords ? (low & 0xFFFF) | memory.column(cell.column + 1)[cell.row] << 16 : low;
  }
}

void TmemLoadOp::reduce() {
  auto* d = reinterpret_cast<uint32_t*>(frame_->registers + reduced_);
  const uint32_t bits = reduction_.absolute ? 0x7FFFFFFF : ~0u;
  for (uint32_t lane = 0; lane < 32; ++lane) {
    if ((mask_ >> lane & 1) == 0) continue;
    uint32_t value = 0;
    for (uint32_t reg = 0; reg < transfer_.registers; ++reg) {
      const auto* r = reinterpret_cast<const uint32_t*>(frame_->registers + slots_[reg]);
      value = reg == 0 ? r[lane] & bits : reduce_pair(reduction_, value, r[lane] & bits);
    }
    d[lane] = value;
  }
}

bool TmemLoadOp::advance(Cluster& cluster, bool split) {
  Observer* observer = cluster.launch.observer.get();
  if (next_ == 0 && observer != nullptr) {
    for (const Region& region : regions_of(transfer_, cta_)) note_read(cluster, region);
  }
  const uint32_t end = split && next_ == 0 && transfer_.registers > 1 ? transfer_.registers / 2
                                                                      : transfer_.registers;
  for (; next_ < end; ++next_) load_register(next_);
  if (next_ < transfer_.registers) return false;
  if (reduction_.kind != TransferReduction::Kind::kNone) reduce();
  auto& ranges = owner_->pending.ranges;
  if (cluster.launch.observer == nullptr) {
    std::erase_if(ranges, [this](const auto& range) { return range.op == id; });
  }
  for (auto& range : ranges) range.stalls = range.stalls && range.op != id;
  return true;
}

TmemStoreOp::TmemStoreOp(const Exec& exec, const Insn& insn, const Transfer& transfer)
    : AsyncOp(EngineKind::kTensorStore, exec),
      cta_(exec.cta),
      mask_(exec.mask),
      transfer_(transfer),
      values_(size_t{transfer.registers} * 32) {
  held_bytes = values_.size() * sizeof values_[0];
  queue = tensor_memory_queue(cta_->rank, exec.warp->index);
  for (uint32_t reg = 0; reg < transfer.registers; ++reg) {
    std::memcpy(&values_[size_t{reg} * 32], exec.lanes<uint32_t>(insn.list[reg]), 128);
  }
}

void TmemStoreOp::store_register(uint32_t reg) {
  auto& memory = cta_->state<TensorMemory>();
  const uint32_t* values = &values_[size_t{reg} * 32];
  const bool plain = transfer_.shape == TransferShape::k32x32b && !transfer_.halfwords;
  if (plain && mask_ == ~0u) {
    std::memcpy(memory.column(transfer_.at.column + reg) + transfer_.at.lane, values, 128);
    return;
  }
  for (uint32_t lane = 0; lane < 32; ++lane) {
    if ((mask_ >> lane & 1) == 0) continue;
    const TensorCell cell = cell_of(transfer_, lane, reg);
    uint32_t* low = memory.column(cell.column) + cell.row;
    if (!transfer_.halfwords) {
      *low = values[lane];
      continue;
    }
    *low = values[lane] & 0xFFFF;
    memory.column(cell.column + 1)[cell.row] = values[lane] >> 16;
  }
}

bool TmemStoreOp::advance(Cluster& cluster, bool split) {
  const uint32_t end = split && next_ == 0 && transfer_.registers > 1 ? transfer_.registers / 2
                                                                      : transfer_.registers;
  for (; next_ < end; ++next_) store_register(next_);
  if (next_ < transfer_.registers) return false;
  if (cluster.launch.observer != nullptr) {
    for (const Region& region : regions_of(transfer_, cta_)) note_write(cluster, region);
  }
  return true;
}

}  // namespace ptxemu
