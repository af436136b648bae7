// What differs between two compiled variants of the backward's first and last kernel. Shared by
// host and device.
#pragma once

#include "kernels/base/element.h"
#include "kernels/base/integers.h"

namespace fa4 {

// Query rows of a block of the workspace; a step of a main kernel has one or two of them.
inline constexpr int kQueryRows = 64;

// Works of a section of key heads clear dq's sums of the section so many behind it, where works
// clear any.
inline constexpr int kSectionsAhead = 2;

// Columns of dq whose sums lie together where they lie in fragments.
constexpr int dq_part_columns(int columns) { return columns % 64 == 0 ? 64 : 32; }

// Where the statistics of a block's row lie where dq does in fragments: a thread of wgmma reads
// those of its columns 2 t, 2 t + 1, 8 + 2 t, 9 + 2 t of each 16 at once.
constexpr int fragment_place(int row) {
  return row / 16 * 16 + row % 8 / 2 * 4 + row % 16 / 8 * 2 + row % 2;
}

// What a work of the main kernel computes: all gradients, or some of them where works are split.
enum class WorkKind { kAll, kDkAndDq, kDv };
// Takes the kind of work out of `index`: a block of keys has two works, the longer first; `index`,
// which counts works, becomes the block's.
constexpr WorkKind take_work_kind(uint32_t& index) {
  const WorkKind kind = index % 2 == 0 ? WorkKind::kDkAndDq : WorkKind::kDv;
  index /= 2;
  return kind;
}

inline constexpr int kPreprocessThreads = 256;
inline constexpr int kPostprocessThreads = 128;

// Where groups are cut into subgroups: keys of a block whose dk and dv come together, and warps at
// most that hold some of them, each by itself.
inline constexpr int kSubgroupKeys = 128, kSubgroupUnits = 16;

// Two counts of a warp's sums at a node: how many have come there, and how many of them have left
// their sums.
struct SubgroupCounts {
  uint32_t come;
  uint32_t left;
};

// Nodes at which so many subgroups meet: in pairs one fewer than there are, whatever their number.
constexpr int num_nodes(int subgroups, bool in_pairs) { return in_pairs ? subgroups - 1 : 1; }

// What of dq's sums works finish at a time: a warp's fragments of a part.
inline constexpr int kFinishRows = 16, kFinishColumns = 64;

// How the main kernel's sums of dq lie in a block of the workspace.
enum class DqLayout : int {
  // (parts, 4 warps, dq_part_columns / 8, 32 lanes, 4): a warpgroup's accumulators of each part
  kFragments,
  kRows,  // (columns / 4, kQueryRows, 4)
};

// How the main kernel reads the rows' statistics.
enum class StatisticForm : int {
  kRows,         // f32, in order
  kParts,        // StatisticTerms, in order
  kPartOfDelta,  // the same without lse, which is f32 as fragment_place says
};

// A row's statistics as a row of a product's second operand. Each is the sum of three bf16, of 8
// bits each: a float's 24.
struct alignas(16) StatisticTerms {
  uint16_t neg_lse[3];    // -lse / softmax_scale, or zeros
  uint16_t neg_delta[3];  // -delta
  uint16_t zeros[2];
};

struct BwdRowTraits {
  Element element = Element::kBF16;
  DqLayout dq_layout = DqLayout::kFragments;
  StatisticForm statistics = StatisticForm::kParts;

  constexpr bool operator==(const BwdRowTraits&) const = default;
};

// In which order works come, which are blocks of keys of key heads, and visit blocks of queries
// (order.h).
//
// Of those that add to dq's sums of a block of queries the one with the first turn comes first.
// A head whose works go up the queries has its last keys first: under a causal mask works come to a
// block behind one another by themselves, each longer than the one before. One whose works go down
// has its first keys first: all begin at the same block, each shorter. Where only the first one is
// waited for all heads go down. Where all have turns, half of them go up and half down, or one of
// eight (backward_order.cc): a CTA that has had the i-th work up, which is short, takes the i-th
// down, which is long, a turn after the one before it. Which way a head goes then follows from its
// number alone, so that the bits of its sums depend on nothing else in the batch.
struct BwdOrder {
  int32_t sections;         // of heads without a pair, whose queries and dq share the L2 cache
  int32_t last_keys_first;  // heads that go up: from a sequence's last block of keys on
  int32_t heads_down;       // so many of a sequence's key heads, its last ones
  // Of pairs of a head that goes up and one that goes down, which come behind all other heads. A
  // section has the works up first.
  int32_t pair_sections;
  int32_t first_stores;  // the workspace has dq_counts (params.h), by which kernels see it
  // All heads of a group at each visit to a block of queries (Hopper alone, where all heads go
  // down); else all blocks for one head before the next head.
  int32_t heads_together;
  // Works finish dq of the section so many before their own; the postprocess what is left. 0: all.
  int32_t finish_behind;
};

}  // namespace fa4
