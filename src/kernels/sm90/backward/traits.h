// The Hopper backward kernel's shape: what differs between two compiled variants, and all that
// follows from it. Shared by host and device: the host plans and checks with it, the kernel is
// compiled from it.
#pragma once

#include "kernels/backward/traits.h"
#include "kernels/base/element.h"
#include "kernels/base/limits.h"
#include "kernels/tile/barrier_table.h"

namespace fa4::sm90 {

// A structural type: passed as one template argument, and printed as the kernel's name.
struct BwdTraits {
  Element element = Element::kBF16;
  // Multiples of 32; the tensors may be narrower: TMA fills with zeros.
  int head_dim = 128;     // of q, k and their gradients
  int head_dim_v = 128;   // of v, out and their gradients
  int q_rows = 64;        // of a step: one or two blocks of kQueryRows
  int k_stages = 1;       // of K: with two the next work's comes while this one's is read
  int stages = 2;         // of Q
  int dout_stages = 2;    // of dO
  int dv_stages = 0;      // of both in works for dv alone: what is more lies in the place of V
  int ds_stages = 2;      // of dS
  int dq_stages = 2;      // of a part of dq: dq_columns columns
  int finish_stages = 0;  // of sums that become dq (finish.cuh); 0: none do
  // dk with dq, and dv, by works of their own, where registers do not hold both: scores are
  // computed twice, six products in place of five.
  bool split = false;
  bool softcap = false;

