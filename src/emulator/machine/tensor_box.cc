#include "emulator/machine/tensor_box.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "emulator/observe/finding.h"

namespace ptxemu {
namespace {

constexpr uint32_t kChunk = 16;
constexpr uint32_t kMaxRowBytes = 256 * 8;
constexpr uint64_t kMostSharedBytes = kOffsetMask;
// What the hardware writes outside the tensor with NaN fill, over and over for wider types
// (measured on an H200).
constexpr uint16_t kNanFill = 0x7FF7;

bool is_tf32(TensorType type) { return type == TensorType::kTF32 || type == TensorType::kTF32Ftz; }

// Rounds to the 10 bits of mantissa of tf32, to nearest and ties to even; a NaN becomes the
// canonical one. Subnormals stay, for .ftz too. Measured on an H200.
uint32_t rounded_to_tf32(uint32_t bits) {
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FFFE000u;
  return (bits + 0xFFFu + (bits >> 13 & 1)) & 0xFFFFE000u;
}

}  // namespace

TensorBox::TensorBox(const TensorMap& map, int64_t first_element, uint64_t rows)
    : map_(map),
      element_bytes_(bytes_of(map.type)),
      row_bytes_(map.row_bytes()),
      mask_(span_of(map.swizzle) - kChunk) {
  row_pitch_ = mask_ == 0 ? row_bytes_ : std::max(row_bytes_, span_of(map.swizzle));
  if (map.swizzle == TmaSwizzle::k128BAtom32B) {
    mask_ = 0x60;
    shift_ = 2;
  }
  if (map.interleave != Interleave::kNone) {
    throw Trap{"unsupported-tensor-map",
               "an interleaved tensor map: only interleave none is "
               "modelled"};
  }
  if (row_bytes_ % kChunk != 0) {
    throw Trap{"bad-tensor-map",
               fmt::format("the box is {} bytes wide, which is no multiple of 16", row_bytes_)};
  }
  if (rows * row_pitch_ > kMostSharedBytes) {
    throw Trap{"bad-tensor-map",
               fmt::format("a box of {} rows of {} bytes: at most {} bytes of shared memory are "
                           "accepted",
                           rows, row_pitch_, kMostSharedBytes)};
  }
  bytes_ = static_cast<uint32_t>(rows * row_bytes_);
  // Dimension 0 of the rows: the same in all of them.
  const int64_t size = static_cast<int64_t>(map.dims[0]), width = map.box_elements(0);
  first_ = static_cast<uint32_t>(std::clamp<int64_t>(-first_element, 0, width));
  last_ = static_cast<uint32_t>(std::clamp<int64_t>(size - first_element, 0, width));
  rows_.resize(rows, {.inside = run() != 0,
                      .address = map.address +
                                 static_cast<uint64_t>((first_element + first_) * element_bytes_)});
}

TensorBox::TensorBox(const TensorMap& map, std::span<const int32_t> start,
                     const GlobalMemory& memory)
    : TensorBox(map, start[0], map.box_rows()) {  // at most 256^4
  const int rank = static_cast<int>(map_.rank);
  std::array<uint32_t, TensorMap::kMaxRank> at{};
  for (Row& row : rows_) {
    for (int d = 1; d < rank; ++d) {
      move(row, d, int64_t{start[d]} + int64_t{at[d]} * map_.element_strides[d]);
    }
    for (int d = 1; d < rank && ++at[d] == map_.box_elements(d); ++d) at[d] = 0;
  }
  find_rows(memory);
}

TensorBox::TensorBox(const TensorMap& map, int32_t column, std::span<const int32_t> rows,
                     const GlobalMemory& memory)
    : TensorBox(map, column, rows.size()) {
  if (map.rank != 2 || map.box_rows() != 1) {
    throw Trap{
        "bad-tensor-map",
        fmt::format("rows of a tensor by a map of rank {} whose box has {} of them: a map of "
                    "rank 2 with a box of one row is accepted",
                    map.rank, map.box_rows())};
  }
  for (size_t i = 0; i < rows.size(); ++i) move(rows_[i], 1, rows[i]);
  find_rows(memory);
}

void TensorBox::move(Row& row, int dimension, int64_t coordinate) const {
  row.inside &= coordinate >= 0 && coordinate < static_cast<int64_t>(map_.dims[dimension]);
  row.address += static_cast<uint64_t>(coordinate) * map_.strides[dimension];
}

void TensorBox::find_rows(const GlobalMemory& memory) {
  uint64_t lowest = ~uint64_t{0}, highest = 0;
  for (const Row& row : rows_) {
    if (!row.inside) continue;
    lowest = std::min(lowest, row.address);
    highest = std::max(highest, row.address);
  }
  if (lowest > highest) return;  // all outside
  std::byte* whole = memory.find(lowest, highest - lowest + run());
  for (Row& row : rows_) {
    if (!row.inside) continue;
    row.host = whole != nullptr ? whole + (row.address - lowest) : memory.find(row.address, run());
    if (row.host == nullptr) {
      throw Trap{"out-of-bounds",
                 fmt::format("a tensor copy touches {} bytes at 0x{:x}: {}. The tensor map says "
                             "base 0x{:x}, {} dimensions, sizes {} x {} ...",
                             run(), row.address, memory.describe(row.address), map_.address,
                             map_.rank, map_.dims[0], map_.dims[1])};
    }
  }
}

void TensorBox::fill(std::byte* row, uint32_t begin, uint32_t end) const {
  if (!map_.nan_fill) {
    std::memset(row + begin, 0, end - begin);
    return;
  }
  for (uint32_t i = begin; i < end; i += sizeof kNanFill) {
    std::memcpy(row + i, &kNanFill, sizeof kNanFill);
  }
}

void TensorBox::convert(std::byte* row) const {
  for (uint32_t i = first_ * 4; i < last_ * 4; i += 4) {
    uint32_t bits;
    std::memcpy(&bits, row + i, sizeof bits);
    bits = rounded_to_tf32(bits);
    std::memcpy(row + i, &bits, sizeof bits);
  }
}

void TensorBox::build_row(const Row& row, std::byte* out) const {
  if (row.host == nullptr) {
    fill(out, 0, row_bytes_);
    return;
  }
  const uint32_t begin = first_ * element_bytes_, end = last_ * element_bytes_;
  fill(out, 0, begin);
  std::memcpy(out + begin, row.host, end - begin);
  fill(out, end, row_bytes_);
  if (is_tf32(map_.type)) convert(out);
}

void TensorBox::load(uint32_t begin, uint32_t end, std::byte* shared, uint32_t offset) const {
  alignas(16) std::byte built[kMaxRowBytes];
  const bool plain = first_ == 0 && last_ * element_bytes_ == row_bytes_ && !is_tf32(map_.type);
  for (uint32_t r = begin; r < end; ++r) {
    const Row& row = rows_[r];
    const std::byte* source = row.host;
    if (!plain || source == nullptr) {
      build_row(row, built);
      source = built;
    }
    const uint32_t at = offset + r * row_pitch_;
    if (mask_ == 0) {
      std::memcpy(shared + at, source, row_bytes_);
      continue;
    }
    for (uint32_t i = 0; i < row_bytes_; i += kChunk) {
      std::memcpy(shared + swizzled(at + i), source + i, kChunk);
    }
  }
}

void TensorBox::read_shared(uint32_t begin, uint32_t end, const std::byte* shared, uint32_t offset,
                            std::byte* buffer) const {
  for (uint32_t r = begin; r < end; ++r) {
    for (uint32_t i = 0; i < row_bytes_; i += kChunk) {
      std::memcpy(buffer + r * row_bytes_ + i, shared + swizzled(offset + r * row_pitch_ + i),
                  kChunk);
    }
  }
}

void TensorBox::store(uint32_t begin, uint32_t end, const std::byte* buffer,
                      const Reducer* reducer) const {
  const uint32_t skip = first_ * element_bytes_;
  for (uint32_t r = begin; r < end; ++r) {
    const Row& row = rows_[r];
    if (row.host == nullptr) continue;
    const std::byte* source = buffer + r * row_bytes_ + skip;
    if (reducer == nullptr) {
      std::memcpy(row.host, source, (last_ - first_) * element_bytes_);
    } else {
      reducer->apply(row.host, source, nullptr, last_ - first_);
    }
  }
}

void TensorBox::for_runs(uint32_t begin, uint32_t end,
                         const std::function<void(uint64_t, uint64_t)>& f) const {
  uint64_t address = 0, bytes = 0;
  for (uint32_t r = begin; r < end; ++r) {
    const Row& row = rows_[r];
    if (row.host == nullptr) continue;
    if (bytes != 0 && address + bytes == row.address) {
      bytes += run();
      continue;
    }
    if (bytes != 0) f(address, bytes);
    address = row.address;
    bytes = run();
  }
  if (bytes != 0) f(address, bytes);
}

}  // namespace ptxemu
