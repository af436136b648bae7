// New keys and values into a cache, in place: a thread moves 16 bytes, which it turns by its key's
// position where they are of a pair.
//
// Index tensors cannot be checked on the host: a row whose key lies outside of its sequence's room
// is not written, and what is read of pages and factors is clamped.
#pragma once

#include "kernels/append/params.h"
#include "kernels/append/traits.h"
#include "kernels/pages/place.cuh"
#include "kernels/ptx/grid_dependency.cuh"
#include "kernels/tile/pack.cuh"
#include "kernels/tile/unpack.cuh"

namespace fa4 {
namespace append {

// A new row: of which sequence, where it lies among the new ones, and which key it becomes; key -1:
// there is none.
struct NewRow {
  int batch;
  int position;
  int key;
};

// The sequence of packed row `row`: the first one that ends behind it. Lanes' rows ascend, the
// first lane's is `first`.
__device__ inline int sequence_of_row(const SequenceParams& s, int row, int first) {
  int batch = 0;
  for (int b = 0; b < s.batch; b += 32) {
    const int at = b + static_cast<int>(threadIdx.x % 32);
    const bool before = at < s.batch && s.cu_seqlens_q[at + 1] <= first;
    batch += __popc(__ballot_sync(0xffffffffu, before));
  }
  while (batch < s.batch && s.cu_seqlens_q[batch + 1] <= row) ++batch;
  return batch;
}

// Every lane of a warp calls it.
__device__ inline NewRow find_row(const AppendParams& p, int row) {
  const SequenceParams& s = p.sequences;
  NewRow found{0, 0, -1};
  int rows = s.seqlen_q, i = 0;
  if (s.cu_seqlens_q == nullptr) {
    found.batch = row / s.seqlen_q;
    found.position = i = row - found.batch * s.seqlen_q;
  } else {
    found.batch = sequence_of_row(s, row, __shfl_sync(0xffffffffu, row, 0));
    found.position = row;
  }
  if (row >= p.rows || found.batch >= s.batch) return found;
  if (s.cu_seqlens_q != nullptr) i = row - s.cu_seqlens_q[found.batch];
  if (s.seqused_q != nullptr) rows = min(rows, s.seqused_q[found.batch]);
  const int64_t key = int64_t{p.positions[found.batch]} + i;
  if (i >= 0 && i < rows && key >= 0 && key < s.seqlen_k) found.key = static_cast<int>(key);
  return found;
}

// The first element of the key's row of a head in the cache.
__device__ inline int64_t cache_element(const AppendParams& p, const AppendTensor& tensor,
                                        const NewRow& row, int head) {
  int outer = row.batch, at = row.key;
  if (p.pages.table != nullptr) {
    const PagePlace place = page_place(p.pages, row.batch, head, p.sequences.seqlen_k, row.key);
    outer = page_of(p.pages, place);
    at = place.row;
  }
  return outer * tensor.to_outer + at * tensor.to_seqlen + head * tensor.to_head;
}

// A row of cos or sin.
__device__ inline const void* factors_of(const RotaryParams& rotary, const void* data, int key) {
  const int64_t first = int64_t{min(key, rotary.rows - 1)} * rotary.half;
  return static_cast<const char*>(data) + first * (rotary.type == FloatType::kF32 ? 4 : 2);
}

template <Element kElement>
__device__ inline float element_at(const uint16_t* row, int column) {
  return unpack_lower<kElement>(row[column]);
}

// (x, y) of a pair becomes (x cos - y sin, y cos + x sin), in f32, rounded once. `row`: the new
// key's, of which `piece` is columns `first` on.
template <Element kElement>
__device__ inline void turn(const RotaryParams& rotary, const uint16_t* row, int first, int key,
                            uint32_t (&piece)[4]) {
  const void* cosines = factors_of(rotary, rotary.cos, key);
  const void* sines = factors_of(rotary, rotary.sin, key);
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    const int column = first + 2 * word;
    if (column >= 2 * rotary.half) continue;
    float lower = unpack_lower<kElement>(piece[word]), upper = unpack_upper<kElement>(piece[word]);
    if (rotary.interleaved) {
      const float cosine = load_float(cosines, rotary.type, column / 2);
      const float sine = load_float(sines, rotary.type, column / 2);
      const float x = lower, y = upper;
      lower = x * cosine - y * sine;
      upper = y * cosine + x * sine;
    } else {
      const auto turned = [&](int at, float own) {
        const bool is_first = at < rotary.half;
        const int pair = is_first ? at : at - rotary.half;
        const float other = element_at<kElement>(row, is_first ? at + rotary.half : pair);
        const float cosine = load_float(cosines, rotary.type, pair);
        const float sine = load_float(sines, rotary.type, pair);
        return is_first ? own * cosine - other * sine : own * cosine + other * sine;
      };
      lower = turned(column, lower);
      upper = turned(column + 1, upper);
    }
    piece[word] = pack<kElement>(lower, upper);
  }
}

template <Element kElement>
__device__ inline void move_piece(const AppendParams& p, const NewRow& row, int index) {
  const int pieces_of_k = p.heads_kv * p.k.pieces;
  const bool is_key = index < pieces_of_k;
  const AppendTensor& tensor = is_key ? p.k : p.v;
  if (!is_key) index -= pieces_of_k;
  const int head = index / tensor.pieces, first = (index - head * tensor.pieces) * kAppendPiece;
  const int outer = p.sequences.cu_seqlens_q == nullptr ? row.batch : 0;
  const uint16_t* from = static_cast<const uint16_t*>(tensor.from) + outer * tensor.from_batch +
                         row.position * tensor.from_seqlen + head * tensor.from_head;
  const uint4 read = *reinterpret_cast<const uint4*>(from + first);
  uint32_t piece[4] = {read.x, read.y, read.z, read.w};
  if (is_key && p.rotary.cos != nullptr) turn<kElement>(p.rotary, from, first, row.key, piece);
  uint16_t* to = static_cast<uint16_t*>(tensor.to) + cache_element(p, tensor, row, head) + first;
  *reinterpret_cast<uint4*>(to) = uint4{piece[0], piece[1], piece[2], piece[3]};
}

}  // namespace append

// CTAs take rows_per_cta rows each, or ctas_per_row of them a row.
template <Element kElement>
__global__ void __launch_bounds__(kAppendThreads)
    append_rows(const __grid_constant__ AppendParams p) {
  using namespace append;
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const int thread = static_cast<int>(threadIdx.x), cta = static_cast<int>(blockIdx.x);
  const int first = cta / p.ctas_per_row, part = cta - first * p.ctas_per_row;
  const int row_of_cta = p.ctas_per_row > 1 ? 0 : thread / p.pieces;
  const int index = part * kAppendThreads + thread - row_of_cta * p.pieces;
  const NewRow row = find_row(p, first * p.rows_per_cta + row_of_cta);
  if (row_of_cta < p.rows_per_cta && index < p.pieces && row.key >= 0) {
    move_piece<kElement>(p, row, index);
  }
}

}  // namespace fa4
