// The AMX path's logic on the scalar model of its tiles and on plain vectors: for any machine.
#include "cpu/isa/amx_loop.h"
#include "cpu/isa/model_tiles.h"
#include "cpu/isa/vec_plain.h"

namespace fa4::internal {

void run_tile_amx_model(TileJob& job) { AmxLoop<ModelTiles, PlainVec, kBf16Exp2Degree>(job).run(); }

}  // namespace fa4::internal
