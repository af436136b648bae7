// The end of a work: a math warpgroup's 64 rows of dk and dv from its accumulators to global
// memory, once they are those of the whole group.
#pragma once

#include "kernels/ptx/global.cuh"
#include "kernels/sm90/backward/context.cuh"
#include "kernels/tile/pack.cuh"

namespace fa4::sm90::bwd {

// 16-bit gradients go through the place of the warpgroup's rows of V or K, which nobody else reads.
template <BwdTraits T>
struct GradientStore {
  static constexpr int kWarpRows = 16;
  static constexpr int kSlab = slab_columns(T.head_dim_v);
  static constexpr int kRowBytes = kSlab * kElementBytes, kSlabBytes = kKeys * kRowBytes;
  // Columns that have a place.
  static constexpr int kAtOnce = T.head_dim_v;

  const Context<T>& c;
  const WorkOf<T>& work;
  int warpgroup;
  int lane;   // in the warpgroup
  int place;  // of V or K

  // Stores zeros for keys that no query sees; the first subgroup of a group does it.
  __device__ void store_zeros() const {
    if (work.subgroup_of_work(c.params) != 0) return;
#pragma unroll 1
    for (int i = 0; i < 2; ++i) {
      const bool is_dv = i == 0;
      if (work_kind_of(work) == (is_dv ? WorkKind::kDkAndDq : WorkKind::kDv)) continue;
      store_zeros(is_dv ? c.params.gradients.dv : c.params.gradients.dk);
    }
  }

  // When all warps of the warpgroup are done with that place.
  template <int kElements>
  __device__ void store(const float (&x)[kElements], const RowTensor& tensor) const {
    if (tensor.data == nullptr) return;
    const int64_t at = first_element(tensor);
    if (c.params.gradients.is_f32 != 0) {
      return store_f32(x, static_cast<float*>(tensor.data) + at, tensor);
    }
    auto* to = static_cast<uint16_t*>(tensor.data) + at;
#pragma unroll
    for (int first = 0; first < 2 * kElements; first += kAtOnce) {
      if (first >= tensor.columns) return;
      __syncwarp();  // the copy before is over
      stage(x, first);
      __syncwarp();
      copy(to + first, tensor.stride_seqlen, min(tensor.columns - first, kAtOnce));
    }
  }

 private:
  __device__ int first_row() const {  // of this warp, in the block
    return kWarpgroupKeys * warpgroup + kWarpRows * (lane / 32);
  }
  // How many rows the sequence has from this warp's first one on: may be negative, or more than the
  // warp's.
  __device__ int num_rows() const {
    return work.sequence.seqlen_k - work.first_key() - first_row();
  }
  // The element of `tensor` at which this warp's first row begins.
  __device__ int64_t first_element(const RowTensor& tensor) const {
    return row_element(tensor, work.sequence.batch,
                       work.sequence.offset_k + work.first_key() + first_row(), work.kv_head);
  }
  __device__ void store_zeros(const RowTensor& tensor) const {
    if (tensor.data == nullptr) return;
    const int element_bytes = c.params.gradients.is_f32 != 0 ? 4 : kElementBytes;
    const int pieces = tensor.columns * element_bytes / 16, rows = min(num_rows(), kWarpRows);
    auto* to = static_cast<unsigned char*>(tensor.data) + first_element(tensor) * element_bytes;
#pragma unroll 1
    for (int row = 0; row < rows; ++row, to += tensor.stride_seqlen * element_bytes) {
#pragma unroll 1
      for (int i = lane % 32; i < pieces; i += 32) {
        reinterpret_cast<uint4*>(to)[i] = uint4{0, 0, 0, 0};
      }
    }
  }

  // Where a piece of 8 columns of the first slab lies. Rows are aligned to what pieces are permuted
  // in, so that the place of another piece follows by an exclusive or.
  __device__ int row_place(int row, int piece) const {
    return place + row * kRowBytes + 16 * (piece ^ slab_swizzle<kSlab>(row));
  }

  // Columns from `first` on.
  template <int kElements>
  __device__ void stage(const float (&x)[kElements], int first) const {
    constexpr int kSteps = kAtOnce / 16, kSlabSteps = kSlab / 16;
    const int matrix = lane % 32 / 8;
    const ptx::SmemAddr to =
        c.smem_address(row_place(first_row() + lane % 8 + 8 * (matrix & 1), matrix / 2));
#pragma unroll
    for (int i = 0; i < kSteps && first + 16 * i < 2 * kElements; ++i) {
      uint32_t words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int e = first / 2 + 8 * i + 2 * j;
        words[j] = pack<T.element>(x[e], x[e + 1]);
      }
      const ptx::SmemAddr of_step{to.value ^ 32 * (i % kSlabSteps)};
      ptx::stmatrix_x4(of_step + i / kSlabSteps * kSlabBytes, words[0], words[1], words[2],
                       words[3]);
    }
  }

  // Columns [0, columns), a slab at a time: a lane has the same piece of several rows.
  __device__ void copy(uint16_t* to, int64_t stride, int columns) const {
    constexpr int kPieces = kSlab / 8, kRowsAtOnce = 32 / kPieces;
    constexpr int kRounds = kWarpRows / kRowsAtOnce;
    const int row = lane % 32 / kPieces, piece = lane % kPieces, rows = num_rows() - row;
    to += row * stride + 8 * piece;
    const unsigned char* slab = c.smem;
#pragma unroll 1
    for (int column = 0; column < columns; column += kSlab) {
      uint4 pieces[kRounds];
#pragma unroll
      for (int i = 0; i < kRounds; ++i) {
        pieces[i] = *reinterpret_cast<const uint4*>(
            slab + row_place(first_row() + row + kRowsAtOnce * i, piece));
      }
#pragma unroll
      for (int i = 0; i < kRounds; ++i) {
        if (kRowsAtOnce * i >= rows || column + 8 * piece >= columns) continue;
        ptx::st_global_cs_v4(reinterpret_cast<uint4*>(to + kRowsAtOnce * i * stride), pieces[i]);
      }
      slab += kSlabBytes;
      to += kSlab;
    }
  }

  template <int kElements>
  __device__ void store_f32(const float (&x)[kElements], float* to, const RowTensor& tensor) const {
    const int column = 2 * (lane % 4);
    to += lane % 32 / 4 * tensor.stride_seqlen + column;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int columns = lane % 32 / 4 + 8 * r < num_rows() ? tensor.columns - column : 0;
#pragma unroll
      for (int j = 0; j < kElements / 4; ++j) {
        ptx::st_global_v2_f32_if(8 * j < columns, to + 8 * j, x[4 * j + 2 * r],
                                 x[4 * j + 2 * r + 1]);
      }
      to += 8 * tensor.stride_seqlen;
    }
  }
};

}  // namespace fa4::sm90::bwd
