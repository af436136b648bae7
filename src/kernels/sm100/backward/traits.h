// The Blackwell backward kernel's shape: what differs between two compiled variants, and all that
// follows from it. Shared by host and device: the host plans and checks with it, the kernel is
// compiled from it.
#pragma once

#include "kernels/base/element.h"
#include "kernels/base/limits.h"
#include "kernels/tile/barrier_table.h"
#include "kernels/tile/slab.h"

namespace fa4::sm100 {

// A structural type: passed as one template argument, and printed as the kernel's name.
struct BwdTraits {
  Element element = Element::kBF16;
  // Multiples of 32, up to 192 and 128; the tensors may be narrower: TMA fills with zeros.
  int head_dim = 128;    // of q, k and their gradients
  int head_dim_v = 128;  // of v, out and their gradients
  int cta_group = 1;     // CTAs that share every product: a pair has 256 keys
  int q_stages = 2;      // blocks of queries in shared memory
  int dout_stages = 1;   // of dO
  int sum_stages = 1;    // of what a pair loads again for dK and dV: half of the columns
  int reduce_registers = 152;
  int compute_registers = 136;
  // P and dQ have tensor memory of their own, not over S and dP: the next block's products wait
  // for no conversion and for no reduction of this one's.
  bool apart = false;
  bool softcap = false;

