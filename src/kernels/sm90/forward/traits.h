// The Hopper forward kernel's shape: what differs between two compiled variants, and all that
// follows from it. Shared by host and device: the host plans and checks with it, the kernel is
// compiled from it.
#pragma once

#include "kernels/base/element.h"
#include "kernels/base/limits.h"
#include "kernels/forward/pages.h"
#include "kernels/geometry/key_parts.h"
#include "kernels/geometry/length_ranks.h"
#include "kernels/tile/barrier_table.h"
#include "kernels/tile/slab.h"

namespace fa4::sm90 {

// A structural type: passed as one template argument, and printed as the kernel's name.
struct FwdTraits {
  Element element = Element::kBF16;
  // Multiples of 32; the tensors may be narrower (TMA fills with zeros and clips the store).
  int head_dim = 128;    // of q and k
  int head_dim_v = 128;  // of v and out
  int tile_m = 128;      // query rows of a tile: 64 a consumer warpgroup
  int tile_n = 128;      // keys of a block
  // Slots of 64 rows of Q, a warpgroup's, where its rows of out lie until they are stored. One for
  // each warpgroup (of parts alone): tiles follow each other. More: a tile's first product runs
  // under the epilogue of the one before. Three for each: the next Q comes while the last out is
  // stored, which tiles of few blocks wait for.
  int q_slots = 4;
  int kv_stages = 2;
  bool softcap = false;
  Pages pages = Pages::kNone;
  // A work tile is a part of the keys of its rows (a split). What it sees of them, in f32, goes to
  // the workspace for output/combine.cuh, or to CTAs of its cluster (output/exchange_parts.cuh).
  bool parts = false;
  // CTAs that visit the same blocks of keys, each of which loads a share of a block for all of them
  // (multicast): a tile of rows each, one behind the other.
  int cluster = 1;
  // Out is stored in f32, which threads do: TMA takes it from the place of Q, which holds 16 bits.
  bool out_f32 = false;
  // K and V are bytes (e4m3), of which loader warps make f16 for the products.
  bool bytes = false;
  // Each consumer warpgroup visits only the blocks that its own 64 rows see, and takes no turns at
  // the tensor cores. Else all visit the blocks that the tile sees, one behind the other.
  bool independent = false;

