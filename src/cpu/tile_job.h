// What the tiled paths share: one tile of query rows against all the blocks of keys it sees.
//
// The plain driver (tiled_forward.cc, built for any x86-64) packs and finishes; run_tile of a path,
// built with that path's instructions, does the work between. Only plain data and functions defined
// elsewhere stand here: an inline function would be built once per path under one name, and the
// linker could keep the one that this machine cannot run.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fa4::internal {

constexpr int kDirectBlock = 64;  // keys of a block of a direct loop
constexpr int kDirectRows = 16;   // of its tile at most

// The keys of one row, [begin, end); begin >= end: none.
struct RowRange {
  int64_t begin;
  int64_t end;
};

// What the numbers of a block's keys and of their values are times, tile_n floats each; NULL: 1.
struct BlockDescales {
  const float* keys = nullptr;
  const float* values = nullptr;
};

// Packed keys and values of tile_n keys; what lies past the last key is 0.
//   k: panels of `lanes` keys; in a panel, for every unit (pair) of head_dim, that unit of all
//   keys. v: panels of `lanes` columns; in a panel, for every unit (pair) of keys, that unit of all
//      columns. Values that are not finite are stored as 0, and has_nonfinite is set; so are
//      descales of values.
struct KvBlock {
  const void* k;
  const void* v;
  bool has_nonfinite;
  BlockDescales descales;
};

// What a direct loop reads: rows of keys and values where they lie.
enum class KeyType { kF32, kF16, kBF16, kE4M3 };
struct KeyRows {
  const void* k[kDirectBlock];
  const void* v[kDirectBlock];
  int count;
  bool has_nonfinite_descale;  // of a value: it is stored as 0
  BlockDescales descales;      // NULL, or these
  float key_descales[kDirectBlock], value_descales[kDirectBlock];
};

struct TileJob;
using LocateKeys = void (*)(const TileJob& job, int64_t block, KeyRows& rows);
using LoadBlock = KvBlock (*)(TileJob& job, int64_t block);

struct TileJob {
  int num_rows;  // of the tile
  int tile_n;
  int head_dim;    // padded
  int head_dim_v;  // padded
  int lanes;       // of the path
  int exp2_degree;
  float rescale_threshold;
  bool compensated;        // f32: scores are summed with compensation
  bool has_descales;       // keys and values come with descales
  double softcap_scale;    // softcap on: times a product: 2 log2(e) times the argument of tanh
  float scale_log2;        // times a product: the score in powers of two; > 0
  float softcap_log2;      // softcap on: times tanh: the score in powers of two; 0: off
  const RowRange* ranges;  // num_rows; neither end falls from a row to the next
  int64_t first_block, end_block;
  LoadBlock load_block;
  bool blocks_persist;  // what load_block returned stays valid after its next call
  void* context;        // of load_block
  const void* q;        // num_rows packed rows
  float* s;             // tile_m x tile_n; AMX: 32 x 64, 32 columns behind the others
  void* p;              // tile_m x tile_n, bf16 or float; AMX: two items of 32 x tile_n
  float* o;             // tile_m x head_dim_v, the sums
  float* row_max;       // num_rows
  float* row_sum;       // num_rows x lanes, partial sums
  // f32, else NULL: what sums lack, NaN beside one that is not finite; and of a tile loop, those of
  // values that are not in o yet.
  float *o_low, *row_sum_low, *o_plain;
  // Direct loops: q is floats, head_dim padded to lanes; tile_n is kDirectBlock.
  LocateKeys locate_keys;
  int64_t last_block;  // of the keys that it will be given, from which it may ask for lines early
  KeyType key_type;
  int key_dim, value_dim;  // not padded
  float* values;           // of a block, as floats: panels of `lanes` columns
};

// Adds p * v of the values that packing replaced by 0, for those of the rows [first_row, end_row)
// that see them; `p` points to the probabilities of first_row.
void add_nonfinite_values(TileJob& job, int64_t block, int first_row, int end_row, const void* p);

using RunTile = void (*)(TileJob& job);
void run_tile_avx2(TileJob& job);
void run_tile_avx512(TileJob& job);
void run_tile_avx512_bf16(TileJob& job);
void run_tile_amx(TileJob& job);
void run_tile_amx_model(TileJob& job);
// The direct loops, for tiles of few rows.
void run_rows_avx2(TileJob& job);
void run_rows_avx512(TileJob& job);
void run_e4m3_rows_avx512_vbmi(TileJob& job);

}  // namespace fa4::internal
