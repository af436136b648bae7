// The rows of a tile: queries in, out and lse back. Row r of a head of k is query r / group of
// query head r % group.
#pragma once

#include "cpu/key_source.h"
#include "cpu/row_sums.h"

namespace fa4::internal {

inline bool is_empty(const RowRange& range) { return range.begin >= range.end; }

// Packs the queries from `first_row` on, finds what each row sees and the blocks of all of them.
void load_rows(const KeySource& source, int64_t first_row, TileJob& job);

// The sums of row `r` of a tile that has run.
RowSums sums_of(const TileJob& job, int r);

// Stores out and lse of row `row`, from its sums over all keys.
void finish_row_of(const KeySource& source, int64_t row, bool sees_keys, const RowSums& sums);
// Those of a tile that has run.
void finish_rows(const KeySource& source, int64_t first_row, const TileJob& job);

}  // namespace fa4::internal
