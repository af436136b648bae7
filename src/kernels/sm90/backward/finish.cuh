// dq from its sums, by the schedule warp: a work finishes its share of the blocks of a section some
// way before its own, whose sums are in the L2 cache still. The postprocess finishes the last
// sections'.
//
// Nobody waits for works that are not yet taken: those of an earlier section were, and each has its
// loads under way before its schedule warp finishes anything.
#pragma once

#include "kernels/ptx/bulk.cuh"
#include "kernels/ptx/math.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/sm90/backward/clear.cuh"
#include "kernels/tile/pack.cuh"

namespace fa4::sm90::bwd {

// Counts a work as ended. A reducing thread calls it when it has added the last sums of the work.
__device__ inline void count_end(const BwdParams& p, const Work& work) {
  if (p.workspace.ended == nullptr) return;
  ptx::cp_async_bulk_wait_group<0>();
  ptx::red_release_gpu_add(&p.workspace.ended[section_of(p, work).number], 1);
}

template <BwdTraits T>
class Finisher {
 public:
  __device__ explicit Finisher(const Context<T>& context) : c(context), p(context.params) {}

  // The share of a work; whether it has any.
  __device__ bool run(const WorkOf<T>& work) {
    if (p.workspace.ended == nullptr) return false;
    const Section own = section_of(p, work);
    if (own.number < static_cast<uint32_t>(p.order.finish_behind)) return false;
    const Section of = section_of(p, own.number - p.order.finish_behind);
    const BlockShare share = share_of<T>(p, work, own, of);
    if (share.begin >= share.end) return false;
    if (lane() == 0) {
      wait_for_count(&p.workspace.ended[of.number], kReduceWarps * works_of<T>(p, of));
    }
    __syncwarp();
    finish(share.first_of_section + share.begin, share.end - share.begin);
    return true;
  }

  // Before the CTA ends.
  __device__ void wait_for_stores() const {
    if (lane() == 0) ptx::cp_async_bulk_wait_group<0>();
  }

 private:
  static constexpr int kPieces = kQueryRows * T.head_dim * 4 / kFinishBytes;  // of a block
  using State = PipelineState<T.finish_stages>;

  // Blocks of a dense batch lie one behind the other.
  __device__ void finish(uint32_t block, uint32_t num_blocks) {
    const uint32_t end = begun + num_blocks * kPieces;
    const float* from = p.workspace.dq + int64_t{block} * (kQueryRows * T.head_dim);
    load(from, {begun});
#pragma unroll 1
    for (; begun != end; ++block) {
      const uint32_t blocks = num_query_blocks(p.sequences.seqlen_q),
                     index_in_head = block / blocks;
      const int row = (block - index_in_head * blocks) * kQueryRows;
      const int batch = index_in_head / p.heads_q, head = index_in_head - batch * p.heads_q;
#pragma unroll 1
      for (int piece = 0; piece < kPieces; ++piece) {
        from += kFinishBytes / 4;
        if (begun + 1 != end) load(from, {begun + 1});
        convert({begun});
        if (lane() == 0) {
          ptx::cp_async_bulk_tensor_4d_store(&p.maps.dq, c.smem_address(place({begun})),
                                             piece / 4 * kFinishColumns, head,
                                             row + piece % 4 * kFinishRows, batch);
          ptx::cp_async_bulk_commit_group();
        }
        ++begun;
      }
    }
  }

  __device__ void load(const float* from, State to) const {
    if (lane() != 0) return;
    ptx::cp_async_bulk_wait_group_read<1>();  // what was here has been stored
    const ptx::SmemAddr full = c.barrier(kFinishFull, to.stage());
    ptx::mbarrier_arrive_expect_tx(full, kFinishBytes);
    ptx::cp_async_bulk_load(c.smem_address(place(to)), from, kFinishBytes, full);
  }

  // A stage's sums to rows in its first half, as TMA reads them, in two steps of 32 columns: what
  // the first one writes all lanes have read.
  __device__ void convert(State at) const {
    wait(c.barrier(kFinishFull, at.stage()), at.phase());
    const int thread = lane();
    const auto* sums = reinterpret_cast<const float4*>(c.smem + place(at)) + thread;
    // Of four 8 x 8 matrices: rows 0 to 7 of 8 columns, the others of them, and of the next ones.
    const int row = thread % 16, group = thread / 16;
    const ptx::SmemAddr to = c.smem_address(place(at)) + row * (kFinishColumns * kElementBytes);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t x[4][2];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float4 four = sums[32 * (4 * half + i)];
        x[i][0] = pack<T.element>(four.x * p.scale, four.y * p.scale);
        x[i][1] = pack<T.element>(four.z * p.scale, four.w * p.scale);
        if (i % 2 == 1) __syncwarp();  // few registers: no more than two loads at a time
      }
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const int piece = 4 * half + i + group;
        ptx::stmatrix_x4(to + 16 * (piece ^ slab_swizzle<kFinishColumns>(row)), x[i][0], x[i][1],
                         x[i + 1][0], x[i + 1][1]);
      }
    }
    ptx::fence_proxy_async_shared();
    __syncwarp();
  }

  // Where it is asked for: ptxas has no register for what would follow from it in every work.
  __device__ static int lane() { return static_cast<int>(ptx::mov_tid_x() % 32); }
  __device__ static int place(State of) {
    return Context<T>::kSmem.finish + of.stage() * kFinishBytes;
  }

  const Context<T>& c;
  const BwdParams& p;
  uint32_t begun = 0;  // pieces
};

}  // namespace fa4::sm90::bwd
