// The Blackwell forward kernel's shape: what differs between two compiled variants, and all that
// follows from it. Shared by host and device: the host plans and checks with it, the kernel is
// compiled from it.
#pragma once

#include "kernels/base/element.h"
#include "kernels/base/limits.h"
#include "kernels/forward/pages.h"
#include "kernels/geometry/length_ranks.h"
#include "kernels/softmax/exp2_math.h"
#include "kernels/tile/barrier_table.h"

namespace fa4::sm100 {

// The parts of a block's P: the tensor core has one before the next is ready. Where each ends, of
// the block's 128 keys; 0: there are two.
struct PParts {
  int ends[3] = {64, 96, 128};

  constexpr int count() const { return ends[2] == 0 ? 2 : 3; }
  constexpr int begin(int part) const { return part == 0 ? 0 : ends[part - 1]; }
  constexpr bool operator==(const PParts&) const = default;
};

// A structural type: passed as one template argument, and printed as the kernel's name.
struct FwdTraits {
  Element element = Element::kBF16;
  // Multiples of 32; the tensors may be narrower (TMA fills with zeros and clips the store).
  int head_dim = 128;         // of q and k
  int head_dim_v = 128;       // of v and out
  int q_tiles = 2;            // of 128 query rows each in a CTA; two take turns at the tensor core
  int cta_group = 1;          // CTAs that share one product: each holds half of every K and V block
  int kv_stages = 3;          // K and V blocks in shared memory, together
  PParts p_parts{};           // in which P goes to the tensor core
  int polynomial_pairs = 8;   // of a block's 64 pairs of columns: exponentials on the FMA pipe
  int polynomial_degree = 3;  // 2 to 5
  int softmax_registers = 192;
  int correction_registers = 88;
  bool p_apart = false;  // P beside S, not over it: Q K of the next block comes before this P V
  bool softcap = false;
  Pages pages = Pages::kNone;
  // A work tile is a part of the keys of its rows. What it sees of them, in f32, goes to the
  // workspace, where output/combine.cuh finds it.
  bool parts = false;
  // Out is stored in f32.
  bool out_f32 = false;

