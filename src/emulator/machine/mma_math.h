// D = A * B + C as tensor cores compute it: operands gathered once, products by panels.
//
// One matrix is the wide side: 32 of its rows (or columns) stand side by side in a panel, and the
// results with one row of the other matrix, the narrow side, are adjacent. Which of A and B is wide
// is the caller's choice: whichever runs along contiguous results.
#pragma once

#include <cstddef>
#include <cstdint>

#include "emulator/machine/instruction_descriptor.h"
#include "emulator/machine/matrix_descriptor.h"
#include "emulator/machine/mma_panel.h"
#include "emulator/machine/options.h"

namespace ptxemu {

// The arithmetic of one instruction.
struct MmaRules {
  Math math = Math::kHardware;
  Accumulator accumulator = Accumulator::kF32;
  int fraction_bits = 25;
  int result_bits = 23;   // explicit mantissa bits of an f32 result
  bool saturate = false;  // s32
};

// One side of a product, unpacked: up to 256 rows (of A) or columns (of B) of 32 bytes each.
class MmaSide {
 public:
  static constexpr int kMost = 256;
  // Starts anew: `count` rows of `k` values, all 0. A wide side is laid out in panels.
  void reset(ElementType type, int k, int count, bool wide);
  // Copies the chunk of 16 bytes at `chunk` that holds (mn, k) and its neighbours along `major`.
  // Sub-byte formats are packed from the chunk's start.
  void set_chunk(Major major, int mn, int k, const std::byte* chunk);
  // One value as its bit pattern.
  void set(int mn, int k, uint32_t bits);
  // Of a wide side: 16 values from mn on, each in the bits of a word from `shift` on.
  void set_run(int mn, int k, const uint32_t* words, int shift);
  // After the last set: makes the values. negate: of every value.
  void finish(bool negate);

  int products() const { return k_; }
  int count() const { return count_; }
  const float* values(int panel_or_row) const { return value_ + offset(panel_or_row); }
  const int16_t* exponents(int panel_or_row) const { return exponent_ + offset(panel_or_row); }
  int elements_per_chunk() const { return chunk_; }

 private:
  ptrdiff_t offset(int i) const {
    return static_cast<ptrdiff_t>(i) * (wide_ ? k_ * kPanelWidth : k_);
  }
  size_t index(int mn, int k) const {
    return wide_ ? static_cast<size_t>((mn / kPanelWidth * k_ + k) * kPanelWidth + mn % kPanelWidth)
                 : static_cast<size_t>(mn * k_ + k);
  }
  size_t padded() const;

  ElementType type_ = ElementType::kF16;
  int k_ = 0, count_ = 0, bytes_ = 2, chunk_ = 8;
  int packed_bits_ = 0;  // of a format that shared memory packs below a byte
  bool wide_ = false;
  alignas(64) std::byte raw_[kMost * 32];
  alignas(64) float value_[kMost * kMaxProducts];
  alignas(64) int16_t exponent_[kMost * kMaxProducts];
};

// Where the results of a panel lie; see MmaPanel. The values are those of the accumulator's type in
// 32-bit cells: an f16 in the low half.
struct MmaTarget {
  const uint32_t* c[2] = {nullptr, nullptr};
  uint32_t* d[2] = {nullptr, nullptr};
  ptrdiff_t stride = 0;  // cells from one narrow row to the next
  // D's addend is scaled by 2^-scale first.
  int scale = 0;
  uint32_t lanes = ~0u;  // bit i: result i of each row is written
};

// Panel `panel` of the wide side with rows [begin, end) of the narrow side. c[] and d[] are those
// of row `begin`.
void multiply_panel(const MmaSide& wide, int panel, const MmaSide& narrow, int begin, int end,
                    const MmaTarget& target, const MmaRules& rules);

}  // namespace ptxemu
