// AMX: tdpbf16ps multiplies tiles of 16 x 32 bf16; the softmax runs on AVX-512.
#include "cpu/isa/amx_backward.h"
#include "cpu/isa/amx_loop.h"
#include "cpu/isa/amx_tiles.h"
#include "cpu/isa/peak_loops.h"
#include "cpu/isa/vec_avx512_bf16.h"

namespace fa4::internal {

void run_backward_block_amx(BackwardJob& job) { AmxBackwardLoop<AmxTiles, AmxVec>(job).run(); }

void run_tile_amx(TileJob& job) { run_amx<AmxTiles, AmxVec>(job); }

// On numbers of both signs between 1/2 and 2: on zeros a core's clock is a quarter higher, which no
// attention reaches.
float peak_loop_amx(int64_t rounds) {
  alignas(64) uint32_t factors[16 * 16];
  uint32_t state = 1;
  for (uint32_t& pair : factors) {
    state = state * 1664525u + 1013904223u;
    pair = 0x3f803f80u ^ ((state ^ state >> 13) & 0x80ff80ffu);
  }
  alignas(64) float sums[32 * 32] = {};
  AmxTiles tiles;
  tiles.load_sums(sums, 32 * 4);
  tiles.load_factors(factors, 64);
  for (int64_t r = 0; r < rounds; ++r) {
    for (int i = 0; i < 16; ++i) tiles.multiply_loaded();
  }
  tiles.store_sums(sums, 32 * 4);
  return sums[0];
}

}  // namespace fa4::internal
