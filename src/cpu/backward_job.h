// What the tiled backward's paths share: one block of query rows against one block of keys.
//
// As in tile_job.h: the plain driver (tiled_backward.cc, built for any x86-64) packs, waits and
// finishes; run_backward_block of a path does the work between. Only plain data and functions
// defined elsewhere stand here.
#pragma once

#include <cstdint>

#include "cpu/tile_job.h"

namespace fa4::internal {

// A unit is 32 bits: one float, or two bf16. Operands of products are rows of units, or panels of
// `lanes` rows (columns) side by side, unit after unit, as KvBlock describes them. AMX: rows lie in
// tiles (tile_places.h).
struct BackwardJob {
  int num_rows;        // queries of the block
  int tile_m, tile_n;  // rows and keys that there is room for; tile_m is even
  int head_dim;        // elements of packed q and k rows
  int head_dim_v;      // of v and dout rows
  int dq_columns;      // columns of a row of the sums for q and k: whole vectors
  int dv_columns;      // for v
  int exp2_degree;
  bool in_double;        // f32: q, dout, k and v are doubles, a unit each
  float scale_log2;      // times a product: the score in powers of two
  float scale_log2_low;  // f32: what scale_log2, softcap on: softcap_log2, lacks
  double softcap_scale;  // as in TileJob
  float softcap_log2;
  bool wants_dq, wants_dkv;
  int64_t first_key;       // of the block
  const RowRange* ranges;  // tile_m: what a row sees; none for one whose lse is -inf or that is not
  const float* lse_log2;   // tile_m
  const float* lse_log2_low;
  const float* delta;
  const float* delta_low;
  const void* q;         // num_rows rows along head_dim
  const void* dout;      // along head_dim_v
  const void* q_panels;  // panels of columns along tile_m rows; AMX: columns as rows
  const void* dout_panels;
  const void* k;         // panels of keys along head_dim
  const void* v;         // panels of keys along head_dim_v
  const void* k_panels;  // panels of columns along tile_n keys
  float* s;              // tile_m x s_stride: scores; f32: then probabilities
  float* dp;             // the same: their gradients; f32: then those of the scores
  float* s_low;          // f32: what the sums of s lack
  float* dp_low;
  int s_stride;        // AMX: 32, and s and dp have room for two items of 32 x 32
  uint32_t* p_pairs;   // bf16: probabilities of two rows as pairs, tile_m / 2 x s_stride
  uint32_t* ds_pairs;  // bf16: likewise the gradients of scores
  int64_t pairs_step;  // AMX: from pairs of 32 keys to the next; 0: they take each other's place
  void* ds;            // bf16: the same row after row, tile_m x tile_n
  float* dq;           // tile_m x dq_columns, sums over all blocks of keys
  float* dk;           // tile_n x dq_columns, sums over all blocks of queries; AMX: place_of_sum
  float* dv;           // tile_n x dv_columns; AMX: place_of_sum
  void (*begin_dq)(BackwardJob& job);  // returns when it is this block's turn to add to dq
  void* context;
};

using RunBackwardBlock = void (*)(BackwardJob& job);
void run_backward_block_avx2(BackwardJob& job);
void run_backward_block_avx512(BackwardJob& job);
void run_backward_block_avx512_bf16(BackwardJob& job);
void run_backward_block_amx(BackwardJob& job);
void run_backward_block_amx_model(BackwardJob& job);

}  // namespace fa4::internal