  constexpr bool operator==(const BwdTraits&) const = default;
};

namespace bwd {

inline constexpr int kMathWarpgroups = 2;
inline constexpr int kWarpgroupKeys = 64;                       // those of one wgmma
inline constexpr int kKeys = kMathWarpgroups * kWarpgroupKeys;  // of a block
inline constexpr int kNumThreads = (2 + kMathWarpgroups) * kWarpgroupThreads;

constexpr int works_per_block(const BwdTraits& t) { return t.split ? 2 : 1; }
constexpr WorkKind kind_with_dk(const BwdTraits& t) {
  return t.split ? WorkKind::kDkAndDq : WorkKind::kAll;
}
// Works for dv alone have rings of Q and dO of their own, in the same place and in that of V, which
// they do not read. The others' dO is read for dP alone and free soon: where works are split one
// stage of it is enough, and dq has the room.
constexpr int q_stages(const BwdTraits& t, WorkKind kind) {
  return kind == WorkKind::kDv ? t.dv_stages : t.stages;
}
constexpr int dout_stages(const BwdTraits& t, WorkKind kind) {
  return kind == WorkKind::kDv ? t.dv_stages : t.dout_stages;
}

enum Role { kLoadAndReduce, kMath0, kMath1, kDq };  // warpgroups
inline constexpr int kReduceWarps = 2;
// The number of the schedule warp in the first warpgroup: it comes after the load warp and the
// reducing ones.
inline constexpr int kScheduleWarp = 1 + kReduceWarps;

// Whether the tensor cores take lse off S, as they take delta off dP. With softcap, of which S is
// still to be made, threads do.
constexpr bool multiplies_lse(const BwdTraits& t) { return !t.softcap; }
// Whether a math warpgroup keeps its keys of K in registers for S: shared memory is read for them
// once a work.
constexpr bool holds_keys(const BwdTraits& t) { return t.head_dim <= 96; }
// How many products begin as a product of statistics, not as 0: dP's (delta), and S's (lse), which
// keys in registers need under softcap too, where its factor is 0.
constexpr int num_statistic_products(const BwdTraits& t) {
  return multiplies_lse(t) || holds_keys(t) ? 2 : 1;
}

// Blocks of queries of a step.
constexpr int q_blocks(const BwdTraits& t) { return t.q_rows / kQueryRows; }
// Columns of dq that are computed at a time, and how often in a block and in a step.
constexpr int dq_columns(const BwdTraits& t) { return dq_part_columns(t.head_dim); }
constexpr int dq_parts_of_block(const BwdTraits& t) { return t.head_dim / dq_columns(t); }
// Parts of dq that one product computes: at 192 and 96 columns all of a block, so that dS, of which
// 192 columns leave room for one stage, is read once and is free behind that product.
constexpr int dq_parts_at_once(const BwdTraits& t) {
  return t.head_dim == 192 || t.head_dim == 96 ? dq_parts_of_block(t) : 1;
}
constexpr int dq_parts(const BwdTraits& t) { return q_blocks(t) * dq_parts_of_block(t); }
// Parts of dq have barriers apart from the stages, those of one step for each reducing warp: a warp
// that waits for its own only never misses a phase.
constexpr int dq_barriers(const BwdTraits& t) { return kReduceWarps * dq_parts(t); }

// Registers of a thread: 65536 / 128 = 512 for one thread of each warpgroup.
struct RegisterSplit {
  int load_and_reduce;
  int math;
  int dq;
};
constexpr RegisterSplit register_split(const BwdTraits& t) {
  const int columns = dq_parts_at_once(t) * dq_columns(t);
  if (columns > 96) return {32, 176, 128};
  if (columns > 64) return {32, 200, 80};
  return {32, 208, 64};
}

// Byte offsets in dynamic shared memory, whose base is 1024-byte aligned.
struct SmemLayout {
  int k;  // [k_stage][slab][kKeys rows]
  // Behind one another: what works for dv have of further stages lies in V, from both its ends.
  int dout;    // [dout_stage][slab][q_rows rows]
  int v;       // [slab][kKeys rows]
  int q;       // [stage, the last first][slab][q_rows rows]
  int finish;  // [finish_stage][kFinishRows x kFinishColumns]: f32, then 16 bits
  int ds;      // [ds_stage][kKeys rows][kQueryRows]: transposed
  int stats;   // [stat_stages]: of q_rows rows, StatisticTerms; with softcap then -lse log2(e)
  // Of StatisticTerms: for dP, for S. Not at the end: a product reads the same eight rows again and
  // again, but compute-sanitizer supposes that it reads as many rows as its operand has.
  int factors;
  int dq;        // [dq_stage][4 warps][dq_columns / 8][32 lanes][4], f32
  int work;      // [kWorkSlots]: Work
  int barriers;  // uint64_t[barriers().count()]
  int total;
};
constexpr int k_bytes(const BwdTraits& t) { return kKeys * t.head_dim * kElementBytes; }
constexpr int v_bytes(const BwdTraits& t) { return kKeys * t.head_dim_v * kElementBytes; }
constexpr int q_bytes(const BwdTraits& t) { return t.q_rows * t.head_dim * kElementBytes; }
constexpr int dout_bytes(const BwdTraits& t) { return t.q_rows * t.head_dim_v * kElementBytes; }
// By how many bytes the stages of works for dv exceed those of the other works.
constexpr int extra_q_bytes(const BwdTraits& t) {
  return t.split ? (t.dv_stages - t.stages) * q_bytes(t) : 0;
}
constexpr int extra_dout_bytes(const BwdTraits& t) {
  return t.split ? (t.dv_stages - t.dout_stages) * dout_bytes(t) : 0;
}
inline constexpr int kFinishBytes = kFinishRows * kFinishColumns * 4;
inline constexpr int kDsBytes = kKeys * kQueryRows * kElementBytes;
constexpr int dq_bytes(const BwdTraits& t) { return kQueryRows * dq_columns(t) * 4; }
// A core matrix of an unswizzled operand has 8 rows of 8 columns, side by side.
inline constexpr int kCoreRows = 8, kCoreMatrixBytes = kCoreRows * 16;
constexpr int terms_bytes(const BwdTraits& t) {
  return t.q_rows * static_cast<int>(sizeof(StatisticTerms));
}
constexpr int stage_statistics_bytes(const BwdTraits& t) {
  return terms_bytes(t) + (multiplies_lse(t) ? 0 : t.q_rows * 4);
}
constexpr int stat_stages(const BwdTraits& t) { return t.split ? t.dv_stages : t.stages; }
// Whether works say what they compute. Where all compute the same they need not, and with softcap
// shared memory has no room for it at 128 columns; without softcap, when nobody reads it, ptxas
// keeps addresses in other registers: 0.99 of the rate (docs/kernels/bwd_sm90_steps.md, "Softcap").
constexpr bool works_have_kinds(const BwdTraits& t) { return t.split || !t.softcap; }
constexpr int work_bytes(const BwdTraits& t) { return works_have_kinds(t) ? 76 : 68; }
inline constexpr int kWorkSlots = 2;

// Barriers, in the order of shared memory: a row of the table each.
enum BarrierKind {
  kWorkFull,
  kWorkEmpty,
  kWorkWanted,
  kKFull,
  kKEmpty,
  kVFull,
  kVEmpty,
  kQFull,
  kQEmpty,
  kDoutFull,
  kDoutEmpty,
  kDsFull,
  kDsEmpty,
  kDqFull,
  kDqEmpty,
  kRaw,
  kFinishFull,
  kNumBarrierKinds
};
// The barriers for tiles with a tail: one for each warp that loads.
enum RawBarrier { kRawOfLoad, kRawOfSchedule, kRawBarriers };
constexpr BarrierTable<kNumBarrierKinds> barriers(const BwdTraits& t) {
  const int math_warps = 4 * kMathWarpgroups, dq_warps = 4;
  const int qs = t.stages + t.dv_stages, douts = t.dout_stages + t.dv_stages;  // a ring each
  const char* loaded = "its warp + TMA bytes, or that warp after clearing the tail";
  return {{
      {"work_full", kWorkSlots, 1, Start::kTaken, "schedule", "all others"},
      {"work_empty", kWorkSlots, 1 + kReduceWarps + math_warps + dq_warps, Start::kFree,
       "all others, when they are done with it", "schedule"},
      {"work_wanted", 1, 1, Start::kFree, "load warp, after a work's last loads", "schedule"},
      {"k_full", t.k_stages, 1, Start::kTaken, loaded, "math, dq"},
      {"k_empty", t.k_stages, math_warps + dq_warps, Start::kFree,
       "math and dq warps, after their products, or when dv has left its place", "schedule"},
      {"v_full", 1, 1, Start::kTaken, loaded, "math; load, where stages for dv lie there"},
      {"v_empty", 1, math_warps, Start::kFree,
       "math warps, when dk, or dk and dv, have left, or after the last dV", "schedule"},
      {"q_full", qs, 1, Start::kTaken, loaded, "math"},
      {"q_empty", qs, math_warps, Start::kFree, "math warps, after dK or S", "load"},
      {"dout_full", douts, 1, Start::kTaken, loaded, "math"},
      {"dout_empty", douts, math_warps, Start::kFree, "math warps, after dV or dP", "load"},
      {"ds_full", t.ds_stages, math_warps, Start::kTaken, "math warps, after their rows are there",
       "dq"},
      {"ds_empty", t.ds_stages, dq_warps, Start::kFree, "dq warps, after dQ", "math"},
      {"dq_full", dq_barriers(t), dq_warps, Start::kTaken, "dq warps, after their rows are there",
       "reduce"},
      {"dq_empty", dq_barriers(t), 1, Start::kTaken, "reduce, after the copy engine has read",
       "dq"},
      {"raw", kRawBarriers, 1, Start::kTaken, "its warp + TMA bytes",
       "load, schedule: each its own, before clearing a tail"},
      {"finish_full", t.finish_stages, 1, Start::kTaken, "schedule + bytes", "schedule"},
  }};
}

constexpr SmemLayout smem_layout(const BwdTraits& t) {
  SmemLayout s{};
  s.dout = s.k + t.k_stages * k_bytes(t);
  s.v = s.dout + t.dout_stages * dout_bytes(t);
  s.q = s.v + v_bytes(t);
  s.finish = s.q + t.stages * q_bytes(t);
  s.ds = s.finish + t.finish_stages * kFinishBytes;
  s.stats = s.ds + t.ds_stages * kDsBytes;
  s.factors = s.stats + stat_stages(t) * stage_statistics_bytes(t);
  s.dq = s.factors + num_statistic_products(t) * kCoreMatrixBytes;
  s.work = s.dq + t.dq_stages * dq_bytes(t);
  s.barriers = s.work + (kWorkSlots * work_bytes(t) + 7) / 8 * 8;
  s.total = s.barriers + barriers(t).count() * 8;
  return s;
}

// Registers that a math thread holds at once: dK, dV, and of each block of a step scores or dP, and
// P or dS; and K where it is held.
constexpr int live_registers(const BwdTraits& t) {
  const int larger = t.head_dim > t.head_dim_v ? t.head_dim : t.head_dim_v;
  return (t.split ? larger : t.head_dim + t.head_dim_v) / 2 + t.q_rows / 4 * 3 +
         (holds_keys(t) ? t.head_dim / 4 : 0);
}

// nullptr, or what is wrong with a variant. Every tuning row is checked with it.
constexpr const char* why_not(const BwdTraits& t) {
  if (t.stages < (t.split ? 1 : 2) || t.stages > 4)
    return "Q has two to four stages; one to four where dk and dv are split";
  if (t.split ? t.dout_stages < 1 || t.dout_stages > t.stages : t.dout_stages != t.stages)
    return "dO has as many stages as Q; or fewer where dk and dv are split";
  if (t.split ? t.dv_stages < t.stages || t.dv_stages > 4 : t.dv_stages != 0)
    return "works for dv, where there are some, have as many stages as the others or more";
  if (extra_q_bytes(t) + extra_dout_bytes(t) > v_bytes(t))
    return "what works for dv have more of stages does not fit the place of V";
  if (t.q_rows != kQueryRows && t.q_rows != 2 * kQueryRows)
    return "a step has one or two blocks of 64 queries";
  if (t.q_rows > kQueryRows && (t.split || t.softcap))
    return "with two blocks a step neither split nor softcap";
  if (t.k_stages < 1 || t.k_stages > (t.split ? 1 : 2))
    return "K has one or two stages; one where dk and dv are split";
  if (t.ds_stages < q_blocks(t)) return "dS has a stage for each block of a step at least";
  if (t.dq_stages > dq_barriers(t)) return "dq has no more stages than barriers";
  if (t.finish_stages != 0 && (t.finish_stages < 3 || t.split || dq_columns(t) != kFinishColumns))
    return "where works finish dq, three stages at least, of parts of 64 columns, and no split";
  if (t.head_dim % 32 != 0 || t.head_dim_v % 32 != 0) return "head dims are multiples of 32";
  if (smem_layout(t).total > kMaxSmemBytes) return "shared memory exceeds 227 KiB";
  if (live_registers(t) + 16 > register_split(t).math)
    return "dK, dV, P and dP exceed the registers";
  return nullptr;
}

}  // namespace bwd
}  // namespace fa4::sm90
