#include "cpu/tiled_backward.h"

#include <algorithm>

#include "core/rounding.h"
#include "cpu/backward_block.h"
#include "cpu/slots.h"

namespace fa4::internal {

void tiled_backward(const AttentionProblem& p, const CpuBackwardSpec& spec,
                    const BackwardArgs& args, const double* delta, ThreadPool& pool,
                    RunBackwardBlock run_block) {
  const BackwardContext context(p, spec, args, delta);
  const int64_t num_heads = p.batch * p.heads_kv;
  const int64_t m_blocks = ceil_div(longest_queries(p, args) * p.group(), spec.tile_m);
  const int64_t n_blocks = ceil_div(longest_keys(p, args), spec.tile_n);
  for (int64_t first = 0; first < num_heads; first += spec.heads_per_wave) {
    const int64_t heads = std::min<int64_t>(spec.heads_per_wave, num_heads - first);
    run_in_slots(pool, spec.num_threads, heads * m_blocks, [&](int64_t task, int64_t) {
      HeadBlocks(context, first + task % heads, task % heads).pack_rows(task / heads);
    });
    run_in_slots(pool, spec.num_threads, heads * n_blocks, [&](int64_t task, int64_t slot) {
      const HeadBlocks blocks(context, first + task % heads, task % heads);
      run_keys(blocks, task / heads, slot, run_block);
    });
    if (args.dq == nullptr) continue;
    run_in_slots(pool, spec.num_threads, heads * m_blocks, [&](int64_t task, int64_t) {
      HeadBlocks(context, first + task % heads, task % heads).store_dq(task / heads);
    });
  }
}

}  // namespace fa4::internal
