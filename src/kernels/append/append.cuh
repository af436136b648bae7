// New keys and values into a cache, in place: a thread moves 16 bytes, which it turns by its key's
// position where they are of a pair, and makes 8 of for a cache of e4m3.
//
// Index tensors cannot be checked on the host: a row whose key lies outside of its sequence's room
// is not written, and what is read of pages and factors is clamped.
#pragma once

#include "kernels/append/params.h"
#include "kernels/append/quotient_math.h"
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

// A key's row of a head in the cache.
struct CacheRow {
  int64_t element;  // its first
  float descale;
};
template <bool kBytes>
__device__ inline CacheRow cache_row(const AppendParams& p, const AppendTensor& tensor,
                                     const NewRow& row, int head) {
  int outer = row.batch, at = row.key;
  if (p.pages.table != nullptr) {
    const PagePlace place =
        page_place(p.pages, page_entries(p.pages, row.batch, head), p.sequences.seqlen_k, row.key);
    outer = page_of(p.pages, place);
    at = place.row;
  }
  CacheRow found{outer * tensor.to_outer + at * tensor.to_seqlen + head * tensor.to_head, 1.0f};
  if (kBytes && tensor.descale != nullptr) {
    const int block = p.page_descales ? outer : row.key >> p.descale_shift;
    found.descale = tensor.descale[row.batch * tensor.descale_batch + block * tensor.descale_block +
                                   head * tensor.descale_head];
  }
  return found;
}

// A row of cos or sin.
__device__ inline const void* factors_of(const RotaryParams& rotary, const void* data, int key) {
  const int64_t first = int64_t{min(key, rotary.rows - 1)} * rotary.half;
  return static_cast<const char*>(data) + first * (rotary.type == FloatType::kF32 ? 4 : 2);
}

// (x, y) of a pair becomes (x cos - y sin, y cos + x sin). `row`: the new key's, of which `piece`
// is columns `first` on.
template <Element kElement>
__device__ inline void turn(const RotaryParams& rotary, const uint16_t* row, int first, int key,
                            float (&piece)[kAppendPiece]) {
  const void* cosines = factors_of(rotary, rotary.cos, key);
  const void* sines = factors_of(rotary, rotary.sin, key);
#pragma unroll
  for (int i = 0; i < kAppendPiece; i += 2) {
    const int column = first + i;
    if (column >= 2 * rotary.half) continue;
    if (rotary.interleaved) {
      const float cosine = load_float(cosines, rotary.type, column / 2);
      const float sine = load_float(sines, rotary.type, column / 2);
      const float x = piece[i], y = piece[i + 1];
      piece[i] = x * cosine - y * sine;
      piece[i + 1] = y * cosine + x * sine;
      continue;
    }
    const auto turned = [&](int at, float own) {
      const bool is_first = at < rotary.half;
      const int pair = is_first ? at : at - rotary.half;
      const float other = unpack_lower<kElement>(row[is_first ? at + rotary.half : pair]);
      const float cosine = load_float(cosines, rotary.type, pair);
      const float sine = load_float(sines, rotary.type, pair);
      return is_first ? own * cosine - other * sine : own * cosine + other * sine;
    };
    piece[i] = turned(column, piece[i]);
    piece[i + 1] = turned(column + 1, piece[i + 1]);
  }
}

__device__ inline uint32_t four_bytes(const float (&x)[kAppendPiece], int first, float descale) {
  const auto two = [&](int i) {
    return ptx::cvt_rn_satfinite_e4m3x2(odd_quotient(x[i + 1], descale),
                                        odd_quotient(x[i], descale));
  };
  return two(first) | static_cast<uint32_t>(two(first + 2)) << 16;
}

template <Element kElement, bool kBytes>
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
  uint32_t words[4] = {read.x, read.y, read.z, read.w};
  const bool turns = is_key && first < 2 * p.rotary.half;
  float piece[kAppendPiece];
  if (kBytes || turns) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      piece[2 * i] = unpack_lower<kElement>(words[i]);
      piece[2 * i + 1] = unpack_upper<kElement>(words[i]);
    }
    if (turns) turn<kElement>(p.rotary, from, first, row.key, piece);
  }
  const CacheRow cache = cache_row<kBytes>(p, tensor, row, head);
  if constexpr (kBytes) {
    auto* to = static_cast<char*>(tensor.to) + cache.element + first;
    *reinterpret_cast<uint2*>(to) =
        uint2{four_bytes(piece, 0, cache.descale), four_bytes(piece, 4, cache.descale)};
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (turns && first + 2 * i < 2 * p.rotary.half) {
        words[i] = pack<kElement>(piece[2 * i], piece[2 * i + 1]);
      }
    }
    auto* to = static_cast<uint16_t*>(tensor.to) + cache.element + first;
    *reinterpret_cast<uint4*>(to) = uint4{words[0], words[1], words[2], words[3]};
  }
}

}  // namespace append

// CTAs take rows_per_cta rows each, or ctas_per_row of them a row. kBytes: into a cache of e4m3.
template <Element kElement, bool kBytes>
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
    move_piece<kElement, kBytes>(p, row, index);
  }
}

}  // namespace fa4
