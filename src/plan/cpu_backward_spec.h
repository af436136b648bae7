// Which CPU path runs a backward, with which tiles and how many threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "plan/cpu_kernel_spec.h"
#include "plan/steps.h"

namespace fa4::internal {

// Tiles do not depend on the number of threads, nor on the lengths of sequences: the bits depend on
// them.
struct CpuBackwardSpec {
  CpuIsa isa = CpuIsa::kScalar;
  int tile_m = 0;  // rows of a block: queries of one key head, all query heads of its group
  int tile_n = 0;  // keys of a block, which is a task
  int num_threads = 1;
  int heads_per_wave = 0;  // key heads that are under way at once; scalar: 0
};

// Whether `isa` has a backward for `dtype`.
bool isa_supports_backward(CpuIsa isa, DType dtype);

// As plan_cpu, for the backward.
CpuBackwardSpec plan_cpu_backward(const AttentionProblem& problem, const DeviceSpec& device,
                                  int num_threads, std::optional<CpuIsa> forced = {});

// Where a path keeps its data, in bytes; every part begins at a multiple of 256.
//
// Per thread: keys and values of one block, packed, the sums of their gradients, and a block of
// scores with what becomes of them. Per head of a wave: its blocks of rows, packed, each with its
// statistics and the sums of dq, then what the tasks tell each other.
struct CpuBackwardScratch {
  int64_t row_bytes = 0;          // of an element of packed rows: 2, 4, or 8 of f32 inputs
  int64_t head_dim_padded = 0;    // elements of a packed row of q and k
  int64_t head_dim_v_padded = 0;  // of v and dout
  int64_t dq_columns = 0;         // of a row of sums for q and k
  int64_t dv_columns = 0;         // for v
  int64_t s_stride = 0;           // of a row of scores; not a multiple of a page of the L1 cache
  int64_t num_m_blocks = 0;       // of the longest sequence
  // Of a thread.
  size_t k = 0, v = 0, k_panels = 0, dk = 0, dv = 0, s = 0, dp = 0, s_low = 0, dp_low = 0,
         p_pairs = 0, ds_pairs = 0, ds = 0, dk_totals = 0, dv_totals = 0;  // totals: of f32
  size_t bytes_per_thread = 0;
  // Of a block of rows.
  size_t q = 0, dout = 0, q_panels = 0, dout_panels = 0, lse = 0, lse_low = 0, row_delta = 0,
         delta_low = 0, ranges = 0, dq = 0, dq_totals = 0;
  size_t bytes_per_block = 0;
  // Of a head, behind its blocks: 32-bit words, one a block.
  size_t turn = 0;       // the block of keys that adds to dq next
  size_t nonfinite = 0;  // 1: q, 2: dout hold values that are not finite
  size_t bytes_per_head = 0;
  size_t threads_bytes = 0, heads_bytes = 0;
};
CpuBackwardScratch cpu_backward_scratch(const AttentionProblem& problem,
                                        const CpuBackwardSpec& spec);

// f64, shaped like lse: rowsum(dout o out) - dlse of each row.
inline constexpr std::string_view kDelta = "delta";
inline constexpr std::string_view kThreads = "threads";
inline constexpr std::string_view kHeads = "heads";

WorkspaceLayout cpu_backward_workspace(const AttentionProblem& problem,
                                       const CpuBackwardSpec& spec);

}  // namespace fa4::internal
