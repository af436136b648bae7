// Keys and values of one sequence and key head, block by block: packed, or where they lie.
#pragma once

#include "cpu/tensor_rows.h"
#include "cpu/tile_context.h"
#include "cpu/tile_job.h"

namespace fa4::internal {

struct KeySource {
  // `head`: b * heads_kv + head of k.
  KeySource(const TileContext& context, int64_t head);

  // Keys of a block.
  int count(int64_t block) const;
  // Into one packed block; returns whether a value is not finite.
  bool pack(int64_t block, char* to) const;
  // Those of a block's keys and values, 1 behind the last, the values' over value_unit(); one of a
  // value that is not finite becomes 0, and true is returned.
  bool load_descales(int64_t block, float* of_keys, float* of_values) const;
  // What sums over values are to be multiplied by: 1, or where every row that sees a key sees the
  // first one, or all have one descale, the mantissa of its value's, in [1, 2). A probability times
  // a power of two rounds to 16 bits as it does by itself, that of a row's only key exactly; times
  // a mantissa all of a row's that are alike would take the same error, and so would out.
  float value_unit() const;

  const TileContext& context;
  int64_t b, kv_head;
  SequenceView view;
  TensorRows k, v;

 private:
  // How many keys from `key` on surely have its descales.
  int64_t keys_alike(int64_t key) const;
};

// What TileJob::context points to, with load_block and locate_keys.
struct TileSource {
  KeySource source;
  char* shared = nullptr;  // the shared head; NULL: each block is packed when it is needed
  char* own = nullptr;
};
KvBlock load_block(TileJob& job, int64_t block);
void locate_keys(const TileJob& job, int64_t block, KeyRows& rows);
// That of locate_keys.
KeyType key_type_of(DType dtype);

// Packs keys and values of one block of `head` into the shared head `index_in_wave`.
void pack_shared_block(const TileContext& context, int64_t head, int64_t index_in_wave,
                       int64_t block);

}  // namespace fa4::internal
