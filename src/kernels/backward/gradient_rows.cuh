// Rows of a gradient from wgmma's accumulators to global memory.
#pragma once

#include "kernels/backward/sequence.cuh"
#include "kernels/tile/pack.cuh"

namespace fa4 {

// A thread of a quad holds, of each of four groups of 8 columns, the pair of columns 2 (lane % 4);
// afterwards all 8 of the group of its number: 4 x 4 words change places.
__device__ inline void transpose_quad(uint32_t (&x)[4], int lane) {
#pragma unroll
  for (int d = 1; d < 4; d *= 2) {
    const bool upper = (lane & d) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & d) != 0) continue;
      const uint32_t given = upper ? x[i] : x[i + d];
      const uint32_t taken = __shfl_xor_sync(0xffffffffu, given, d);
      x[i] = upper ? taken : x[i];
      x[i + d] = upper ? x[i + d] : taken;
    }
  }
}

// Where a thread's rows of a fragment go: rows `row` and `row + 8` of its sequence.
struct GradientPlace {
  const RowTensor& tensor;
  const Sequence& sequence;
  int offset;  // of the sequence in a packed tensor
  int seqlen;
  int head;
  int row;
};

// 32 columns from `first_column` on: 16 accumulators, of which rows past the sequence's end and
// columns past the tensor's are left out.
template <Element kElement>
__device__ inline void store_gradient(const float (&x)[16], const GradientPlace& to,
                                      int first_column, float factor, bool is_f32, int lane) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = to.row + 8 * r;
    const int64_t at = row_element(to.tensor, to.sequence.batch, to.offset + row, to.head);
    if (is_f32) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int column = first_column + 8 * j + 2 * (lane % 4);
        if (row < to.seqlen && column < to.tensor.columns) {
          *reinterpret_cast<float2*>(static_cast<float*>(to.tensor.data) + at + column) =
              float2{x[4 * j + 2 * r] * factor, x[4 * j + 2 * r + 1] * factor};
        }
      }
    } else {
      uint32_t words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        words[j] = pack<kElement>(x[4 * j + 2 * r] * factor, x[4 * j + 2 * r + 1] * factor);
      }
      transpose_quad(words, lane);
      const int column = first_column + 8 * (lane % 4);
      if (row < to.seqlen && column < to.tensor.columns) {
        *reinterpret_cast<uint4*>(static_cast<uint16_t*>(to.tensor.data) + at + column) =
            uint4{words[0], words[1], words[2], words[3]};
      }
    }
  }
}

}  // namespace fa4
