// The end of a work: a math warpgroup's 64 rows of dk and dv from its accumulators to global
// memory, once they are those of the whole group.
#pragma once

#include "kernels/ptx/global.cuh"
#include "kernels/ptx/sync.cuh"
#include "kernels/sm90/backward/context.cuh"
#include "kernels/tile/pack.cuh"
#include "kernels/tile/unroll.cuh"

namespace fa4::sm90::bwd {

// 16-bit gradients go through the place of the warpgroup's rows of V or K, which nobody else reads.
template <BwdTraits T>
struct GradientStore {
  static constexpr int kWarpRows = 16;
  static constexpr int kSlab = slab_columns(T.head_dim_v);
  static constexpr int kRowBytes = kSlab * kElementBytes;

  const Context<T>& c;
  const Work& work;
  int warpgroup;
  int lane;   // in the warpgroup
  int place;  // of V or K

  // Of keys that no query sees, by one of the parts of a group.
  __device__ void store_zeros() const {
    if (work.head % c.params.group_parts != 0) return;
    if (work.part != Part::kDkAndDq) store_zeros(c.params.gradients.dv);
    if (work.part != Part::kDv) store_zeros(c.params.gradients.dk);
  }

  // When all warps of the warpgroup are done with that place.
  template <int kColumns>
  __device__ void store(const float (&x)[kColumns / 2], const RowTensor& tensor,
                        float factor) const {
    if (tensor.data == nullptr) return;
    if (c.params.gradients.is_f32 != 0) return store_f32<kColumns>(x, tensor, factor);
    constexpr int kAtOnce = kColumns < T.head_dim_v ? kColumns : T.head_dim_v;
    unroll<(kColumns + kAtOnce - 1) / kAtOnce>([&](auto part) {
      constexpr int kFirst = decltype(part)::value * kAtOnce;
      constexpr int kCount = kColumns - kFirst < kAtOnce ? kColumns - kFirst : kAtOnce;
      __syncwarp();  // the copy before is over
      stage<kFirst, kCount>(x, factor);
      __syncwarp();
      copy<kFirst, kCount>(tensor);
    });
  }

 private:
  __device__ int first_row() const {  // of this warp, in the block
    return kWarpgroupKeys * warpgroup + kWarpRows * (lane / 32);
  }
  // The last row of this warp that the sequence has, counted from its first: may be negative.
  __device__ int num_rows() const {
    return work.sequence.seqlen_k - work.first_key() - first_row();
  }
  __device__ int64_t element(const RowTensor& tensor, int row) const {
    return row_element(tensor, work.sequence.batch,
                       work.sequence.offset_k + work.first_key() + first_row() + row,
                       work.head / c.params.group_parts);
  }
  __device__ void store_zeros(const RowTensor& tensor) const {
    if (tensor.data == nullptr) return;
    const int element_bytes = c.params.gradients.is_f32 != 0 ? 4 : kElementBytes;
    const int pieces = tensor.columns * element_bytes / 16, rows = num_rows();
#pragma unroll 1
    for (int row = 0; row < kWarpRows && row < rows; ++row) {
      auto* to = reinterpret_cast<uint4*>(static_cast<unsigned char*>(tensor.data) +
                                          element(tensor, row) * element_bytes);
#pragma unroll 1
      for (int i = lane % 32; i < pieces; i += 32) to[i] = uint4{0, 0, 0, 0};
    }
  }
  // Of a piece of 8 columns.
  __device__ static int offset(int row, int piece) {
    constexpr int kPieces = kSlab / 8;
    return piece / kPieces * kKeys * kRowBytes + row * kRowBytes +
           16 * (piece % kPieces ^ slab_swizzle<kSlab>(row));
  }

  // kCount columns from kFirst on.
  template <int kFirst, int kCount, int kElements>
  __device__ void stage(const float (&x)[kElements], float factor) const {
    const int matrix = lane % 32 / 8;
    const int row = first_row() + lane % 8 + 8 * (matrix & 1);
#pragma unroll
    for (int i = 0; i < kCount / 16; ++i) {
      uint32_t words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int e = kFirst / 2 + 8 * i + 2 * j;
        words[j] = pack<T.element>(x[e] * factor, x[e + 1] * factor);
      }
      ptx::stmatrix_x4(c.smem_address(place + offset(row, 2 * i + matrix / 2)), words[0], words[1],
                       words[2], words[3]);
    }
  }

  // 16 bytes a lane; neighbours in a row.
  template <int kFirst, int kCount>
  __device__ void copy(const RowTensor& tensor) const {
    constexpr int kPieces = kCount / 8;
    const int rows = num_rows();
    auto* const to = static_cast<uint16_t*>(tensor.data) + element(tensor, 0) + kFirst;
#pragma unroll 4
    for (int i = lane % 32; i < kWarpRows * kPieces; i += 32) {
      const int row = i / kPieces, piece = i % kPieces;
      if (row >= rows || kFirst + 8 * piece >= tensor.columns) continue;
      ptx::st_cs(
          reinterpret_cast<uint4*>(to + row * tensor.stride_seqlen + 8 * piece),
          *reinterpret_cast<const uint4*>(c.smem + place + offset(first_row() + row, piece)));
    }
  }

  template <int kColumns>
  __device__ void store_f32(const float (&x)[kColumns / 2], const RowTensor& tensor,
                            float factor) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = lane % 32 / 4 + 8 * r, column = 2 * (lane % 4);
      auto* to = static_cast<float*>(tensor.data) + element(tensor, row) + column;
      const int columns = row < num_rows() ? tensor.columns - column : 0;
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j) {
        if (8 * j >= columns) continue;
        *reinterpret_cast<float2*>(to + 8 * j) =
            float2{x[4 * j + 2 * r] * factor, x[4 * j + 2 * r + 1] * factor};
      }
    }
  }
};

}  // namespace fa4::sm90::bwd