  constexpr bool operator==(const BwdTraits&) const = default;
};

namespace bwd {

inline constexpr int kNumWarps = 16;
inline constexpr int kNumThreads = kNumWarps * kWarpThreads;
inline constexpr int kKeys = 128;  // of a CTA: the lanes of tensor memory
inline constexpr int kRows = 128;  // queries of a block: the columns of its scores
inline constexpr int kComputeWarpgroups = 2;
inline constexpr int kColumns = kRows / kComputeWarpgroups;  // of a compute warpgroup
inline constexpr int kChunk = 32;                            // columns that it moves at a time
inline constexpr int kMmaK = 16;
inline constexpr int kTmemColumns = 512;

// Who a warp is. Without a pair the relay has nothing to do.
enum class Role { kReduce, kCompute0, kCompute1, kMma, kLoad, kRelay, kStatistics };
constexpr Role role_of(int warp) {
  if (warp < 4) return Role::kReduce;
  if (warp < 8) return Role::kCompute0;
  if (warp < 12) return Role::kCompute1;
  return warp == 12   ? Role::kMma
         : warp == 13 ? Role::kLoad
         : warp == 14 ? Role::kRelay
                      : Role::kStatistics;
}

// Registers of a thread. Each quarter of the SM holds a warp of the reducing warpgroup, one of
// either compute warpgroup and one of the others: together 512 a lane.
struct RegisterSplit {
  int reduce;
  int compute;
  int other;
};
constexpr RegisterSplit register_split(const BwdTraits& t) {
  return {t.reduce_registers, t.compute_registers,
          512 - t.reduce_registers - kComputeWarpgroups * t.compute_registers};
}

// What one CTA holds of a block of queries, for S and dP: all of its rows, or its half of a pair's.
constexpr int q_rows(const BwdTraits& t) { return kRows / t.cta_group; }
// Of the columns of dK, dV and dQ, and so of Q, dO and K as their second operands.
constexpr int dk_columns(const BwdTraits& t) { return t.head_dim / t.cta_group; }
constexpr int dv_columns(const BwdTraits& t) { return t.head_dim_v / t.cta_group; }
// As they lie in shared memory: whole slabs.
constexpr int loaded_columns(int columns) { return (columns + 31) / 32 * 32; }
// Keys of the group.
constexpr int group_keys(const BwdTraits& t) { return kKeys * t.cta_group; }
// Slabs of K and Q, and of V and dO: half the columns are whole slabs.
constexpr int qk_slab(const BwdTraits& t) { return slab_columns(dk_columns(t)); }
constexpr int v_slab(const BwdTraits& t) { return slab_columns(dv_columns(t)); }

constexpr int k_bytes(const BwdTraits& t) { return kKeys * t.head_dim * kElementBytes; }
constexpr int v_bytes(const BwdTraits& t) { return kKeys * t.head_dim_v * kElementBytes; }
constexpr int q_bytes(const BwdTraits& t) { return q_rows(t) * t.head_dim * kElementBytes; }
constexpr int dout_bytes(const BwdTraits& t) { return q_rows(t) * t.head_dim_v * kElementBytes; }
// The same as the second operands of a pair's dQ, dK and dV.
constexpr int k_sum_bytes(const BwdTraits& t) {
  return group_keys(t) * loaded_columns(dk_columns(t)) * kElementBytes;
}
constexpr int q_sum_bytes(const BwdTraits& t) {
  return kRows * loaded_columns(dk_columns(t)) * kElementBytes;
}
constexpr int dout_sum_bytes(const BwdTraits& t) {
  return kRows * loaded_columns(dv_columns(t)) * kElementBytes;
}
// dS of the queries that this CTA computes dQ of, of all keys of the group, in slabs as K's.
constexpr int ds_slab_bytes(const BwdTraits& t) {
  return group_keys(t) * qk_slab(t) * kElementBytes;
}
constexpr int ds_bytes(const BwdTraits& t) { return group_keys(t) * q_rows(t) * kElementBytes; }
// What comes from the other CTA.
constexpr int ds_peer_bytes(const BwdTraits& t) { return ds_bytes(t) / 2; }
// Operands of the steps that take delta off dP and lse off S, 16 columns of 16 bits. With softcap S
// is not yet what lse is taken off.
inline constexpr int kMinusOnesBytes = kKeys * kMmaK * kElementBytes;
constexpr int parts_bytes(const BwdTraits& t) { return q_rows(t) * kMmaK * kElementBytes; }
constexpr bool takes_lse_off(const BwdTraits& t) { return !t.softcap; }
inline constexpr int kStatStages = 2;
inline constexpr int kStatBytes = kRows * 4;  // of one statistic
inline constexpr int kWorkBytes = 64;

// Columns of tensor memory, all 128 lanes of each: 512 are allocated, so that the base is 0. A lane
// is a key; in dQ a query, where a pair has 64 in either half of the lanes with half of the
// columns. Elements of 16 bits are two a column.
struct TmemLayout {
  int s;  // scores: a compute warpgroup has 64 columns of its own, of S and dP alike
  int p;  // over S, of a pair in its first half, else in that of each warpgroup's columns; or apart
  int dp;  // in turn: over the second half of S
  int ds;  // over dP, in the first half of each warpgroup's columns
  int dv;
  int dk;
  int dq;  // over dP and dS; of a pair over the second half of the next S; or apart; in turn: up to
           // the end of dP
  int p_stride;  // from one warpgroup's columns to the other's
  int total;
};
// A pair's products come in turn where tensor memory has no place for two blocks of scores beside
// dV and dK: dP lies over half of S, and S of the next block waits until dQ of this one was read.
constexpr bool in_turn(const BwdTraits& t) {
  return 2 * kRows + t.head_dim + t.head_dim_v > kTmemColumns;
}
constexpr TmemLayout tmem_layout(const BwdTraits& t) {
  TmemLayout m{};
  m.dp = m.s + (in_turn(t) ? kColumns : kRows);
  m.ds = m.dp;
  m.dv = m.dp + kRows;
  m.dk = m.dv + t.head_dim_v;
  const int end = m.dk + t.head_dim;
  m.dq = t.apart           ? end
         : in_turn(t)      ? m.dv - dk_columns(t)
         : t.cta_group > 1 ? m.s + kColumns
                           : m.dp;
  m.p = t.apart ? end + dk_columns(t) : m.s;
  m.p_stride = t.apart || t.cta_group > 1 ? kColumns / 2 : kColumns;
  m.total = t.apart ? m.p + kRows / 2 : end;
  return m;
}

// P lies in the first half of S: the second one, whose scores are the second warpgroup's, has
// another use when that has loaded them.
constexpr bool splits_s(const BwdTraits& t) { return t.cta_group > 1 && !t.apart; }
// This use is dQ, of the block before: S comes first, and dQ waits. In turn it is dP.
constexpr bool dq_over_s(const BwdTraits& t) { return splits_s(t) && !in_turn(t); }
// A stage of a pair's Q holds first the rows for S, then the columns for dK.
constexpr bool q_twice(const BwdTraits& t) { return in_turn(t); }

// Barriers, in the order of shared memory: a row of the table each.
enum BarrierKind {
  kKFull,
  kVFull,
  kKSumFull,
  kQFull,
  kQEmpty,
  kQSumFull,
  kQSumEmpty,
  kDoutFull,
  kDoutEmpty,
  kDoutSumFull,
  kDoutSumEmpty,
  kStatsFull,
  kStatsEmpty,
  kLseFull,
  kDeltaFull,
  kRaw,
  kSFull,
  kSFree,
  kPFull,
  kPFree,
  kDpFull,
  kDsFull,
  kDsPeer,
  kDsRelayed,
  kDsFree,
  kDqFull,
  kDqFree,
  kSumsFull,
  kNumBarrierKinds
};
constexpr BarrierTable<kNumBarrierKinds> barriers(const BwdTraits& t) {
  const int g = t.cta_group, pair = g > 1, sums = pair ? t.sum_stages : 0;
  const int warps = 4 * kComputeWarpgroups * g, splits = splits_s(t), late_dq = dq_over_s(t);
  const char* loaded = "load of each CTA + TMA bytes, or load after clearing the tail";
  return {{
      {"k_full", 1, g, Start::kTaken, loaded, "mma"},
      {"v_full", 1, g, Start::kTaken, loaded, "mma"},
      {"k_sum_full", pair, g, Start::kTaken, loaded, "mma, before dQ"},
      {"q_full", t.q_stages, g, Start::kTaken, loaded, "mma"},
      {"q_empty", t.q_stages, 1, q_twice(t) ? Start::kTaken : Start::kFree,
       "mma: commit after S, without a pair after dK", "load"},
      {"q_sum_full", sums, g, Start::kTaken, loaded, "mma, before dK"},
      {"q_sum_empty", sums, 1, Start::kFree, "mma: commit after dK", "load"},
      {"dout_full", t.dout_stages, g, Start::kTaken, loaded, "mma"},
      {"dout_empty", t.dout_stages, 1, Start::kFree,
       "mma: commit after dP, without a pair after dV", "load"},
      {"dout_sum_full", sums, g, Start::kTaken, loaded, "mma, before dV"},
      {"dout_sum_empty", sums, 1, Start::kFree, "mma: commit after dV", "load"},
      {"stats_full", kStatStages, 1, Start::kTaken, "load + bytes",
       "statistics; with softcap compute"},
      {"stats_empty", kStatStages, takes_lse_off(t) ? 1 : 1 + 4 * kComputeWarpgroups, Start::kFree,
       "statistics; with softcap compute warps of the CTA, after P", "load"},
      {"lse_full", takes_lse_off(t), g, Start::kTaken,
       "statistics: parts of lse are in shared memory", "mma, before the last step of S"},
      {"delta_full", 1, g, Start::kTaken, "statistics: parts of delta are in shared memory",
       "mma, before the last step of dP"},
      {"raw", 1, 1, Start::kTaken, "load + TMA bytes", "load, before clearing the tail"},
      {"s_full", 1, 1, Start::kTaken, "mma: commit after S", "compute; statistics"},
      {"s_free", t.apart || splits, splits ? 4 * g : warps, t.apart ? Start::kFree : Start::kTaken,
       "compute warps: S, or its second half, is in registers",
       "mma, before the next S, or before dQ or dP, which overwrites that half"},
      {"p_full", 1, warps, Start::kTaken, "compute warps: P is in tensor memory", "mma, before dV"},
      {"p_free", t.apart, 1, Start::kFree, "mma: commit after dV", "compute, before the next P"},
      {"dp_full", 1, 1, Start::kTaken, "mma: commit after dP", "compute; statistics"},
      {"ds_full", 1, warps, Start::kTaken,
       "compute warps: dS is in tensor memory, and in this CTA's shared memory", "mma, before dK"},
      {"ds_peer", pair, 1, Start::kTaken, "relay + the other CTA's bytes", "relay"},
      {"ds_relayed", pair, g, Start::kTaken, "relays: the other CTA's dS is there",
       "mma, before dQ"},
      {"ds_free", late_dq, 1, Start::kFree, "mma: commit after dQ",
       "compute, before dS to shared memory"},
      {"dq_full", 1, 1, Start::kTaken, "mma: commit after dQ", "reduce"},
      {"dq_free", 1, 4 * g, Start::kFree, "reduce warps: dQ is in registers",
       "mma, before what overwrites it"},
      {"sums_full", 1, 1, Start::kTaken, "mma: commit after the last product", "compute"},
  }};
}

// Byte offsets in dynamic shared memory, whose base is 1024-byte aligned (there is no static
// shared memory: it begins right after the 1024 bytes that the system reserves).
struct SmemLayout {
  int k;           // [slab][kKeys rows]
  int v;           // [slab][kKeys rows]
  int k_sum;       // [slab][keys of the pair], half of the columns; without a pair K
  int q;           // [stage][slab][q_rows]
  int q_sum;       // [stage][slab][kRows rows], half of the columns; without a pair Q
  int dout;        // [stage][slab][q_rows]
  int dout_sum;    // [stage][slab][kRows rows], half of the columns; without a pair dO
  int ds;          // [slab of queries][keys of the group]: transposed
  int minus_ones;  // [half of the columns][kKeys rows], 16 bytes each
  int delta;       // [half of the columns][q_rows], 16 bytes each
  int lse;         // likewise
  int stats;       // [stage]: -lse log2(e), delta of kRows rows
  int work;        // Work
  int barriers;    // uint64_t[barriers().count()]
  int tmem;        // uint32_t[2]: what tcgen05.alloc returned; the ticket
  int total;
};
constexpr SmemLayout smem_layout(const BwdTraits& t) {
  const bool pair = t.cta_group > 1;
  SmemLayout s{};
  s.v = s.k + k_bytes(t);
  s.q = s.v + v_bytes(t);
  s.dout = s.q + t.q_stages * q_bytes(t);
  s.ds = s.dout + t.dout_stages * dout_bytes(t);
  int end = s.ds + ds_bytes(t);
  s.k_sum = pair ? end : s.k;
  if (pair) end += k_sum_bytes(t);
  s.q_sum = pair && !q_twice(t) ? end : s.q;
  if (pair && !q_twice(t)) end += t.sum_stages * q_sum_bytes(t);
  s.dout_sum = pair ? end : s.dout;
  if (pair) end += t.sum_stages * dout_sum_bytes(t);
  s.minus_ones = end;
  s.delta = s.minus_ones + kMinusOnesBytes;
  s.lse = s.delta + parts_bytes(t);
  s.stats = s.lse + (takes_lse_off(t) ? parts_bytes(t) : 0);
  s.work = s.stats + kStatStages * 2 * kStatBytes;
  s.barriers = s.work + kWorkBytes;
  s.tmem = s.barriers + barriers(t).count() * 8;
  s.total = s.tmem + 16;
  return s;
}

// nullptr, or what is wrong with a variant. Every tuning row is checked with it.
constexpr const char* why_not(const BwdTraits& t) {
  if (t.head_dim % 32 != 0 || t.head_dim < 64 || t.head_dim > 192 || t.head_dim_v % 32 != 0 ||
      t.head_dim_v < 64 || t.head_dim_v > 128)
    return "head dims are multiples of 32 from 64 to 192, and to 128 of v";
  if (t.cta_group != 1 && t.cta_group != 2) return "cta_group is 1 or 2";
  if (t.cta_group == 1 && (t.head_dim % 64 != 0 || t.head_dim_v % 64 != 0 || in_turn(t)))
    return "one CTA takes head dims of 64 and 128";
  if (q_twice(t) && (t.q_stages != 1 || t.sum_stages != 1))
    return "Q that is loaded twice into one place has one stage";
  if (t.cta_group == 1 && t.q_stages < 2)
    return "S of the next block is multiplied before dK of this one";
  if (t.q_stages < 1 || t.dout_stages < 1 || t.sum_stages < 1) return "Q and dO need a stage";
  if (tmem_layout(t).total > kTmemColumns) return "tensor memory exceeds 512 columns";
  if (smem_layout(t).total > kMaxSmemBytes) return "shared memory exceeds 227 KiB";
  const RegisterSplit r = register_split(t);
  if (r.reduce % 8 != 0 || r.compute % 8 != 0 || r.other < 24)
    return "registers come in eights and leave at least 24 for the other warps";
  return nullptr;
}

}  // namespace bwd
}  // namespace fa4::sm100
