// Where everything of the Blackwell backward kernel lies: tensor memory, barriers, shared memory,
// and whether a variant fits. Shared by host and device.
#pragma once

#include "kernels/base/limits.h"
#include "kernels/sm100/backward/traits.h"
#include "kernels/tile/barrier_table.h"

namespace fa4::sm100::bwd {

// Columns of tensor memory, all 128 lanes of each: 512 are allocated, so that the base is 0. A lane
// is a key; in dQ a query, where a pair has 64 in either half of the lanes with half of the
// columns; in dQᵀ, where works are split, a column of 128. Elements of 16 bits are two a column.
struct TmemLayout {
  int s;  // scores: a compute warpgroup has half of the columns for itself, of S and dP alike
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
  return !t.split && 2 * block_rows(t) + t.head_dim + t.head_dim_v > kTmemColumns;
}
// Columns of head_dim in a product of dQᵀ, and how many products there are.
inline constexpr int kDqLanes = 128;
constexpr int dq_products(const BwdTraits& t) { return t.head_dim / kDqLanes; }
// Where works are split: the sums of dV, or in their place those of dK and, behind them, dQᵀ.
constexpr TmemLayout split_tmem_layout(const BwdTraits& t) {
  TmemLayout m{};
  m.dp = m.s + block_rows(t);
  m.ds = m.dp;
  m.p = m.dp;
  m.p_stride = own_rows(t) / 2;
  m.dv = m.dp + block_rows(t);
  m.dk = m.dv;
  m.dq = m.dk + t.head_dim;
  const int with_dk = m.dq + dq_products(t) * block_rows(t), with_dv = m.dv + t.head_dim_v;
  m.total = with_dk > with_dv ? with_dk : with_dv;
  return m;
}
constexpr TmemLayout tmem_layout(const BwdTraits& t) {
  if (t.split) return split_tmem_layout(t);
  TmemLayout m{};
  m.dp = m.s + (in_turn(t) ? own_rows(t) : block_rows(t));
  m.ds = m.dp;
  m.dv = m.dp + block_rows(t);
  m.dk = m.dv + t.head_dim_v;
  const int end = m.dk + t.head_dim;
  m.dq = t.apart           ? end
         : in_turn(t)      ? m.dv - dk_columns(t)
         : t.cta_group > 1 ? m.s + own_rows(t)
                           : m.dp;
  m.p = t.apart ? end + dk_columns(t) : m.s;
  m.p_stride = t.apart || t.cta_group > 1 ? own_rows(t) / 2 : own_rows(t);
  m.total = t.apart ? m.p + block_rows(t) / 2 : end;
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
  // The same for all works of a kernel.
  const int qs = t.split ? t.dv_stages : t.q_stages, douts = t.split ? t.dv_stages : t.dout_stages;
  const int warps = 4 * kComputeWarpgroups * g, splits = splits_s(t), late_dq = dq_over_s(t);
  const char* loaded = "load of each CTA + TMA bytes, or load after clearing the tail";
  return {{
      {"k_full", 1, g, Start::kTaken, loaded, "mma"},
      {"v_full", 1, g, Start::kTaken, loaded, "mma"},
      {"k_sum_full", pair, g, Start::kTaken, loaded, "mma, before dQ"},
      {"q_full", qs, g, Start::kTaken, loaded, "mma"},
      {"q_empty", qs, 1, q_twice(t) ? Start::kTaken : Start::kFree,
       "mma: commit after S, without a pair after dK where there is one", "load"},
      {"q_sum_full", sums, g, Start::kTaken, loaded, "mma, before dK"},
      {"q_sum_empty", sums, 1, Start::kFree, "mma: commit after dK", "load"},
      {"dout_full", douts, g, Start::kTaken, loaded, "mma"},
      {"dout_empty", douts, 1, Start::kFree,
       "mma: commit after dP, without a pair after dV where there is one", "load"},
      {"dout_sum_full", sums, g, Start::kTaken, loaded, "mma, before dV"},
      {"dout_sum_empty", sums, 1, Start::kFree, "mma: commit after dV", "load"},
      {"stats_full", kStatStages, 1, Start::kTaken, "load + bytes",
       "statistics; with softcap compute"},
      {"stats_empty", kStatStages, takes_lse_off(t) ? 1 : 1 + 4 * kComputeWarpgroups, Start::kFree,
       "statistics; with softcap compute warps of the CTA, after P", "load"},
      {"lse_full", takes_lse_off(t), g, Start::kTaken,
       "statistics: terms of lse are in shared memory", "mma, before the last step of S"},
      {"delta_full", 1, g, Start::kTaken, "statistics: terms of delta are in shared memory",
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
  int v;           // [slab][kKeys rows]; not in works for dv alone
  int k_sum;       // [slab][keys of the pair], half of the columns; without a pair K
  int q;           // [stage][slab][q_rows]
  int q_sum;       // [stage][slab][block_rows], half of the columns; without a pair Q
  int dout;        // [stage][slab][q_rows]
  int dout_sum;    // [stage][slab][block_rows], half of the columns; without a pair dO
  int ds;          // [slab of queries][keys of the group]: transposed
  int minus_ones;  // [half of the columns][kKeys rows], 16 bytes each
  int delta;       // [half of the columns][q_rows], 16 bytes each
  int lse;         // likewise
  int stats;       // [stage]: -lse log2(e), delta of block_rows rows
  int work;        // Work
  int barriers;    // uint64_t[barriers().count()]
  int tmem;        // uint32_t[2]: what tcgen05.alloc returned; the ticket
  int total;
};
constexpr SmemLayout smem_layout(const BwdTraits& t, WorkKind kind) {
  const bool pair = t.cta_group > 1;
  SmemLayout s{};
  s.v = s.k + k_bytes(t);
  s.q = kind == WorkKind::kDv ? s.v : s.v + v_bytes(t);
  s.dout = s.q + q_stages(t, kind) * q_bytes(t);
  s.ds = s.dout + dout_stages(t, kind) * dout_bytes(t);
  int end = s.v + v_bytes(t) + t.q_stages * q_bytes(t) + t.dout_stages * dout_bytes(t) +
            ds_bytes(t);  // of every kind
  s.k_sum = pair ? end : s.k;
  if (pair) end += k_sum_bytes(t);
  s.q_sum = pair && !q_twice(t) ? end : s.q;
  if (pair && !q_twice(t)) end += t.sum_stages * q_sum_bytes(t);
  s.dout_sum = pair ? end : s.dout;
  if (pair) end += t.sum_stages * dout_sum_bytes(t);
  s.minus_ones = end;
  s.delta = s.minus_ones + kMinusOnesBytes;
  s.lse = s.delta + terms_bytes(t);
  s.stats = s.lse + (takes_lse_off(t) ? terms_bytes(t) : 0);
  s.work = s.stats + kStatStages * 2 * stat_bytes(t);
  s.barriers = s.work + kWorkBytes;
  s.tmem = s.barriers + barriers(t).count() * 8;
  s.total = s.tmem + 16;
  return s;
}

// The layout of those works that need most of it. Everything behind the tiles lies at the same
// place in all works of a kernel.
constexpr SmemLayout smem_layout(const BwdTraits& t) {
  return smem_layout(t, t.split ? WorkKind::kDkAndDq : WorkKind::kAll);
}

// nullptr, or what is wrong with works that are split.
constexpr const char* why_not_split(const BwdTraits& t) {
  if (t.cta_group != 1 || !t.apart) return "where dk and dv are split, one CTA, P and dQ apart";
  if (t.head_dim % kDqLanes != 0) return "where dk and dv are split, head_dim a multiple of 128";
  if (t.q_stages != 1 || t.dout_stages != 1 || t.dv_stages < 2)
    return "where dk and dv are split, Q and dO have one stage, and two or more in works for dv";
  const SmemLayout dv = smem_layout(t, WorkKind::kDv);
  if (dv.ds > smem_layout(t).minus_ones) return "the stages of works for dv do not fit";
  return nullptr;
}

// nullptr, or what is wrong with a variant. Every tuning row is checked with it.
constexpr const char* why_not(const BwdTraits& t) {
  if (t.head_dim % 32 != 0 || t.head_dim < 64 || t.head_dim > 256 || t.head_dim_v % 32 != 0 ||
      t.head_dim_v < 64 || t.head_dim_v > 256)
    return "head dims are multiples of 32 from 64 to 256";
  if (t.cta_group != 1 && t.cta_group != 2) return "cta_group is 1 or 2";
  if (t.split && why_not_split(t) != nullptr) return why_not_split(t);
  if (!t.split && t.dv_stages != 0) return "no works for dv alone";
  if (t.cta_group == 1 && (t.head_dim % 64 != 0 || t.head_dim_v % 64 != 0 || in_turn(t)))
    return "one CTA takes head dims that are multiples of 64 and fit tensor memory together";
  if (q_twice(t) && (t.q_stages != 1 || t.sum_stages != 1))
    return "Q that is loaded twice into one place has one stage";
  if (t.cta_group == 1 && !t.split && t.q_stages < 2)
    return "S of the next block is multiplied before dK of this one";
  if (t.q_stages < 1 || t.dout_stages < 1 || t.sum_stages < 1) return "Q and dO need a stage";
  if (tmem_layout(t).total > kTmemColumns) return "tensor memory exceeds 512 columns";
  if (smem_layout(t).total > kMaxSmemBytes) return "shared memory exceeds 227 KiB";
  const RegisterSplit r = register_split(t);
  if (r.reduce % 8 != 0 || r.compute % 8 != 0 || r.other < 24)
    return "registers come in eights and leave at least 24 for the other warps";
  return nullptr;
}

}  // namespace fa4::sm100::bwd
