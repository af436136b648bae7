#include "cpu/tiled_forward.h"

#include <algorithm>

#include "core/rounding.h"
#include "cpu/key_source.h"
#include "cpu/slots.h"
#include "cpu/tile.h"

namespace fa4::internal {

// Heads are taken in waves: all threads pack a wave's keys and values, then run its tiles, the
// longest first. A problem of one tile a head packs a block when its tile comes to it; where
// threads outnumber such tiles, the parts of their keys are tasks. Tasks are counted by the lengths
// of this execution, which the plan's maxima may exceed by far.
void tiled_forward(const AttentionProblem& p, const CpuKernelSpec& spec, const ForwardArgs& args,
                   ThreadPool& pool, RunTile run_tile) {
  const TileContext context(p, spec, args);
  const int64_t num_heads = p.batch * p.heads_kv;
  const int64_t rows = longest_queries(p, args) * p.group(), keys = longest_keys(p, args);
  const int64_t tiles = ceil_div(rows, spec.tile_m), blocks = ceil_div(keys, spec.tile_n);
  if (spec.parts_are_tasks) {
    const int64_t parts = ceil_div(keys, spec.split_keys);
    const int64_t together = spec.heads_together, groups = ceil_div(p.heads_kv, together);
    const int64_t tasks = p.batch * groups;  // of one part
    run_in_slots(pool, spec.num_threads, tasks * parts, [&](int64_t task, int64_t slot) {
      const int64_t b = task % tasks / groups, head = task % groups * together;
      run_one_part(context, b * p.heads_kv + head,
                   static_cast<int>(std::min(together, p.heads_kv - head)), task / tasks, slot,
                   run_tile);
    });
    run_in_slots(pool, spec.num_threads, num_heads * rows, [&](int64_t task, int64_t slot) {
      finish_parts(context, task / rows, task % rows, slot);
    });
    return;
  }
  const bool shared = spec.heads_per_wave > 0;
  const int64_t wave = shared ? spec.heads_per_wave : std::max<int64_t>(1, num_heads);
  for (int64_t first = 0; first < num_heads; first += wave) {
    const int64_t heads = std::min(wave, num_heads - first);
    if (shared) {
      run_in_slots(pool, spec.num_threads, heads * blocks, [&](int64_t task, int64_t) {
        pack_shared_block(context, first + task / blocks, task / blocks, task % blocks);
      });
    }
    run_in_slots(pool, spec.num_threads, heads * tiles, [&](int64_t task, int64_t slot) {
      const int64_t head = task % heads, tile = tiles - 1 - task / heads;
      run_one_tile(context, first + head, head, tile, slot, run_tile);
    });
  }
}

}  // namespace fa4::internal
