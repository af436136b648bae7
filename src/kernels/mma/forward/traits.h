// The shape of the kernel that attends to keys and values of bytes (e4m3), on Hopper and on
// Blackwell: what differs between two compiled variants, and all that follows from it. Shared by
// host and device.
#pragma once

#include "kernels/base/element.h"
#include "kernels/base/limits.h"
#include "kernels/forward/pages.h"
#include "kernels/geometry/length_ranks.h"
#include "kernels/tile/barrier_table.h"
#include "kernels/tile/slab.h"

namespace fa4::mma {

// A structural type: passed as one template argument, and printed as the kernel's name.
struct FwdTraits {
  Element element = Element::kBF16;  // of q and out
  // 64, 128, 192 or 256; the tensors may be narrower (TMA fills with zeros).
  int head_dim = 128;    // of q and k
  int head_dim_v = 128;  // of v and out
  // Consumer warps: each takes 16 rows of the tile, and a share of the keys of every block, or
  // where they take turns of every second one.
  int row_warps = 1;
  int key_warps = 4;  // that share a block
  int turns = 2;      // 1 or 2
  int q_stages = 2;
  int kv_stages = 6;  // of all turns
  bool softcap = false;
  Pages pages = Pages::kNone;
  // A work tile is a part of the keys of its rows: as sm90/forward/traits.h.
  bool parts = false;

