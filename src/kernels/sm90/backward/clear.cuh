// Zeros where dq adds up. Works clear the sums of a later section of heads, so that zeros are in
// the L2 cache when the first product is added to them: those of a kernel before this one go to
// DRAM and come back. The preprocess clears those of the first sections.
//
// Why this cannot deadlock: works are taken in order, and a work waits only for works of earlier
// sections, which have been taken. A work clears its share as soon as the work before it in its CTA
// has left V's place; that work waits only for earlier ones too, so it gets there.
#pragma once

#include "kernels/ptx/global.cuh"
#include "kernels/ptx/sync.cuh"
#include "kernels/sm90/backward/context.cuh"

namespace fa4::sm90::bwd {

__device__ inline Section section_of(const BwdParams& p, uint32_t number) {
  return section_at(number, num_key_heads(p), p.order.sections);
}
__device__ inline Section section_of(const BwdParams& p, const Work& work) {
  return section_of_tile(work.index, num_key_heads(p), num_key_blocks(p), p.order.sections);
}
template <BwdTraits T>
__device__ inline uint32_t works_of(const BwdParams& p, const Section& section) {
  return section.heads * num_key_blocks(p) * works_per_block(T);
}

// A reducing thread: until so many have counted, and what they wrote or added may be added to.
__device__ inline void wait_for_count(const uint32_t* count, uint32_t wanted) {
  while (ptx::ld_acquire_gpu(count) < wanted) {
  }
  ptx::fence_proxy_async();
}

// The blocks of queries of a section of heads that one work clears or finishes.
struct BlockShare {
  uint32_t first_of_section;  // among the blocks of all heads
  uint32_t begin;             // from that one on; not below `end`: none
  uint32_t end;
};
// The blocks of section `of` that fall to `work`; the works of section `own` share them.
template <BwdTraits T>
__device__ inline BlockShare share_of(const BwdParams& p, const WorkOf<T>& work, const Section& own,
                                      const Section& of) {
  const uint32_t blocks_of_head = p.group * num_query_blocks(p.sequences.seqlen_q);
  const uint32_t blocks = of.heads * blocks_of_head;
  const uint32_t works = works_of<T>(p, own);
  const uint32_t place = (work.index - own.first_head * num_key_blocks(p)) * works_per_block(T) +
                         (work_kind_of(work) == WorkKind::kDv ? 1 : 0);
  const uint32_t share = (blocks + works - 1) / works, begin = place * share;
  return {of.first_head * blocks_of_head, begin, min(begin + share, blocks)};
}

// A warp, for a work whether it has keys or not.
template <BwdTraits T>
__device__ inline void clear_share(const BwdParams& p, const WorkOf<T>& work) {
  if (p.workspace.cleared == nullptr) return;
  const Section own = section_of(p, work);
  const uint32_t section = own.number + kSectionsAhead;
  if (section >= static_cast<uint32_t>(p.order.sections)) return;
  const BlockShare share = share_of<T>(p, work, own, section_of(p, section));
#pragma unroll 1
  for (uint32_t i = share.begin; i < share.end; ++i) {
    const QueryBlock block = query_block(p, share.first_of_section + i);
    if (block.is_inside()) clear_sums<32>(p.workspace, block.block, T.head_dim);
  }
  __syncwarp();
  if (threadIdx.x % 32 == 0) ptx::red_release_gpu_add(&p.workspace.cleared[section], 1);
}

// A reducing thread, before its first addition for a work.
template <BwdTraits T>
__device__ inline void wait_for_zeros(const BwdParams& p, const Work& work) {
  if (p.workspace.cleared == nullptr) return;
  const uint32_t section = section_of(p, work).number;
  if (section < kSectionsAhead) return;
  wait_for_count(&p.workspace.cleared[section],
                 works_of<T>(p, section_of(p, section - kSectionsAhead)));
}

}  // namespace fa4::sm90::bwd
