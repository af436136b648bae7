// dV and dK of a CTA's keys from tensor memory to global memory, by the compute warpgroups, a key a
// thread.
#pragma once

#include "kernels/backward/gradient_piece.cuh"
#include "kernels/backward/subgroup_sums.cuh"
#include "kernels/sm100/backward/context.cuh"

namespace fa4::sm100::bwd {

// kColumns columns of dk or dv of a warp's 32 keys in tensor memory, as subgroups hand them
// to one another.
template <int kColumns>
struct HeldSums {
  ptx::TmemAddr from;
  int warp;        // of the warpgroup
  int offset = 0;  // among a block's sums

  __device__ void write(float* sums) const {
    visit([&](float(&r)[kChunk], ptx::TmemAddr, int first) { write_sums(r, place(sums, first)); });
  }
  __device__ void add_to(float* sums) const {
    visit([&](float(&r)[kChunk], ptx::TmemAddr, int first) { add_to_sums(r, place(sums, first)); });
  }
  __device__ void add(float* sums) const {
    visit([&](float(&r)[kChunk], ptx::TmemAddr at, int first) {
      add_sums<4>(r, place(sums, first));
      float lower[16], upper[16];
#pragma unroll
      for (int i = 0; i < 16; ++i) lower[i] = r[i], upper[i] = r[16 + i];
      ptx::tcgen05_st_32x32b<0>(at, lower);
      ptx::tcgen05_st_32x32b<16>(at, upper);
    });
    ptx::tcgen05_wait_st();
  }

 private:
  template <class Body>
  __device__ void visit(const Body& body) const {
#pragma unroll 1
    for (int column = 0; column < kColumns; column += kChunk) {
      float r[kChunk];
      ptx::tcgen05_ld_and_wait_32x32b(r, from + column);
      body(r, from + column, column);
    }
  }
  __device__ float* place(float* sums, int column) const {
    return sums + offset + (warp * kColumns + column) * kWarpThreads;
  }
};

template <BwdTraits T, WorkKind kKind>
class SumStore {
 public:
  __device__ SumStore(const Context<T, kKind>& context, ptx::TmemAddr lanes, int warpgroup, int row)
      : c(context), p(context.params), lanes(lanes), warpgroup(warpgroup), row(row) {}

  // The first warpgroup's is dV, the other one's dK; or each has half of the columns of one.
  __device__ void run(const Work& w) const {
    if (w.steps > 0) {
      c.wait(kSumsFull, 0, 0);
      ptx::tcgen05_fence_after_thread_sync();
    }
    if constexpr (kKind == WorkKind::kDv) {
      store_dv<T.head_dim_v / kComputeWarpgroups>(w, warpgroup);
    } else if constexpr (kKind == WorkKind::kDkAndDq) {
      store_dk<T.head_dim / kComputeWarpgroups>(w, warpgroup);
    } else if (warpgroup == 0) {
      store_dv<T.head_dim_v>(w, 0);
    } else {
      store_dk<T.head_dim>(w, 0);
    }
  }

 private:
  // The `half`th kColumns columns.
  template <int kColumns>
  __device__ void store_dv(const Work& w, int half) const {
    const int first = half * kColumns;
    store_all<kColumns>(w, p.gradients.dv, first, 1.0f,
                        {lanes + (c.kTmem.dv + first), warp(), kKeys * first});
  }
  template <int kColumns>
  __device__ void store_dk(const Work& w, int half) const {
    const int first = half * kColumns;
    store_all<kColumns>(w, p.gradients.dk, first, p.scale,
                        {lanes + (c.kTmem.dk + first), warp(), kKeys * (T.head_dim_v + first)});
  }

  // This thread's warp in the warpgroup.
  __device__ int warp() const { return __shfl_sync(0xffffffffu, row / kWarpThreads, 0); }

  // Where a group is cut, the subgroup that ends with the sums of all stores them; zeros, for keys
  // that nobody sees, are stored by the first one.
  template <int kColumns>
  __device__ void store_all(const Work& w, const RowTensor& tensor, int first_column, float factor,
                            const HeldSums<kColumns>& held) const {
    if (w.steps == 0) {
      if (w.head % p.subgroups != 0) return;
    } else if (p.workspace.subgroup_sums != nullptr && w.first_key < w.sequence.seqlen_k) {
      constexpr int kWarps = kWarpgroupThreads / kWarpThreads;
      constexpr int kFirst = kKind == WorkKind::kDkAndDq ? kComputeWarpgroups * kWarps : 0;
      const SubgroupSums sums(p, w.sequence, w.head, w.first_key,
                              kFirst + warpgroup * kWarps + held.warp);
      if (!sums.collect(held)) return;
    }
    store<kColumns>(w, tensor, first_column, factor, held.from);
  }

  // Zeros for keys that nobody sees.
  template <int kColumns>
  __device__ void store(const Work& w, const RowTensor& tensor, int first_column, float factor,
                        ptx::TmemAddr from) const {
    const int key = w.first_key + row;
    const GradientRow to(tensor, p.gradients.is_f32 != 0, key < w.sequence.seqlen_k,
                         w.sequence.batch, w.sequence.offset_k + key, w.head / p.subgroups);
#pragma unroll 1
    for (int column = 0; column < kColumns; column += kChunk) {
      float r[kChunk] = {};
      if (w.steps > 0) ptx::tcgen05_ld_and_wait_32x32b(r, from + column);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) r[i] *= factor;
      to.template store<T.element>(first_column + column, r);
    }
  }

  const Context<T, kKind>& c;
  const BwdParams& p;
  const ptx::TmemAddr lanes;  // of this warp
  const int warpgroup;        // which one of the two
  const int row;              // of the keys: a lane of tensor memory
};

}  // namespace fa4::sm100::bwd
