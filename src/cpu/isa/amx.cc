// AMX: tdpbf16ps multiplies tiles of 16 x 32 bf16; the softmax runs on AVX-512.
#include "cpu/isa/amx_loop.h"
#include "cpu/isa/amx_tiles.h"
#include "cpu/isa/vec_avx512_bf16.h"

namespace fa4::internal {

void run_tile_amx(TileJob& job) { AmxLoop<AmxTiles, Avx512Bf16Vec, kBf16Exp2Degree>(job).run(); }

}  // namespace fa4::internal
