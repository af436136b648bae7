// One tile of query rows: set up, run, finished. Heads are numbered b * heads_kv + head of k.
#pragma once

#include "cpu/tile_job.h"
#include "plan/cpu_kernel_spec.h"
#include "plan/cpu_tuning.h"
#include "problem/forward_args.h"

namespace fa4::internal {

// What all tiles of one call share.
struct TileContext {
  TileContext(const AttentionProblem& problem, const CpuKernelSpec& spec, const ForwardArgs& args);

  // `index`: of the heads that a task takes together.
  char* thread_scratch(int64_t slot, int index = 0) const {
    return workspace +
           static_cast<size_t>(slot * spec.heads_together + index) * scratch.bytes_per_thread;
  }
  char* shared_head(int64_t index_in_wave) const {
    return workspace + static_cast<size_t>(spec.num_threads) * scratch.bytes_per_thread +
           static_cast<size_t>(index_in_wave) * scratch.bytes_per_head;
  }

  // Whether an execution brings any.
  bool has_descales() const { return args.k_descale != nullptr || args.v_descale != nullptr; }

  // The sums of a part of a head's keys, tile_m rows.
  float* part_sums(int64_t head, int64_t part) const {
    return reinterpret_cast<float*>(workspace + scratch.threads_bytes + scratch.heads_bytes) +
           (head * scratch.num_parts + part) * spec.tile_m * scratch.sums_stride;
  }

  const AttentionProblem& problem;
  const CpuKernelSpec& spec;
  const ForwardArgs& args;
  CpuScratch scratch;
  CpuPacking packing;
  char* workspace;
  float q_sign;     // 1; -1 for a negative scale, 0 for a scale of 0
  float abs_scale;  // what is left of the scale: > 0
};

// Packs keys and values of one block of `head` into the shared head `index_in_wave`.
void pack_shared_block(const TileContext& context, int64_t head, int64_t index_in_wave,
                       int64_t block);

// Part `part` of the keys of the only tiles of `count` heads of a sequence from `first_head` on,
// their sums into the workspace.
void run_one_part(const TileContext& context, int64_t first_head, int count, int64_t part,
                  int64_t slot, RunTile run_tile);
// Row `row` of that tile, from the sums of its parts.
void finish_parts(const TileContext& context, int64_t head, int64_t row, int64_t slot);

// Rows [tile * tile_m, ...) of all query heads of `head`: row r is query r / group of query head
// r % group.
void run_one_tile(const TileContext& context, int64_t head, int64_t index_in_wave, int64_t tile,
                  int64_t slot, RunTile run_tile);

}  // namespace fa4::internal