  constexpr bool operator==(const FwdTraits&) const = default;
};

inline constexpr int kNumWarps = 16;
inline constexpr int kNumThreads = kNumWarps * kWarpThreads;
inline constexpr int kTileRows = 128;  // of one Q tile: the lanes of tensor memory
inline constexpr int kTileN = 128;     // keys of a block
inline constexpr int kChunk = 32;      // columns that softmax and correction move at a time
inline constexpr int kChunks = kTileN / kChunk;
inline constexpr int kMmaK = 16;
inline constexpr int kTmemColumns = 512;
inline constexpr int kTileSlots = 2;  // work tiles between the scheduler and its readers

// Who a warp is.
enum class Role { kSoftmax0, kSoftmax1, kCorrection, kMma, kLoad, kStore, kSchedule };
constexpr Role role_of(int warp) {
  if (warp < 4) return Role::kSoftmax0;
  if (warp < 8) return Role::kSoftmax1;
  if (warp < 12) return Role::kCorrection;
  return warp == 12   ? Role::kMma
         : warp == 13 ? Role::kStore
         : warp == 14 ? Role::kLoad
                      : Role::kSchedule;
}

// Registers of a thread. Each quarter of the SM holds one warp of either softmax warpgroup, one of
// correction and one of the others: together 512 a lane. The load warp that copies rows out of
// pages holds the addresses of several, for which correction has registers to spare: more the fewer
// columns it corrects.
struct RegisterSplit {
  int softmax;
  int correction;
  int other;
};
constexpr RegisterSplit register_split(const FwdTraits& t) {
  const int spared = t.pages != Pages::kRows ? 0 : t.head_dim_v <= 64 ? 16 : 8;
  const int correction = t.correction_registers - spared;
  return {t.softmax_registers, correction, 512 - 2 * t.softmax_registers - correction};
}

// Query rows of a work tile: of all CTAs of the group.
constexpr int tile_m(const FwdTraits& t) { return t.q_tiles * t.cta_group * kTileRows; }

// What one CTA holds of a block: all of it, or its half (K: of the keys, V: of the columns).
constexpr int k_rows(const FwdTraits& t) { return kTileN / t.cta_group; }
constexpr int v_columns(const FwdTraits& t) { return t.head_dim_v / t.cta_group; }
constexpr int k_bytes(const FwdTraits& t) { return k_rows(t) * t.head_dim * kElementBytes; }
constexpr int v_bytes(const FwdTraits& t) { return kTileN * v_columns(t) * kElementBytes; }
constexpr int q_tile_bytes(const FwdTraits& t) { return kTileRows * t.head_dim * kElementBytes; }
// What is f32, out or what a part of the keys gives, goes to global memory from registers; out of
// 16 bits by way of shared memory, from where TMA stores it.
constexpr bool stores_by_tma(const FwdTraits& t) { return !t.parts && !t.out_f32; }
constexpr int out_tile_bytes(const FwdTraits& t) {
  return stores_by_tma(t) ? kTileRows * t.head_dim_v * kElementBytes : 0;
}

// Out takes the place of its tile's Q when shared memory does not hold both; Q of the next tile
// then waits for the store.
constexpr bool out_takes_q(const FwdTraits& t) {
  return stores_by_tma(t) && (t.head_dim > t.head_dim_v || t.head_dim_v > 128);
}

// The ring of K and V blocks, which alternate: a stage has room for the larger of the two. With
// three stages K and V change places from round to round; where K is larger, two K and one V have
// room for all of it when the middle block moves. K at stage 0 reaches over the begin of the K that
// was in the middle.
//
//             0       v   k       k + v       2 k + v
//   round 0   | K         | V     | K         |
//   round 1   | V     | K         | V     |
constexpr bool is_uneven(const FwdTraits& t) { return t.kv_stages == 3 && k_bytes(t) > v_bytes(t); }
constexpr int kv_offset(const FwdTraits& t, int stage, bool holds_k) {
  const int k = k_bytes(t), v = v_bytes(t);
  if (!is_uneven(t)) return stage * (k > v ? k : v);
  if (stage == 0) return 0;
  if (stage == 2) return k + v;
  return holds_k ? v : k;
}
constexpr int kv_bytes(const FwdTraits& t) {
  return is_uneven(t) ? 2 * k_bytes(t) + v_bytes(t) : kv_offset(t, t.kv_stages, true);
}

// Columns of tensor memory, all 128 lanes of each: 512 are allocated, so that the base is 0.
struct TmemLayout {
  int s[2];  // scores of a Q tile
  int p[2];  // P, half as wide: beside them, or in the place of their first half
  int o[2];  // output
  int total;
};
constexpr int s_and_p_columns(const FwdTraits& t) {
  return t.p_apart ? kTileN + kTileN / 2 : kTileN;
}
constexpr TmemLayout tmem_layout(const FwdTraits& t) {
  TmemLayout m{};
  const int columns = s_and_p_columns(t);
  for (int i = 0; i < t.q_tiles; ++i) m.s[i] = i * columns;
  for (int i = 0; i < t.q_tiles; ++i) m.p[i] = m.s[i] + (t.p_apart ? kTileN : 0);
  for (int i = 0; i < t.q_tiles; ++i) m.o[i] = t.q_tiles * columns + i * t.head_dim_v;
  m.total = t.q_tiles * (columns + t.head_dim_v);
  return m;
}

// Barriers, in the order of shared memory: a row of the table each.
enum BarrierKind {
  kQFull,
  kQEmpty,
  kKvFull,
  kKvEmpty,
  kVRaw,
  kSFull,
  kSFree,
  kPFull,
  kPNext,
  kPRest,
  kPFree,
  kOFull,
  kStatsFull,
  kStatsEmpty,
  kOutFull,
  kOutEmpty,
  kTileFull,
  kTileEmpty,
  kCancelled,
  kNumBarrierKinds
};

// The barrier at which part `part` of P is handed over. The last one's is the same for two parts
// and for three.
constexpr BarrierKind p_barrier(const FwdTraits& t, int part) {
  return part == 0 ? kPFull : part == t.p_parts.count() - 1 ? kPRest : kPNext;
}

constexpr BarrierTable<kNumBarrierKinds> barriers(const FwdTraits& t) {
  const int q = t.q_tiles, g = t.cta_group;
  const int apart = t.p_apart ? q : 0, next = t.p_parts.count() > 2 ? q : 0;
  const int stored = stores_by_tma(t) ? q : 0;
  const bool copies = t.pages == Pages::kRows;
  const int readers =
      4 * q + 4 + (stores_by_tma(t) ? 3 : 2);  // warps: softmax, correction, mma, load, store
  return {{
      {"q_full", q, 1, Start::kTaken, "load + TMA bytes", "mma"},
      {"q_empty", q, 1, Start::kFree, "mma: commit after the tile's last QK", "load"},
      {"kv_full", t.kv_stages, copies ? 32 : 1, Start::kTaken,
       copies ? "load: each lane's copies" : "load + TMA bytes, or load after clearing the tail",
       "mma"},
      {"kv_empty", t.kv_stages, 1, Start::kFree, "mma: commit after the last product of the block",
       "load"},
      {"v_raw", 1, 1, Start::kTaken, "load + TMA bytes", "load, before clearing the tail"},
      {"s_full", q, 1, Start::kTaken, "mma: commit after QK", "softmax"},
      {"s_free", apart, 4 * g, Start::kFree, "softmax warps: S is in registers",
       "mma, before the next QK"},
      {"p_full", q, 8 * g, Start::kTaken,
       "softmax warps: first keys of P; correction warps: O rescaled or free",
       "mma of the leading CTA, before PV"},
      {"p_next", next, 4 * g, Start::kTaken, "softmax warps: the next keys of P",
       "mma, in the middle of PV"},
      {"p_rest", q, 4 * g, Start::kTaken, "softmax warps: the rest of P",
       "mma, before the rest of PV"},
      {"p_free", apart, 1, Start::kFree, "mma: commit after PV", "softmax, before the next P"},
      {"o_full", q, 1, Start::kTaken, "mma: commit after the tile's last PV", "correction"},
      {"stats_full", q, 4, Start::kTaken, "softmax warps: sum and maximum of a tile's rows",
       "correction"},
      {"stats_empty", q, 4, Start::kTaken, "correction warps, after the tile's last factors",
       "softmax"},
      {"out_full", stored, 4, Start::kTaken, "correction warps", "store"},
      {"out_empty", stored, 1, Start::kFree, "store, after TMA read it",
       out_takes_q(t) ? "correction; load, before the next Q" : "correction"},
      {"tile_full", kTileSlots, 1, Start::kTaken, "schedule", "all other warps"},
      {"tile_empty", kTileSlots, readers, Start::kFree, "all other warps, after reading",
       "schedule"},
      {"cancelled", 1, 1, Start::kTaken, "schedule + launch control's bytes", "schedule"},
  }};
}

inline constexpr int kTileBytes = 64;
inline constexpr int kCancelBytes = 16;  // of launch control's response

// Byte offsets in dynamic shared memory, whose base is 1024-byte aligned (there is no static
// shared memory: it begins right after the 1024 bytes that the system reserves).
struct SmemLayout {
  int q;         // [q tile][slab][128 rows]
  int out;       // [q tile][slab][128 rows], or as q
  int kv;        // [stage][slab][rows]
  int factors;   // float[q tile][128]: O is multiplied by 2 to it; at the tile's end the row sums
  int maxima;    // float[q tile][128]: at the tile's end, in powers of two
  int tiles;     // QTiles[kTileSlots]
  int ranks;     // LengthRanks, of parts
  int cancel;    // kCancelBytes: launch control's response, 16-byte aligned
  int barriers;  // uint64_t[barriers().count()]
  int tmem;      // uint32_t: what tcgen05.alloc returned
  int total;
};
constexpr SmemLayout smem_layout(const FwdTraits& t) {
  constexpr int kFloatBytes = 4;
  SmemLayout s{};
  s.out = out_takes_q(t) ? s.q : s.q + t.q_tiles * q_tile_bytes(t);
  s.kv = s.out + t.q_tiles * (out_takes_q(t) ? q_tile_bytes(t) : out_tile_bytes(t));
  s.factors = s.kv + kv_bytes(t);
  s.maxima = s.factors + t.q_tiles * kTileRows * kFloatBytes;
  s.tiles = s.maxima + t.q_tiles * kTileRows * kFloatBytes;
  s.ranks = s.tiles + kTileSlots * kTileBytes;
  s.cancel = s.ranks + (t.parts ? static_cast<int>(sizeof(LengthRanks)) : 0);
  s.barriers = s.cancel + kCancelBytes;
  s.tmem = s.barriers + barriers(t).count() * 8;
  s.total = s.tmem + 16;
  return s;
}

constexpr int out_offset(const FwdTraits& t, int q_tile) {
  return smem_layout(t).out + q_tile * (out_takes_q(t) ? q_tile_bytes(t) : out_tile_bytes(t));
}

// Which of a block's pairs of columns the polynomial takes: spread evenly. A function of the column
// alone, so that neither the mask nor the tile a row falls into changes its bits.
inline constexpr int kPairs = kTileN / 2;
constexpr bool is_polynomial(const FwdTraits& t, int pair) {
  return (pair + 1) * t.polynomial_pairs / kPairs > pair * t.polynomial_pairs / kPairs;
}

// The base-2 logarithm of the largest finite number of the type of P.
constexpr float log2_largest(Element element) { return element == Element::kBF16 ? 127.9f : 15.9f; }

// nullptr, or what is wrong with a variant. Every tuning row is checked with it.
constexpr const char* why_not(const FwdTraits& t) {
  if (t.q_tiles != 1 && t.q_tiles != 2) return "q_tiles is 1 or 2";
  if (t.cta_group != 1 && t.cta_group != 2) return "cta_group is 1 or 2";
  if (t.cta_group == 2 && (t.head_dim_v % 64 != 0 || t.head_dim_v < 128))
    return "a pair of CTAs shares V, whose columns are a multiple of 64, 128 or more";
  if (t.cta_group == 2 && t.pages != Pages::kNone) return "a pair of CTAs takes no pages";
  if (t.pages == Pages::kGroups) return "a box of pages is of one slab";
  if (t.parts && (t.q_tiles > 1 || t.cta_group > 1)) return "parts of keys are of one Q tile";
  if (t.parts && t.out_f32) return "parts of keys are f32 and not out";
  if (t.head_dim % 32 != 0 || t.head_dim_v % 32 != 0) return "head dims are multiples of 32";
  if (t.head_dim > 256 || t.head_dim_v > t.head_dim)
    return "head_dim is at most 256, head_dim_v at most head_dim";
  if (t.kv_stages < 2) return "K and V need two stages";
  for (int i = 0; i < t.p_parts.count(); ++i) {
    const int end = t.p_parts.ends[i];
    if (end % kChunk != 0 || end <= t.p_parts.begin(i) || end > kTileN)
      return "p_parts end at multiples of 32 that grow";
  }
  if (t.p_parts.ends[t.p_parts.count() - 1] != kTileN) return "the last of p_parts ends at 128";
  if (t.polynomial_pairs < 0 || t.polynomial_pairs > kPairs / 2)
    return "polynomial_pairs is 0 to 32";
  if (t.polynomial_degree < 2 || t.polynomial_degree > 5) return "polynomial_degree is 2 to 5";
  if (kRescaleThreshold >= log2_largest(t.element)) return "P overflows before O is rescaled";
  if (tmem_layout(t).total > kTmemColumns) return "tensor memory exceeds 512 columns";
  if (smem_layout(t).total > kMaxSmemBytes) return "shared memory exceeds 227 KiB";
  const RegisterSplit r = register_split(t);
  if (r.softmax % 8 != 0 || r.correction % 8 != 0 || r.other < 24)
    return "registers come in eights and leave at least 24 for the other warps";
  return nullptr;
}

}  // namespace fa4::sm100
