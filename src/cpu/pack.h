// Queries, keys and values as the matrix units want them (layouts: tile_job.h, KvBlock).
#pragma once

#include <cstdint>

#include "cpu/tensor_rows.h"
#include "plan/cpu_tuning.h"

namespace fa4::internal {

// Row after row of `padded` elements, bf16 or float, zeros behind head_dim; each times `sign`,
// which is 1, -1 or 0 (NaN and infinity times 0 stay NaN).
void pack_query(DType dtype, const void* q, int64_t offset, int64_t head_dim, int64_t padded,
                int pair, float sign, void* packed);

// What a block of keys is cut from: `count` keys from `first` on, of `tile_n` in the block.
struct BlockSource {
  DType dtype;
  const void* data;
  const TensorRows& rows;
  int64_t first;
  int count;
  int tile_n;
  int64_t dim;
  int64_t padded;
};

void pack_keys(const BlockSource& source, const CpuPacking& packing, void* packed);

// True when a value is not finite: it is packed as 0.
bool pack_values(const BlockSource& source, const CpuPacking& packing, void* packed);

}  // namespace fa4::internal
