// One tile of query rows: set up, run, finished. Heads are numbered b * heads_kv + head of k.
#pragma once

#include "cpu/tile_context.h"
#include "cpu/tile_job.h"

namespace fa4::internal {

// Part `part` of the keys of the only tiles of `count` heads of a sequence from `first_head` on,
// their sums into the workspace.
void run_one_part(const TileContext& context, int64_t first_head, int count, int64_t part,
                  int64_t slot, RunTile run_tile);
// Row `row` of that tile, from the sums of its parts.
void finish_parts(const TileContext& context, int64_t head, int64_t row, int64_t slot);

// Rows [tile * tile_m, ...) of all query heads of `head`: row r is query r / group of query head
// r % group.
void run_one_tile(const TileContext& context, int64_t head, int64_t index_in_wave, int64_t tile,
                  int64_t slot, RunTile run_tile);

}  // namespace fa4::internal
