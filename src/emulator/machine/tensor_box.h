// Boxes of tensors to and from shared memory ("Tensor Access Modes", "Tiled Mode", "Swizzling
// Modes"; PTX ISA 5.5.2, 5.5.3, 5.5.7), and four rows of a matrix as one box ("Tiled Mode": its
// scatter and gather modes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "emulator/machine/memory.h"
#include "emulator/machine/reduce.h"
#include "emulator/machine/tensor_map.h"

namespace ptxemu {

// A box of the tensor, whose first element may lie outside. Rows are runs along dimension 0,
// numbered as they follow each other in shared memory.
class TensorBox {
 public:
  // Finds the box's memory at once. Throws Trap when part of what lies inside the tensor is outside
  // its allocation, for a box that no shared memory holds, and for layouts that are not modelled
  // (interleaved ones). The map is one that TensorMap::check accepts.
  TensorBox(const TensorMap& map, std::span<const int32_t> start, const GlobalMemory& memory);
  // Rows of a matrix, each from the same column on, which follow each other in shared memory. The
  // map's box is one row.
  TensorBox(const TensorMap& map, int32_t column, std::span<const int32_t> rows,
            const GlobalMemory& memory);

  uint32_t rows() const { return static_cast<uint32_t>(rows_.size()); }
  uint32_t bytes() const { return bytes_; }
  uint64_t host_bytes() const { return rows_.size() * sizeof(Row); }  // what this object keeps
  uint32_t row_bytes() const { return row_bytes_; }
  // From row to row in shared memory: a swizzled box narrower than its swizzle leaves gaps.
  uint32_t row_pitch() const { return row_pitch_; }
  uint32_t shared_bytes() const { return rows() * row_pitch_; }

  // Rows [begin, end) into a CTA's shared memory; `offset` is the box's place in it, which the
  // swizzle depends on. Elements outside the tensor get the fill value.
  void load(uint32_t begin, uint32_t end, std::byte* shared, uint32_t offset) const;
  // Shared memory into `buffer` (bytes() long), in the order of the box.
  void read_shared(uint32_t begin, uint32_t end, const std::byte* shared, uint32_t offset,
                   std::byte* buffer) const;
  // What read_shared has read to the tensor: elements outside are dropped. With a reducer, they are
  // combined with what is there.
  void store(uint32_t begin, uint32_t end, const std::byte* buffer, const Reducer* reducer) const;

  // Calls f(address, bytes) for the runs of global memory that rows [begin, end) touch.
  void for_runs(uint32_t begin, uint32_t end,
                const std::function<void(uint64_t, uint64_t)>& f) const;

 private:
  struct Row {
    bool inside = false;        // some of the row lies in the tensor
    std::byte* host = nullptr;  // of element `first`; null when all of the row is outside
    uint64_t address = 0;
  };
  // Of so many rows that begin at an element of dimension 0; they are to be placed and found.
  TensorBox(const TensorMap& map, int64_t first_element, uint64_t rows);
  uint32_t swizzled(uint32_t offset) const { return offset ^ (offset >> shift_ & mask_); }
  // The bytes of a row that lie in the tensor.
  uint64_t run() const { return uint64_t{last_ > first_ ? last_ - first_ : 0} * element_bytes_; }
  // Goes to a coordinate of a dimension above 0.
  void move(Row& row, int dimension, int64_t coordinate) const;
  void find_rows(const GlobalMemory& memory);
  void fill(std::byte* row, uint32_t begin, uint32_t end) const;
  void build_row(const Row& row, std::byte* out) const;
  void convert(std::byte* row) const;

  TensorMap map_;
  uint32_t element_bytes_, row_bytes_, row_pitch_, bytes_ = 0;
  uint32_t first_ = 0, last_ = 0;  // elements of a row inside the tensor: [first_, last_)
  // The swizzle: the bits that those `shift_` above them are added to.
  uint32_t mask_ = 0, shift_ = 3;
  std::vector<Row> rows_;
};

}  // namespace ptxemu
