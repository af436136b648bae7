// A consumer warpgroup's products, S = Q Kᵀ and O += P V: their shapes, the descriptors of what
// they read, and the warpgroups' turns at the tensor cores.
#pragma once

#include "kernels/ptx/sync.cuh"
#include "kernels/ptx/wgmma.cuh"
#include "kernels/sm90/forward/context.cuh"
#include "kernels/tile/smem_descriptor.cuh"

namespace fa4::sm90 {

// Ping-pong: the consumer warpgroups issue their products one after the other, so that one
// multiplies while another exponentiates. One alone has no turns to take, and independent ones do
// without.
template <FwdTraits T>
__device__ inline void ping_pong_wait(int warpgroup) {
  if constexpr (!takes_turns(T)) return;
  ptx::barrier_sync(kPingPong + warpgroup, 2 * kWarpgroupThreads);
}
template <FwdTraits T>
__device__ inline void ping_pong_arrive(int warpgroup) {
  constexpr int kCount = consumer_warpgroups(T);
  if constexpr (!takes_turns(T)) return;
  const int next = warpgroup + 1 == kCount ? 0 : warpgroup + 1;
  ptx::barrier_arrive(kPingPong + next, 2 * kWarpgroupThreads);
}

// The low word of the descriptor of a ring's stage, from stage to stage.
template <int kStages>
struct StageDescriptor {
  uint32_t lo;
  uint32_t first, last;
  __device__ StageDescriptor(uint32_t first, uint32_t last) : lo(first), first(first), last(last) {}
  __device__ void next() { lo = lo == last ? first : lo + (last - first) / (kStages - 1); }
};
// With two stages the next one is the sum of both less this one: one subtraction, computed before
// it is needed.
template <>
struct StageDescriptor<2> {
  uint32_t lo;
  uint32_t sum;
  __device__ StageDescriptor(uint32_t first, uint32_t last) : lo(first), sum(first + last) {}
  __device__ void next() { lo = sum - lo; }
};

template <FwdTraits T>
class Products {
 public:
  static constexpr TileLayout kKLayout = kv_layout(T, T.head_dim);
  static constexpr TileLayout kVLayout = kv_layout(T, T.head_dim_v);
  static constexpr int kMmaK = 16;
  static constexpr int kScores = T.tile_n / 2;  // of a thread
  static constexpr int kOutputs = T.head_dim_v / 2;
  using Scores = float[kScores];
  using Probabilities = uint32_t[T.tile_n / kMmaK][4];
  using Outputs = float[kOutputs];

  __device__ explicit Products(const FwdContext<T>& context)
      : c(context),
        k(k_descriptor_lo(0), k_descriptor_lo(T.kv_stages - 1)),
        v(v_descriptor_lo(0), v_descriptor_lo(T.kv_stages - 1)) {}

  // Sets where Q of the tile whose scores come next lies.
  __device__ void set_q(int slot) {
    q_lo = QDescriptor::k_major(c.smem_address(c.kSmem.q + slot * q_slot_bytes(T)));
  }

  // S = Q Kᵀ, K in `stage`. The next descriptor is computed at once: nothing stands between a wait
  // and its product. Independent warpgroups, which pass stages over and lack the registers for
  // that, compute it here.
  __device__ void issue_qk(Scores& rS, int stage) {
    const uint32_t k_lo = T.independent ? k_descriptor_lo(stage) : k.lo;
    constexpr int kSteps = slab_columns(T.head_dim) / kMmaK;
    ptx::wgmma_fence();
#pragma unroll
    for (int slab = 0; slab < num_slabs(T.head_dim); ++slab) {
      Wgmma::template run<kSteps>(
          rS, QDescriptor::descriptor_at(q_lo, slab * kWarpgroupRows * QDescriptor::kRowBytes),
          KDescriptor::descriptor_at(k_lo, slab * kKLayout.slab_bytes), slab > 0);
    }
    ptx::wgmma_commit_group();
    k.next();
  }

  // O += P V, V in `stage`; likewise.
  __device__ void issue_pv(Outputs& rO, const Probabilities& rP, int stage) {
    const uint32_t v_lo = T.independent ? v_descriptor_lo(stage) : v.lo;
    constexpr int kStepBytes = kMmaK / kGroupRows * kVLayout.group_bytes;
    constexpr int kSteps = T.tile_n / kMmaK;
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i + 2 <= kSteps; i += 2) {
      WgmmaPv::template run<2, kStepBytes>(rO, rP + i,
                                           VDescriptor::descriptor_at(v_lo, i * kStepBytes));
    }
    if constexpr (kSteps % 2 == 1) {
      WgmmaPv::template run<1, kStepBytes>(
          rO, rP + kSteps - 1, VDescriptor::descriptor_at(v_lo, (kSteps - 1) * kStepBytes));
    }
    ptx::wgmma_commit_group();
    v.next();
  }

 private:
  using Wgmma = ptx::WgmmaSs<T.tile_n, product_element(T)>;
  using WgmmaPv = ptx::WgmmaRs<T.head_dim_v, product_element(T)>;
  using QDescriptor = WgmmaDescriptor<slab_columns(T.head_dim)>;
  using KDescriptor = WgmmaDescriptor<slab_columns(T.head_dim), kKLayout.group_bytes>;
  using VDescriptor = WgmmaDescriptor<slab_columns(T.head_dim_v), kVLayout.group_bytes>;

  __device__ uint32_t k_descriptor_lo(int stage) const {
    return KDescriptor::k_major(c.smem_address(c.kSmem.k + stage * k_stage_bytes(T)));
  }
  __device__ uint32_t v_descriptor_lo(int stage) const {
    return VDescriptor::mn_major(c.smem_address(c.kSmem.v + stage * v_stage_bytes(T)),
                                 kVLayout.slab_bytes);
  }

  const FwdContext<T>& c;
  uint32_t q_lo = 0;                  // the low word of the descriptor of the rows' Q
  StageDescriptor<T.kv_stages> k, v;  // of the next products
};

}  // namespace fa4::sm90
