// How a CPU path's scratch is cut up: a pure function of the plan.
#include <algorithm>

#include "core/rounding.h"
#include "plan/cpu_kernel_spec.h"
#include "plan/cpu_tuning.h"
#include "plan/steps.h"

namespace fa4::internal {

namespace {

// Elements of rows, and a packed block of keys.
CpuScratch block_sizes(const AttentionProblem& p, const CpuKernelSpec& spec,
                       const CpuPacking& packing) {
  CpuScratch scratch;
  const int64_t tile_n = spec.tile_n;
  scratch.head_dim_padded =
      round_up(p.head_dim, spec.direct ? packing.lanes : packing.head_dim_step);
  scratch.head_dim_v_padded = round_up(p.head_dim_v, packing.head_dim_v_step);
  scratch.element_bytes = 4 / packing.pair;
  scratch.num_n_blocks = ceil_div(p.seqlen_k, tile_n);
  scratch.k_block_bytes = static_cast<size_t>(
      round_up(tile_n * scratch.head_dim_padded * scratch.element_bytes, kWorkspaceAlignment));
  const int64_t v_rows = spec.direct ? tile_n + 1 : tile_n;  // a direct loop's panels lie apart
  scratch.v_block_bytes = static_cast<size_t>(
      round_up(v_rows * scratch.head_dim_v_padded * scratch.element_bytes, kWorkspaceAlignment));
  if (p.has_descales) {
    scratch.descale_bytes = static_cast<size_t>(round_up(2 * tile_n * 4, kWorkspaceAlignment));
  }
  return scratch;
}

void lay_out_thread(const AttentionProblem& p, const CpuKernelSpec& spec, const CpuPacking& packing,
                    CpuScratch& scratch) {
  const int64_t tile_m = spec.tile_m, tile_n = spec.tile_n;
  Parts thread;
  scratch.q_offset = thread.add(tile_m * scratch.head_dim_padded * scratch.element_bytes);
  // In tiles: a panel of scores, and the probabilities of two blocks, are under way.
  const bool tiled = packing.tile_rows > 0;
  const int64_t p_rows = tiled ? 2 * packing.tile_rows : tile_m;
  scratch.s_offset =
      thread.add(tiled ? packing.tile_rows * kPanelColumns * 4 : tile_m * tile_n * 4);
  // Float probabilities take the place of their scores.
  scratch.p_offset =
      packing.pair == 1 ? scratch.s_offset : thread.add(p_rows * tile_n * scratch.element_bytes);
  scratch.o_offset = thread.add(tile_m * scratch.head_dim_v_padded * 4);
  const bool compensated = p.dtype == DType::kF32;
  if (compensated) {
    scratch.o_low_offset = thread.add(tile_m * scratch.head_dim_v_padded * 4);
    if (!spec.direct) scratch.o_plain_offset = thread.add(tile_m * scratch.head_dim_v_padded * 4);
  }
  const int64_t partial_sums = (compensated ? 2 : 1) * packing.lanes;
  scratch.stats_offset = thread.add(tile_m * (4 * (1 + partial_sums) + 2 * 8));
  if (spec.heads_per_wave == 0) {
    scratch.kv_offset = thread.add(
        static_cast<int64_t>(spec.direct ? scratch.v_block_bytes : scratch.block_bytes()));
  }
  if (spec.split_keys > 0) {
    scratch.num_parts = ceil_div(p.seqlen_k, spec.split_keys);
    scratch.sums_stride = p.head_dim_v + 2;
    scratch.whole_offset = thread.add(tile_m * 2 * 8);
    scratch.sums_offset = thread.add(tile_m * scratch.sums_stride * 8);
  }
  scratch.bytes_per_thread = thread.end();
}

}  // namespace

CpuScratch cpu_scratch(const AttentionProblem& p, const CpuKernelSpec& spec) {
  if (spec.isa == CpuIsa::kScalar) return {};
  const CpuPacking packing = cpu_packing(spec.isa);
  CpuScratch scratch = block_sizes(p, spec, packing);
  lay_out_thread(p, spec, packing, scratch);
  if (spec.heads_per_wave > 0) {
    Parts head;
    head.add(scratch.num_n_blocks * static_cast<int64_t>(scratch.block_bytes()));
    head.add(scratch.num_n_blocks);
    scratch.bytes_per_head = head.end();
  }
  scratch.threads_bytes = static_cast<size_t>(spec.num_threads) *
                          static_cast<size_t>(spec.heads_together) * scratch.bytes_per_thread;
  scratch.heads_bytes = static_cast<size_t>(spec.heads_per_wave) * scratch.bytes_per_head;
  if (spec.parts_are_tasks) {
    scratch.parts_bytes = static_cast<size_t>(
        round_up(p.batch * p.heads_kv * scratch.num_parts * spec.tile_m * scratch.sums_stride * 4,
                 kWorkspaceAlignment));
  }
  scratch.total_bytes = scratch.threads_bytes + scratch.heads_bytes + scratch.parts_bytes;
  return scratch;
}

size_t cpu_workspace_bytes(const AttentionProblem& problem, const CpuKernelSpec& spec) {
  return cpu_scratch(problem, spec).total_bytes;
}

}  // namespace fa4::internal