  constexpr bool operator==(const FwdTraits&) const = default;
};

inline constexpr int kTileN = 128;    // keys of a block
inline constexpr int kWarpRows = 16;  // of one mma
inline constexpr int kTileSlots = 2;  // work tiles between the scheduler and its readers
inline constexpr int kTileBytes = 48;
inline constexpr int kMergeColumns = 32;  // of out that the warps put together at a time

constexpr int tile_m(const FwdTraits& t) { return kWarpRows * t.row_warps; }
// Warps that have the same rows.
constexpr int sharers(const FwdTraits& t) { return t.key_warps * t.turns; }
constexpr int consumer_warps(const FwdTraits& t) { return t.row_warps * sharers(t); }
// Loader warps, all of the last warpgroup; pages take four, since they are many small copies.
constexpr int loader_warps(const FwdTraits& t) { return t.pages == Pages::kNone ? 1 : 4; }
// Whether each turn's blocks have loaders of their own. To begin a block's boxes takes them as long
// whatever its columns, and blocks of 64 are done with twice as soon as those of 128. Of those all
// loaders take the first block first, so that consumers begin with it.
constexpr bool turns_have_loaders(const FwdTraits& t) {
  return t.pages == Pages::kBoxes && t.head_dim == 64;
}
// How many loader warps load one block together.
constexpr int block_loaders(const FwdTraits& t) {
  return turns_have_loaders(t) ? loader_warps(t) / t.turns : loader_warps(t);
}
constexpr int num_threads(const FwdTraits& t) { return 32 * (consumer_warps(t) + 4); }

// Addresses of rows that a loader's lane finds before it copies the first (pages/copy_rows.cuh).
// Consumers of more rows and columns have no registers to spare for many.
constexpr bool has_many_addresses(const FwdTraits& t) {
  return t.row_warps == 1 || t.head_dim <= 128;
}
constexpr int addresses_ahead(const FwdTraits& t) { return has_many_addresses(t) ? 8 : 2; }
// Registers of a thread: a CTA begins with 168 each, 504 for one of each of the three warpgroups.
constexpr int loader_registers(const FwdTraits& t) {
  if (t.pages != Pages::kRows) return 40;
  return has_many_addresses(t) ? 72 : t.head_dim_v <= 128 ? 56 : 40;
}
constexpr int consumer_registers(const FwdTraits& t) { return (504 - loader_registers(t)) / 2; }
constexpr int warp_keys(const FwdTraits& t) { return kTileN / t.key_warps; }
// Each turn has a ring of its own, since a barrier's phases must be waited for one after another.
constexpr int ring_stages(const FwdTraits& t) { return t.kv_stages / t.turns; }
// Q stays in registers up to 128 columns; wider rows would leave too few of them for the rest.
constexpr bool q_in_registers(const FwdTraits& t) { return t.head_dim <= 128; }
// What Q and K are multiplied as. A pair of bytes becomes f16 by one instruction, bf16 by four; Q
// that stays in registers becomes f16 once a tile. P and V are f16 always.
constexpr Element score_element(const FwdTraits& t) {
  return q_in_registers(t) ? Element::kF16 : t.element;
}

// Keys that have a descale in shared memory where those are of pages: boxes are of 8 rows or more.
constexpr int descale_keys(const FwdTraits& t) { return t.pages == Pages::kBoxes ? 8 : 1; }

// Bytes lie as 16-bit elements of half as many columns do (tile/slab.h), which is also what TMA
// takes them for.
constexpr int pairs(int head_dim) { return head_dim / 2; }
// Bytes of a slab's row: 128 or 64.
constexpr int slab_bytes(int head_dim) { return 2 * slab_columns(pairs(head_dim)); }

// Q is of 16-bit elements, whose slabs are as wide as swizzled rows may be.
inline constexpr int kQSlabColumns = 64;
inline constexpr int kQRowBytes = kQSlabColumns * kElementBytes;
inline constexpr int kPieceBytes = 16;  // that a swizzle moves together, and a thread reads at once
inline constexpr int kPieceColumns = kPieceBytes / kElementBytes;  // of Q

// Byte offsets in dynamic shared memory, whose base is 1024-byte aligned.
struct SmemLayout {
  int q;         // [stage][slab][tile_m rows]
  int k;         // [stage][slab][128 keys]
  int v;         // [stage][slab][128 keys]
  int descales;  // [stage]: of K, then of V: the first one is all keys' but for those of pages,
                 // which are for descale_keys() keys each
  int merge;     // [warp][16 rows][32 columns] floats
  int stats;     // [warp][16 rows] of PartStats
  int tiles;     // QTile[kTileSlots]
  int ranks;     // LengthRanks, where there is room for them
  int barriers;  // uint64_t[barriers().count()]
  int total;     // with 1024 bytes to align the base
};
inline constexpr int kDescaleBytes = kTileN * 4;
constexpr int q_bytes(const FwdTraits& t) { return tile_m(t) * t.head_dim * kElementBytes; }
constexpr int k_stage_bytes(const FwdTraits& t) { return kTileN * t.head_dim; }
constexpr int v_stage_bytes(const FwdTraits& t) { return kTileN * t.head_dim_v; }

// Barriers, in the order of shared memory: a row of the table each.
enum BarrierKind { kQFull, kQEmpty, kKvFull, kKvEmpty, kTileFull, kTileEmpty, kNumBarrierKinds };
constexpr BarrierTable<kNumBarrierKinds> barriers(const FwdTraits& t) {
  const int warps = consumer_warps(t), loaders = block_loaders(t);
  const bool by_tma = t.pages != Pages::kRows;
  return {{
      {"q_full", t.q_stages, 1, Start::kTaken, "loader + TMA bytes", "consumers"},
      {"q_empty", t.q_stages, warps, Start::kFree, "consumer warps, after reading", "loader"},
      {"kv_full", t.kv_stages, (by_tma ? 33 : 32) * loaders, Start::kTaken,
       "copies of each thread of its loaders (descales, rows of pages), loaders + TMA bytes",
       "consumers whose turn it is"},
      {"kv_empty", t.kv_stages, warps / t.turns, Start::kFree, "consumer warps, after P V",
       "loaders"},
      {"tile_full", kTileSlots, 1, Start::kTaken, "loader", "consumers"},
      {"tile_empty", kTileSlots, warps, Start::kFree, "consumer warps, after reading", "loader"},
  }};
}

constexpr SmemLayout smem_layout(const FwdTraits& t, bool ranks) {
  SmemLayout s{};
  s.k = s.q + t.q_stages * q_bytes(t);
  s.v = s.k + t.kv_stages * k_stage_bytes(t);
  s.descales = s.v + t.kv_stages * v_stage_bytes(t);
  s.merge = s.descales + t.kv_stages * 2 * kDescaleBytes;
  s.stats = s.merge + consumer_warps(t) * kWarpRows * kMergeColumns * 4;
  s.tiles = s.stats + consumer_warps(t) * kWarpRows * 8;
  s.ranks = s.tiles + kTileSlots * kTileBytes;
  s.barriers = s.ranks + (ranks ? static_cast<int>(sizeof(LengthRanks)) : 0);
  s.total = s.barriers + barriers(t).count() * 8 + 1024;
  return s;
}

// Whether tiles may go by the lengths of their keys: few rows, where the ranks have room beside the
// stages.
constexpr bool can_rank(const FwdTraits& t) {
  return t.row_warps == 1 && smem_layout(t, true).total <= kMaxSmemBytes;
}
constexpr SmemLayout smem_layout(const FwdTraits& t) { return smem_layout(t, can_rank(t)); }

constexpr bool is_head_dim(int d) { return d == 64 || d == 128 || d == 192 || d == 256; }

// nullptr, or what is wrong with a variant. Every tuning row is checked with it.
constexpr const char* why_not(const FwdTraits& t) {
  if (!is_head_dim(t.head_dim) || !is_head_dim(t.head_dim_v))
    return "head dims are 64, 128, 192 or 256";
  if (t.row_warps < 1 || t.key_warps < 1 || t.turns < 1 || t.turns > 2)
    return "there are warps for rows and for keys, which take at most two turns";
  if (consumer_warps(t) != 8) return "consumers are two warpgroups";
  if (kTileN % (kWarpRows * t.key_warps) != 0 || warp_keys(t) > 64)
    return "a warp has 16, 32 or 64 keys of a block";
  if (t.pages == Pages::kGroups || t.pages == Pages::kGathers)
    return "keys are contiguous, or in pages by boxes or by rows";
  if (t.q_stages < 1 || t.q_stages > 3) return "Q has one to three stages";
  if (t.kv_stages % t.turns != 0 || ring_stages(t) < 2) return "each turn has two stages or more";
  if (smem_layout(t).total > kMaxSmemBytes) return "shared memory exceeds 227 KiB";
  return nullptr;
}

}  // namespace fa4::mma
