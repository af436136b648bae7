// The AMX path's logic on the scalar model of its tiles and on plain vectors: for any machine.
#include "cpu/isa/amx_backward.h"
#include "cpu/isa/amx_loop.h"
#include "cpu/isa/model_tiles.h"
#include "cpu/isa/vec_plain.h"

namespace fa4::internal {

void run_backward_block_amx_model(BackwardJob& job) {
  AmxBackwardLoop<ModelTiles, PlainVec>(job).run();
}

void run_tile_amx_model(TileJob& job) { run_amx<ModelTiles, PlainVec>(job); }

}  // namespace fa4::internal
