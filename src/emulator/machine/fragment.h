// Where the elements of a matrix lie in a warp's registers: the fragments of mma.sync and of
// wgmma ("Matrix Fragments for mma.m16n8k16", PTX ISA 9.7.14.5; "Register Fragments",
// 9.7.15.5.1.1), which agree for sixteen rows.
#pragma once

#include <cstdint>

namespace ptxemu {

struct FragmentElement {
  int row, column;
};

// Element `index` of a thread's part of the accumulator (16 x N): 32-bit elements are a register
// each, 16-bit ones two a register, the lower index low.
inline FragmentElement accumulator_element(int lane, int index) {
  return {lane / 4 + 8 * (index >> 1 & 1), 8 * (index >> 2) + 2 * (lane % 4) + (index & 1)};
}

// Register `reg` of A (16 x 32 bytes; four registers): its first element, with `per_word` elements
// a register along the row.
inline FragmentElement a_element(int lane, int reg, int per_word) {
  return {lane / 4 + 8 * (reg & 1), per_word * (lane % 4) + 4 * per_word * (reg >> 1)};
}

// Register `reg` of B (up to 32 bytes x 8), by column: row is k.
inline FragmentElement b_element(int lane, int reg, int per_word) {
  return {per_word * (lane % 4) + 4 * per_word * reg, lane / 4};
}

}  // namespace ptxemu
