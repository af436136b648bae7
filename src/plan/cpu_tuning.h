// Tile shapes of the CPU paths: rows of data, each with its reason and measurement.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "plan/cpu_kernel_spec.h"

namespace fa4::internal {

struct CpuTuning {
  CpuIsa isa;
  int64_t head_dim;  // up to this one
  int tile_m;        // rows of a task, a multiple of row_step
  int tile_n;        // keys of a block, a multiple of the path's column panel
  int row_step;      // rows that the matrix unit takes at once
  int least_tile_m;  // no task is made smaller for the sake of more tasks
  const char* why;
};
const CpuTuning& cpu_tuning(CpuIsa isa, int64_t head_dim);

// How the packed keys and values of a path lie.
struct CpuPacking {
  int lanes;          // keys (k) or columns (v) side by side
  int pair;           // elements of one 32-bit unit: 2 bf16 or 1 float
  int head_dim_step;  // packed rows are padded with zeros to this many elements
  int head_dim_v_step;
  int tile_rows;  // q and p lie in tiles of this many rows x 32 elements; 0: row after row
};
CpuPacking cpu_packing(CpuIsa isa);

// The path that runs few rows where they lie, for a device whose best path is `isa`; nothing: none.
std::optional<CpuIsa> direct_path(CpuIsa isa);

// Scores that a path with tiles keeps: a panel of tile_rows x this.
inline constexpr int kPanelColumns = 64;

// Keys of a block of a direct loop: their values as floats stay in L1.
inline constexpr int kDirectKeys = 64;
// With as many heads of one tile a thread, their parts need not be tasks, unless heads lie side by
// side in a key's row. Read one after the other, 16384 keys of 128 took on one thread of an AMD
// EPYC (Zen 4), in ms, against their parts together: 8 heads of e4m3 11.3 and 6.7, of bf16 8.0 and
// 7.9; 32 heads of e4m3 35.6 and 24.4, of bf16 29.4 and 22.1 (medians of three runs in turns).
inline constexpr int64_t kHeadsPerThread = 4;
// Key heads that a task of parts takes at most, while each thread finds this many tasks.
inline constexpr int kMostHeadsTogether = 8;
inline constexpr int64_t kPartsPerThread = 4;
// Up to this many rows of a key head make a direct loop: decoding, also of a few queries at once.
inline constexpr int64_t kMostDirectRows = 16;
// Keys of a part where the plan decides: the longest cache is work for all threads, and the sums of
// 16 rows are 3 % of the keys and values that they are of.
inline constexpr int64_t kDecodeSplitKeys = 1024;

inline constexpr int64_t kTasksPerThread = 32;  // between two barriers: under 3 % idle at the end
// Packed heads at most, beyond the first; sums of the parts of heads that lie side by side.
inline constexpr size_t kSharedBytes = size_t{256} << 20;

}  // namespace fa4::internal