  constexpr bool operator==(const FwdTraits&) const = default;
};

inline constexpr int kWarpgroupRows = 64;  // of a tile: those of one wgmma
inline constexpr int kLoaderWarps = 3;     // where K and V lie in pages or are bytes; else one
inline constexpr int kMostRawPlaces = 4;   // of blocks of bytes
inline constexpr int kTileSlots = 2;       // work tiles between the scheduler and its readers

constexpr int consumer_warpgroups(const FwdTraits& t) { return t.tile_m / kWarpgroupRows; }
constexpr bool takes_turns(const FwdTraits& t) {
  return consumer_warpgroups(t) > 1 && !t.independent;
}
// Which 64 rows of a CTA's n-th tile are a warpgroup's. Under a causal mask a tile's last rows see
// more keys than its first ones: independent warpgroups have the first and the last ones in turn,
// so that all have as much to do.
constexpr int slice_of(const FwdTraits& t, int warpgroup, uint32_t n) {
  return t.independent && n % 2 == 1 ? consumer_warpgroups(t) - 1 - warpgroup : warpgroup;
}
// Whether a tile's first product is issued together with the last one of the tile before.
constexpr bool overlaps_tiles(const FwdTraits& t) { return t.q_slots > consumer_warpgroups(t); }
// How many warpgroups, the last ones, get their next rows of Q only when out has left the slot.
constexpr int late_warpgroups(const FwdTraits& t) {
  const int late = 2 * consumer_warpgroups(t) - t.q_slots;
  return overlaps_tiles(t) && late > 0 ? late : 0;
}
// Whether a tile's keys are nobody else's: few rows over many keys, parts of keys or all of them.
// The time of such tiles is that of reading keys.
constexpr bool reads_keys_once(const FwdTraits& t) { return consumer_warpgroups(t) == 1; }
constexpr int num_threads(const FwdTraits& t) {
  return (1 + consumer_warpgroups(t)) * kWarpgroupThreads;
}

// Registers of a thread: 65536 / 128 = 512 for one thread of each warpgroup. Beside one consumer
// warpgroup both may have as many as an instruction can name, and none are moved.
struct RegisterSplit {
  int producer;
  int consumer;
};
constexpr RegisterSplit register_split(const FwdTraits& t) {
  if (consumer_warpgroups(t) == 1) return {256, 256};
  if (consumer_warpgroups(t) == 3) return {32, 160};
  if (consumer_warpgroups(t) == 4) return {32, 112};
  // Who copies rows holds the addresses of several, who converts bytes several pieces.
  return t.pages == Pages::kRows || t.bytes ? RegisterSplit{56, 224} : RegisterSplit{40, 232};
}

// Byte offsets in dynamic shared memory, whose base is 1024-byte aligned.
struct SmemLayout {
  int q;         // [slot][slab][64 rows]; out takes the place of its rows of Q
  int k;         // [stage][slab][tile_n rows]; Pages::kGroups: [stage][tile_n / 8][slab][8 rows]
  int v;         // likewise
  int raw;       // [raw_places][slab][tile_n rows] of K's or V's bytes
  int tiles;     // QTile[kTileSlots]; independent: each with a BlockRange for every slice
  int barriers;  // uint64_t[barriers().count()]
  int ranks;     // LengthRanks, of few rows
  int inbox;     // of a cluster's parts: sums, then statistics (exchange_parts.cuh)
  int total;     // with 1024 bytes to align the base
};
constexpr int q_slot_bytes(const FwdTraits& t) {
  return kWarpgroupRows * t.head_dim * kElementBytes;
}
constexpr int k_stage_bytes(const FwdTraits& t) { return t.tile_n * t.head_dim * kElementBytes; }
constexpr int v_stage_bytes(const FwdTraits& t) { return t.tile_n * t.head_dim_v * kElementBytes; }
// Bytes of a block of K or V as e4m3: it lies like 16-bit elements of half as many columns.
constexpr int raw_bytes(const FwdTraits& t) {
  return t.tile_n * (t.head_dim > t.head_dim_v ? t.head_dim : t.head_dim_v);
}
// As many as have room beside Q and the stages, with 2048 bytes for all that lies behind.
constexpr int raw_places(const FwdTraits& t) {
  if (!t.bytes) return 0;
  const int stages = t.kv_stages * (k_stage_bytes(t) + v_stage_bytes(t));
  const int room = kMaxSmemBytes - 2048 - t.q_slots * q_slot_bytes(t) - stages;
  const int places = room / raw_bytes(t);
  return places < kMostRawPlaces ? places : kMostRawPlaces;
}
// How a stage of K or V with `columns` columns lies in shared memory.
constexpr TileLayout kv_layout(const FwdTraits& t, int columns) {
  const int slab = slab_columns(columns);
  return t.pages == Pages::kGroups ? group_by_group(num_slabs(columns), slab)
                                   : slab_by_slab(t.tile_n, slab);
}

// Whether rows of V behind the last key are zeros by whoever writes the others: threads.
constexpr bool loaders_write_zeros(const FwdTraits& t) {
  return t.bytes || t.pages == Pages::kRows;
}

// Barriers, in the order of shared memory: a row of the table each.
enum BarrierKind {
  kQFull,
  kQEmpty,
  kKFull,
  kKEmpty,
  kVFull,
  kVEmpty,
  kVRaw,
  kRawFull,
  kRawEmpty,
  kTileFull,
  kTileEmpty,
  kTileWanted,
  kInboxFull,
  kNumBarrierKinds
};
constexpr BarrierTable<kNumBarrierKinds> barriers(const FwdTraits& t) {
  const int warps = 4 * consumer_warpgroups(t);
  const bool paged = t.pages != Pages::kNone;
  const int loaders = paged || t.bytes ? kLoaderWarps : 1;
  const int arrivals = t.pages == Pages::kRows ? 32 * kLoaderWarps : loaders;  // of copies
  return {{
      {"q_full", t.q_slots, 1, Start::kTaken, "scheduler + TMA bytes", "a consumer warpgroup"},
      {"q_empty", t.q_slots, t.parts ? warps : 1, Start::kFree,
       t.parts ? "consumer warps, after the last QK"
               : "a consumer warpgroup, when its rows of out were read",
       "scheduler"},
      {"k_full", t.kv_stages, arrivals, Start::kTaken,
       t.bytes ? "loaders, when the bytes are 16 bits in the stage" : "loaders + TMA bytes",
       "consumers"},
      {"k_empty", t.kv_stages, warps * t.cluster, Start::kFree,
       "consumer warps of the cluster, after QK", "loaders"},
      {"v_full", t.kv_stages, arrivals, Start::kTaken,
       "as k_full, or loaders after clearing the tail", "consumers"},
      {"v_empty", t.kv_stages, warps * t.cluster, Start::kFree,
       "consumer warps of the cluster, after PV", "loaders"},
      {"v_raw", 1, loaders, Start::kTaken,
       loaders_write_zeros(t) ? "nobody: loaders write zeros behind the last key"
                              : "loaders + TMA bytes",
       loaders_write_zeros(t) ? "nobody"
       : reads_keys_once(t)   ? "nobody: consumers clear the tail"
                              : "loaders, before clearing the tail"},
      {"raw_full", raw_places(t), paged ? kLoaderWarps : 1, Start::kTaken, "loaders + TMA bytes",
       "loaders"},
      {"raw_empty", raw_places(t), kLoaderWarps, Start::kFree,
       "loaders, when the bytes are 16 bits in a stage", "loaders"},
      {"tile_full", kTileSlots, 1, Start::kTaken, "scheduler", "loaders, consumers"},
      {"tile_empty", kTileSlots, warps + loaders, Start::kFree,
       "loaders and consumer warps, after reading", "scheduler"},
      {"tile_wanted", 1, loaders, Start::kFree, "loaders, some blocks before a tile's end",
       "scheduler"},
      {"inbox_full", t.parts ? 1 : 0, 1, Start::kTaken,
       "a receiver + bytes of all parts of its rows",
       "the loaders' warpgroup, which ends these rows"},
  }};
}

inline constexpr int kTileBytes = 48;
inline constexpr int kRangeBytes = 16;  // a BlockRange
constexpr int tile_bytes(const FwdTraits& t) {
  return kTileBytes + (t.independent ? consumer_warpgroups(t) * kRangeBytes : 0);
}

// A row and part of an inbox: sums and 16 bytes of statistics. A cluster's CTAs share the tile's
// rows, and each row has as many parts as there are CTAs.
constexpr int inbox_sums_bytes(const FwdTraits& t) { return t.tile_m * t.head_dim_v * 4; }
constexpr int inbox_bytes(const FwdTraits& t) { return inbox_sums_bytes(t) + t.tile_m * 16; }

constexpr SmemLayout smem_layout(const FwdTraits& t, int inbox_bytes = 0) {
  SmemLayout s{};
  s.k = s.q + t.q_slots * q_slot_bytes(t);
  s.v = s.k + t.kv_stages * k_stage_bytes(t);
  s.raw = s.v + t.kv_stages * v_stage_bytes(t);
  s.tiles = s.raw + raw_places(t) * raw_bytes(t);
  s.barriers = s.tiles + kTileSlots * tile_bytes(t);
  s.ranks = (s.barriers + barriers(t).count() * 8 + 15) / 16 * 16;
  s.inbox = s.ranks + (reads_keys_once(t) ? static_cast<int>(sizeof(LengthRanks)) : 0);
  s.total = s.inbox + inbox_bytes + 1024;
  return s;
}

// Whether the CTAs of a cluster may put parts together: a warp ends a row with four columns a lane,
// so that a row has at most 128, and the inbox must have room beside the stages.
constexpr bool can_exchange_parts(const FwdTraits& t) {
  return t.parts && t.head_dim_v <= 128 && smem_layout(t, inbox_bytes(t)).total <= kMaxSmemBytes;
}

// Whether every block's maxima are found before its probabilities: where keys are waited for,
// nothing is gained by looking for fewer.
constexpr bool looks_at_all_maxima(const FwdTraits& t) { return reads_keys_once(t); }
// What Q and K, P and V are multiplied as. Of bytes f16, which take one instruction a pair to
// become that, and four to become bf16.
constexpr Element product_element(const FwdTraits& t) {
  return t.bytes ? Element::kF16 : t.element;
}
// Whether consumers make their rows of Q f16 first, times a power of two each.
constexpr bool scales_q(const FwdTraits& t) { return product_element(t) != t.element; }
// Where maxima are seldom looked for (fragment_softmax.cuh), in powers of two: how far below 1 the
// probability of a row's maximum is, and how large a thread's sum of a block may become. P in bf16
// has a float's range, most of which is left to the values of V; later scores may have 10^12 times
// the exponentials of the first ones. f16 keeps all its bits from 2^-14 to 2^16; where it stands
// for bf16 the maximum's probability is 2^6, so that small ones keep more of them.
constexpr int probability_shift(const FwdTraits& t) {
  if (looks_at_all_maxima(t)) return 0;
  return scales_q(t) ? -6 : t.element == Element::kF16 ? 0 : 20;
}
constexpr int largest_sum_log2(const FwdTraits& t) {
  return product_element(t) == Element::kF16 ? 14 : 20;
}

// Registers that a consumer thread holds across the loop: scores, probabilities, output.
constexpr int live_registers(const FwdTraits& t) {
  return t.tile_n / 2 + t.tile_n / 4 + t.head_dim_v / 2;
}

// Whether Pages::kGroups saves boxes.
constexpr bool has_groups(const FwdTraits& t) {
  return num_slabs(t.head_dim) > 1 || num_slabs(t.head_dim_v) > 1;
}

constexpr bool converts_rows_of(int head_dim) { return head_dim == 64 || head_dim == 128; }

// nullptr, or what is wrong with a variant. Every tuning row is checked with it.
constexpr const char* why_not(const FwdTraits& t) {
  if (t.tile_m != 64 && t.tile_m != 128 && t.tile_m != 192 && t.tile_m != 256)
    return "tile_m is 64, 128, 192 or 256: a consumer warpgroup for each 64 rows";
  if (t.tile_m == 256 && !t.independent) return "four warpgroups are independent";
  if (t.independent && (t.cluster > 1 || reads_keys_once(t) || t.bytes))
    return "independent warpgroups are two or more, of 16-bit keys that no other CTA shares";
  // It gives its stages back only when its Q is there, for which another one's next block is waited
  // for, which may need those stages.
  if (t.independent && late_warpgroups(t) > 0)
    return "an independent warpgroup's Q must not wait for another's out";
  if (t.cluster != 1 && t.cluster != 2) return "a cluster has one or two CTAs";
  if (t.cluster > 1 && (t.parts || t.pages != Pages::kNone || t.tile_n % (8 * t.cluster) != 0))
    return "the CTAs of a cluster share whole tiles' contiguous keys, in groups of 8";
  if (t.tile_n % 16 != 0 || t.tile_n < 64 || t.tile_n > 256)
    return "tile_n is a multiple of 16, 64 to 256";
  if (t.q_slots < consumer_warpgroups(t) || t.q_slots > 3 * consumer_warpgroups(t))
    return "Q has one to three slots for each consumer warpgroup";
  if (!t.parts && !overlaps_tiles(t)) return "out lies in Q's slots: the next Q takes one more";
  if (t.kv_stages < 2 || t.kv_stages > 16) return "K and V have 2 to 16 stages";
  if (t.pages == Pages::kGathers) return "rows of pages are copied by threads, not gathered";
  if (t.bytes && (t.pages == Pages::kGroups || t.pages == Pages::kRows || t.cluster > 1 ||
                  consumer_warpgroups(t) != 2))
    return "bytes are contiguous or in boxes, and of two consumer warpgroups";
  if (t.bytes && !(converts_rows_of(t.head_dim) && converts_rows_of(t.head_dim_v)))
    return "a warp converts rows of 64 or 128 bytes";
  if (t.bytes && raw_places(t) < 2) return "there are two places for bytes or more";
  if (t.parts && !reads_keys_once(t)) return "parts of keys are of tiles of 64 rows";
  if (t.parts && t.out_f32) return "parts of keys are f32 and not out";
  if (t.parts && kPartStep % t.tile_n != 0) return "a part of the keys is whole blocks";
  if (t.head_dim % 32 != 0 || t.head_dim_v % 32 != 0) return "head dims are multiples of 32";
  if (t.head_dim_v > t.head_dim) return "head_dim_v is at most head_dim: out takes q's place";
  if (smem_layout(t).total > kMaxSmemBytes) return "shared memory exceeds 227 KiB";
  if (live_registers(t) + 24 > register_split(t).consumer)
    return "scores, probabilities and output exceed the registers";
  return nullptr;
}

}  // namespace fa4::sm90
