// Where a key head's group of query heads is cut into subgroups: dk and dv of a block of keys come
// from the works of all its subgroups to one of them, which stores them.
//
// Subgroups meet at nodes, each of which has a place for sums in the workspace. A work that comes
// to a node and is not its last leaves its sums there and ends; the last one adds them to its own
// and goes on. In any order all subgroups meet at one node, where the first to come writes and the
// others add. In a fixed order two meet at a time, in a tree over the subgroups' numbers: a sum of
// two has the same bits whoever comes first.
//
// A work at a node waits only for works that came to it before, and only until they have written:
// never for one that has not reached its end.
#pragma once

#include "kernels/backward/sequence.cuh"
#include "kernels/ptx/global.cuh"

namespace fa4 {

// A warp's share of a block: some of its sums, with counts of their own. All lanes call together.
class SubgroupSums {
 public:
  // `unit`: the warp's number among those that hold sums of the block, below kSubgroupUnits.
  __device__ SubgroupSums(const BwdParams& p, const Sequence& sequence, int head, int first_key,
                          int unit)
      : w_(p.workspace),
        in_pairs_(p.deterministic != 0),
        subgroups_(p.subgroups),
        subgroup_(head % subgroups_),
        block_(int64_t{head / subgroups_} * w_.key_blocks +
               subgroup_key_blocks_before(p, sequence) + first_key / kSubgroupKeys),
        unit_(unit) {}

  // Whether `held` holds the sums of all subgroups now. Else they are on their way to another one.
  template <class Held>
  __device__ bool collect(Held&& held) const {
    int index = subgroup_, count = subgroups_, first_node = 0;  // those that meet at a level
#pragma unroll 1
    while (count > 1) {
      const int node = in_pairs_ ? index / 2 : 0;
      const int others = in_pairs_ ? min(1, count - 1 - node * 2) : count - 1;
      if (others > 0) {
        const int64_t place = block_ * num_nodes(subgroups_, in_pairs_) + first_node + node;
        SubgroupCounts* counts = w_.subgroup_counts + place * kSubgroupUnits + unit_;
        float* sums = w_.subgroup_sums + place * w_.subgroup_floats;
        const int came_before = come(counts);
        if (came_before < others) {
          if (came_before == 0) {
            held.write(sums);
          } else {
            wait_for(counts, 1);
            held.add_to(sums);
          }
          leave(counts);
          return false;
        }
        wait_for(counts, others);
        held.add(sums);
      }
      first_node += in_pairs_ ? count / 2 : 1;
      index = node;
      count = in_pairs_ ? (count + 1) / 2 : 1;
    }
    return true;
  }

 private:
  __device__ static int come(SubgroupCounts* counts) {
    const uint32_t before = threadIdx.x % 32 == 0 ? ptx::atom_relaxed_gpu_add(&counts->come, 1) : 0;
    return static_cast<int>(__shfl_sync(0xffffffffu, before, 0));
  }
  __device__ static void leave(SubgroupCounts* counts) {
    __syncwarp();  // every lane has written
    if (threadIdx.x % 32 == 0) ptx::red_release_gpu_add(&counts->left, 1);
  }
  // By a vote: as far as ptxas knows, lanes that wait by themselves stay apart, and it computes
  // the main loop's addresses for each of them.
  __device__ static void wait_for(const SubgroupCounts* counts, int wanted) {
    while (__any_sync(0xffffffffu,
                      ptx::ld_acquire_gpu(&counts->left) < static_cast<uint32_t>(wanted))) {
    }
  }

  const BwdWorkspace& w_;
  const bool in_pairs_;
  const int subgroups_, subgroup_;
  const int64_t block_;  // among those of all key heads
  const int unit_;
};

// A thread's share of what a warp holds: kCount floats, of which four lie together, then those of
// the next lane. `to` is the warp's place.
template <int kCount>
__device__ inline void write_sums(const float (&x)[kCount], float* to) {
  auto* of_lane = reinterpret_cast<float4*>(to) + threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kCount; i += 4) {
    of_lane[i / 4 * 32] = float4{x[i], x[i + 1], x[i + 2], x[i + 3]};
  }
}
template <int kCount>
__device__ inline void add_to_sums(const float (&x)[kCount], float* to) {
  float* of_lane = to + threadIdx.x % 32 * 4;
#pragma unroll
  for (int i = 0; i < kCount; i += 4) {
    ptx::red_relaxed_gpu_add_v4_f32(of_lane + i * 32, x[i], x[i + 1], x[i + 2], x[i + 3]);
  }
}
// kAtOnce loads of a thread are under way together.
template <int kAtOnce, int kCount>
__device__ inline void add_sums(float (&x)[kCount], const float* from) {
  static_assert(kCount % (4 * kAtOnce) == 0);
  const auto* of_lane = reinterpret_cast<const float4*>(from) + threadIdx.x % 32;
#pragma unroll
  for (int first = 0; first < kCount; first += 4 * kAtOnce) {
    float4 y[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) y[i] = __ldcg(of_lane + (first / 4 + i) * 32);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      float* to = x + first + 4 * i;
      to[0] += y[i].x, to[1] += y[i].y, to[2] += y[i].z, to[3] += y[i].w;
    }
  }
}

}  // namespace fa4
