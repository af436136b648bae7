// The one parameter of the forward kernels of every GPU, in members by theme: what works on rows,
// keys or tiles takes those that it needs. Filled on the host at each execution; read as a
// __grid_constant__.
#pragma once

#include "kernels/base/cap_params.h"
#include "kernels/base/element.h"
#include "kernels/base/tensor_map.h"
#include "kernels/forward/pages.h"

namespace fa4 {

// Where TMA loads and stores.
struct FwdTensorMaps {
  // (head_dim, head of the group, group, position, batch); a packed tensor has one batch and
  // `total` positions. A box is 64 (Hopper) or 128 rows (Blackwell) of slab columns, or a tile of
  // them in the kernel of bytes (mma/): where 2^group_log2 is more than the group it reaches past
  // the group's heads, for which TMA reads zeros and writes nothing.
  TensorMap q;
  // (head_dim, head, position, batch); box: slab columns x 1 x tile_n x 1, in a pair of CTAs half
  // as many rows (V's on Blackwell: as many, of half its columns). Of pages: (head_dim, head, row
  // of the page, page); box: slab columns x 1 x box_rows x 1. Of pages in groups of 8 rows: (column
  // of a slab, row of a group, slab, head, group); box: slab columns x 8 x slabs x 1 x
  // box_rows / 8.
  TensorMap k;
  TensorMap v;
  TensorMap out;  // as q
};

// Where threads store: rows that TMA may not (those that end where no tensor does), and lse.
struct OutputParams {
  void* data;            // of out
  float* lse;            // or null
  int64_t stride_batch;  // of out, elements
  int64_t stride_seqlen;
  int64_t stride_head;
  int32_t head_dim_v;
  int32_t is_f32;  // of out: who puts parts together writes what this says
};

struct SequenceParams {
  const int32_t* cu_seqlens_q;  // null: dense
  const int32_t* cu_seqlens_k;
  const int32_t* seqused_q;  // or null
  const int32_t* seqused_k;
  int32_t batch;
  int32_t seqlen_q;  // dense: of every sequence; packed: the maximum
  int32_t seqlen_k;
  int32_t total_q;  // packed: rows of q, and of a head in lse
  int32_t total_k;
  // Packed queries: sequences of fewer or more are another launch's, and have no tile in this one.
  int32_t least_q;
  int32_t most_q;
};

struct HeadParams {
  int32_t heads_q;
  // A position has 2^group_log2 rows of a tile: one for each of `group` query heads (1, or heads_q
  // / heads_kv), and rows of no head up to the power of two.
  int32_t group;
  int32_t group_log2;
  int32_t tile_heads;         // heads_q / group
  int32_t tile_heads_per_kv;  // tile_heads / heads of k and v
};

struct MaskParams {
  int32_t window_left;   // inclusive; from -seqlen_q to 2^30 - 1
  int32_t window_right;  // from -seqlen_k
};

// How a CTA finds its next tile without a counter.
enum class TileOrder : int32_t {
  kStride,
  kThereAndBack,   // by stride, at most two rounds, the second of which runs backwards
  kLaunchControl,  // a CTA for each tile; those that run take over those that have not started
                   // (Blackwell)
  kByLength,       // those of most keys first, dealt there and back (few rows)
};

// Two launches that share the sequences of a call run side by side.
enum class LaunchPair : int32_t {
  kAlone,   // there is one launch
  kFirst,   // lets the second begin as soon as what came before both has ended
  kSecond,  // so waits for nothing, but ends behind the first
};

struct ScheduleParams {
  uint32_t* tile_counter;  // zero before the launch: tiles on demand. null: by `order`
  int32_t sections;        // of heads whose keys and values share the L2 cache; at most the heads
  int32_t longest_first;   // tiles of the last rows first
  TileOrder order;
  int32_t leaves_sms;  // the launch has so few CTAs that many SMs are idle (few rows on Hopper)
  LaunchPair launch_pair;
};

struct ScoreParams {
  const void* sink;  // logits, one a query head, of sink_type; or null
  // Softmax_scale log2(e), in the forward of the scale's magnitude. With softcap 1 in the forward,
  // softcap log2(e) in the backward.
  float scale_log2;
  FloatType sink_type;
};

// K or V in pages, as threads read it that copy rows themselves (Pages::kRows). Elements are of 16
// bits: those of bytes are pairs of them.
struct PageRows {
  const void* data;
  int64_t stride_page;  // elements
  int64_t stride_row;
  int64_t stride_head;
  int32_t columns;
  int32_t groups_of_page;  // Pages::kGroups: how far pages lie apart, in groups of 8 rows
  // Pages::kGathers: how far pages, a page's rows and heads lie apart, in rows of the matrix that
  // TMA sees, which has one wherever a row may begin.
  int32_t page_rows, row_rows, head_rows;
};

// Where keys and values lie that are in pages. Key j of those that all sequences share, the first
// `prefix_len` of each, is row j % page_size of page prefix_pages[j / page_size]; key j behind them
// of page table[sequence][key head][j / page_size].
struct PageParams {
  const int32_t* table;         // null: there are none
  const int32_t* prefix_pages;  // null where prefix_len is 0
  int64_t stride_batch;         // elements, of the table
  int64_t stride_head;          // 0: the heads share a row
  int64_t stride_entry;
  int32_t prefix_len;
  int32_t page_size;
  PageDivision division;  // by page_size
  int32_t num_pages;
  int32_t box_rows;  // that TMA takes at a time (Pages::kBoxes)
  // The logarithm of page_size where pages are simple: page_size is a power of two, no keys are
  // shared, the table's entries lie side by side, and the rows of all pages are evenly apart, as
  // far in K as in V and by less than 4 GiB. Else -1.
  int32_t simple_log2;
  PageRows k, v;
};

// What a row saw of a part of its keys.
struct PartStats {
  float max_log2;  // that its weights are relative to
  float sum;       // of its weights
};

// Where keys are cut into parts (geometry/key_parts.h): what each row saw of each, for as many
// parts as any row has.
struct PartParams {
  float* sums;       // (rows, most, columns): weighted sums of values; null: keys are not cut
  PartStats* stats;  // (rows, most)
  int32_t keys;      // of a part; 0: each sequence's are cut evenly into `most`, 2^most_log2
  int32_t most;      // parts of a row
  int32_t most_log2;
  int32_t columns;  // head_dim_v of the kernel
  int32_t tile_rows;
  // Rows lie sequence by sequence, so many queries of each, all heads of a query; 0: in the order
  // of lse.
  int32_t queries;
  // CTAs of a cluster, which share the parts of one tile and put them together themselves; 0: the
  // parts go to the workspace.
  int32_t cluster_log2;
};

// What the bytes of K or V are multiplied by: one number for keys that share a block, or a page.
struct DescaleRows {
  const float* data;     // null: 1
  int64_t stride_batch;  // elements; 0 where pages have descales of their own
  int64_t stride_block;  // or from page to page
  int64_t stride_head;
};

// The descales of keys and values that are bytes.
struct DescaleParams {
  DescaleRows k;
  DescaleRows v;
  int32_t of_pages;  // a key's page number finds its descale; else its number shifted right by:
  int32_t shift;
};

struct FwdParams {
  FwdTensorMaps maps;
  OutputParams output;
  SequenceParams sequences;
  HeadParams heads;
  MaskParams mask;
  ScheduleParams schedule;
  ScoreParams scores;
  CapParams cap;
  PageParams pages;
  PartParams parts;
  DescaleParams descales;
};

}  // namespace fa4
