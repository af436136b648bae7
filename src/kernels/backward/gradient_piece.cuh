// Columns of a gradient from one thread's registers to global memory, where a thread has a row.
#pragma once

#include "kernels/backward/sequence.cuh"
#include "kernels/tile/pack.cuh"

namespace fa4 {

// A row of a gradient, or nowhere.
struct GradientRow {
  unsigned char* data;  // null: not wanted, or past the sequence's end
  int columns;
  bool is_f32;

  __device__ GradientRow(const RowTensor& tensor, bool is_f32, bool is_inside, int batch,
                         int position, int head)
      : data(nullptr), columns(tensor.columns), is_f32(is_f32) {
    if (!is_inside || tensor.data == nullptr) return;
    const int64_t bytes = is_f32 ? 4 : kElementBytes;
    data = static_cast<unsigned char*>(tensor.data) +
           row_element(tensor, batch, position, head) * bytes;
  }

  // Its columns from `first` on, a multiple of 8, of which those past the tensor's are left out.
  template <Element kElement, int kColumns>
  __device__ void store(int first, const float (&r)[kColumns]) const {
    if (data == nullptr) return;
#pragma unroll
    for (int i = 0; i < kColumns; i += 8) {
      if (first + i >= columns) break;
      if (is_f32) {
        auto* to = reinterpret_cast<float4*>(data) + (first + i) / 4;
        to[0] = float4{r[i], r[i + 1], r[i + 2], r[i + 3]};
        to[1] = float4{r[i + 4], r[i + 5], r[i + 6], r[i + 7]};
      } else {
        reinterpret_cast<uint4*>(data)[(first + i) / 8] =
            uint4{pack<kElement>(r[i], r[i + 1]), pack<kElement>(r[i + 2], r[i + 3]),
                  pack<kElement>(r[i + 4], r[i + 5]), pack<kElement>(r[i + 6], r[i + 7])};
      }
    }
  }
};

}  // namespace fa4
