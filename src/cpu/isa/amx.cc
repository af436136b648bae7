// AMX: tdpbf16ps multiplies tiles of 16 x 32 bf16; the softmax runs on AVX-512.
#include "cpu/isa/amx_backward.h"
#include "cpu/isa/amx_loop.h"
#include "cpu/isa/amx_tiles.h"
#include "cpu/isa/peak_loops.h"
#include "cpu/isa/vec_avx512_bf16.h"

namespace fa4::internal {

void run_backward_block_amx(BackwardJob& job) { AmxBackwardLoop<AmxTiles, AmxVec>(job).run(); }

void run_tile_amx(TileJob& job) { run_amx<AmxTiles, AmxVec>(job); }

float peak_loop_amx(int64_t rounds) {
  alignas(64) float zeros[32 * 32] = {};
  AmxTiles tiles;
  tiles.load_sums(zeros, 32 * 4);
  tiles.load_factors(reinterpret_cast<const uint32_t*>(zeros), 64);
  for (int64_t r = 0; r < rounds; ++r) {
    for (int i = 0; i < 16; ++i) tiles.multiply_loaded();
  }
  tiles.store_sums(zeros, 32 * 4);
  return zeros[0];
}

}  // namespace fa4::internal
