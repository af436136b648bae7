// The Blackwell backward kernel's shape: what differs between two compiled variants, and all that
// follows from it. Shared by host and device: the host plans and checks with it, the kernel is
// compiled from it.
#pragma once

#include "kernels/backward/traits.h"
#include "kernels/base/element.h"
#include "kernels/base/limits.h"
#include "kernels/tile/slab.h"

namespace fa4::sm100 {

// A structural type: passed as one template argument, and printed as the kernel's name.
struct BwdTraits {
  Element element = Element::kBF16;
  // Multiples of 32, up to 256; the tensors may be narrower: TMA fills with zeros.
  int head_dim = 128;    // of q, k and their gradients
  int head_dim_v = 128;  // of v, out and their gradients
  int cta_group = 1;     // CTAs that share every product: a pair has 256 keys
  int q_stages = 2;      // blocks of queries in shared memory
  int dout_stages = 1;   // of dO
  int dv_stages = 0;     // of both in works for dv alone, where there are some
  int sum_stages = 1;    // of what a pair loads again for dK and dV: half of the columns
  int reduce_registers = 152;
  int compute_registers = 136;
  // P and dQ have tensor memory of their own, not over S and dP: the next block's products wait
  // for no conversion and for no reduction of this one's.
  bool apart = false;
  // dk with dq, and dv, by works of their own, where tensor memory does not hold both: scores are
  // computed twice, six products in place of five. A block then has 64 queries, so that K, V, Q and
  // dO fit shared memory together.
  bool split = false;
  bool softcap = false;

  constexpr bool operator==(const BwdTraits&) const = default;
};

namespace bwd {

inline constexpr int kNumWarps = 16;
inline constexpr int kNumThreads = kNumWarps * kWarpThreads;
inline constexpr int kKeys = 128;  // of a CTA: the lanes of tensor memory
inline constexpr int kComputeWarpgroups = 2;
inline constexpr int kChunk = 32;  // columns that a compute warpgroup moves at a time
inline constexpr int kMmaK = 16;
inline constexpr int kTmemColumns = 512;

// Queries of a block: the columns of its scores; and those of a compute warpgroup.
constexpr int block_rows(const BwdTraits& t) { return t.split ? 64 : 128; }
constexpr int own_rows(const BwdTraits& t) { return block_rows(t) / kComputeWarpgroups; }

// Works for dv alone read no V and make no dS: their rings of Q and dO lie in that place too.
constexpr int works_per_block(const BwdTraits& t) { return t.split ? 2 : 1; }
constexpr int q_stages(const BwdTraits& t, WorkKind kind) {
  return kind == WorkKind::kDv ? t.dv_stages : t.q_stages;
}
constexpr int dout_stages(const BwdTraits& t, WorkKind kind) {
  return kind == WorkKind::kDv ? t.dv_stages : t.dout_stages;
}

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
constexpr int q_rows(const BwdTraits& t) { return block_rows(t) / t.cta_group; }
// How many columns of dK, dV and dQ one CTA computes, and so how many of Q, dO and K it holds as
// second operands.
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
  return block_rows(t) * loaded_columns(dk_columns(t)) * kElementBytes;
}
constexpr int dout_sum_bytes(const BwdTraits& t) {
  return block_rows(t) * loaded_columns(dv_columns(t)) * kElementBytes;
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
constexpr int terms_bytes(const BwdTraits& t) { return q_rows(t) * kMmaK * kElementBytes; }
constexpr bool takes_lse_off(const BwdTraits& t) { return !t.softcap; }
inline constexpr int kStatStages = 2;
constexpr int stat_bytes(const BwdTraits& t) { return block_rows(t) * 4; }  // of one statistic
inline constexpr int kWorkBytes = 64;

}  // namespace bwd
}  // namespace fa4::sm100
