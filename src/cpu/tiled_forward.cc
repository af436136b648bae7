#include "cpu/tiled_forward.h"

#include <algorithm>
#include <atomic>

#include "cpu/tile.h"

namespace fa4::internal {
namespace {

// Runs body(task, slot) for tasks [0, count) on at most `slots` threads at once, each with a slot
// of its own: a slot is a thread's scratch, whatever the pool's size.
template <class Body>
void run_in_slots(ThreadPool& pool, int slots, int64_t count, const Body& body) {
  std::atomic<int64_t> next{0};
  pool.run(std::min<int64_t>(slots, count), [&](int64_t slot, int) {
    for (int64_t task = next.fetch_add(1, std::memory_order_relaxed); task < count;
         task = next.fetch_add(1, std::memory_order_relaxed)) {
      body(task, slot);
    }
  });
}

}  // namespace

// Heads are taken in waves: all threads pack a wave's keys and values, then run its tiles, the
// longest first. A problem of one tile a head packs a block when its tile comes to it.
void tiled_forward(const AttentionProblem& p, const CpuKernelSpec& spec, const ForwardArgs& args,
                   ThreadPool& pool, RunTile run_tile) {
  const TileContext context(p, spec, args);
  const int64_t num_heads = p.batch * p.heads_kv;
  const int64_t tiles = (p.seqlen_q * p.group() + spec.tile_m - 1) / spec.tile_m;
  const int64_t blocks = context.scratch.num_n_blocks;
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
