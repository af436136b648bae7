// The one parameter of the kernel that appends to caches. Filled on the host at each call; read as
// a __grid_constant__. Shared by host and device.
#pragma once

#include "kernels/forward/params.h"

namespace fa4 {

// New keys, or values, and where they go; strides in elements. A dense cache's outer dimension is
// the batch, a paged one's the pages.
struct AppendTensor {
  const void* from;
  int64_t from_batch;  // 0 where queries are packed
  int64_t from_seqlen;
  int64_t from_head;
  void* to;
  int64_t to_outer;
  int64_t to_seqlen;
  int64_t to_head;
  int32_t pieces;  // of a row of one head
  // The descales of a cache of bytes: f32, by batch (stride 0 where pages have them), block of keys
  // or page, and head; null: all are 1.
  const float* descale;
  int64_t descale_batch;
  int64_t descale_block;
  int64_t descale_head;
};

// Pairs of a key's first 2 half elements that are turned by row j of cos and sin, j being its
// position.
struct RotaryParams {
  const void* cos;  // (rows, half), of `type`; or null: none is
  const void* sin;
  int32_t half;
  int32_t rows;
  FloatType type;
  int32_t interleaved;  // pairs (2 i, 2 i + 1); else (i, i + half)
};

struct AppendParams {
  AppendTensor k, v;
  SequenceParams sequences;  // the queries' side; seqlen_k is a sequence's room
  PageParams pages;          // of which k and v say nothing here
  RotaryParams rotary;
  const int32_t* positions;  // (batch) keys that each sequence has before
  int32_t heads_kv;
  int32_t page_descales;  // a page's number finds its descale; else a key's shifted right by:
  int32_t descale_shift;
  int32_t rows;          // of all sequences
  int32_t pieces;        // of a row, all heads, k and v
  int32_t rows_per_cta;  // where a CTA has threads for several
  int32_t ctas_per_row;  // where it has not for one
};

}  // namespace fa4
