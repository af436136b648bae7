// The bulk tensor copy engine (TMA): tiles of a tensor map between global and shared memory.
#pragma once

#include "kernels/base/tensor_map.h"
#include "kernels/ptx/address.cuh"
#include "kernels/ptx/cluster.cuh"

namespace fa4::ptx {

// How long lines that a copy touches stay in the L2 cache.
struct CachePolicy {
  uint64_t value;
};

// prefetch.tensormap [a];  a hint: a copy will soon read this map, a kernel's parameter
// PTX ISA, "prefetch, prefetchu", sm_90
__device__ inline void prefetch_tensormap(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map));
}

// createpolicy.fractional.L2::evict_first.b64 cache-policy;  the next lines to go
// PTX ISA, "createpolicy", sm_80
__device__ inline CachePolicy createpolicy_evict_first() {
  CachePolicy policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0;" : "=l"(policy.value));
  return policy;
}

// createpolicy.fractional.L2::evict_last.b64 cache-policy;  the last lines to go
// PTX ISA, "createpolicy", sm_80
__device__ inline CachePolicy createpolicy_evict_last() {
  CachePolicy policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0;" : "=l"(policy.value));
  return policy;
}

// cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [dstMem], [tensorMap,
// coords], [mbar];
// PTX ISA, "cp.async.bulk.tensor", sm_90
__device__ inline void cp_async_bulk_tensor_4d_load(SmemAddr to, const TensorMap* map,
                                                    SmemAddr barrier, int c0, int c1, int c2,
                                                    int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
      "%4, %5, %6}], [%2];" ::"r"(to.value),
      "l"(map), "r"(barrier.value), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}
// The same with .L2::cache_hint and a cache policy.
__device__ inline void cp_async_bulk_tensor_4d_load(SmemAddr to, const TensorMap* map,
                                                    SmemAddr barrier, int c0, int c1, int c2,
                                                    int c3, CachePolicy policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(to.value),
      "l"(map), "r"(barrier.value), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "l"(policy.value)
      : "memory");
}

// cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
// .L2::cache_hint [dstMem], [tensorMap, coords], [mbar], ctaMask, policy;  to the same place in
// each CTA of the mask, whose own barrier in the place of `barrier` counts the bytes
// PTX ISA, "cp.async.bulk.tensor", sm_90
__device__ inline void cp_async_bulk_tensor_4d_load_multicast(SmemAddr to, const TensorMap* map,
                                                              SmemAddr barrier, int c0, int c1,
                                                              int c2, int c3, uint16_t ctas,
                                                              CachePolicy policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::"
      "cluster.L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7, %8;" ::"r"(to.value),
      "l"(map), "r"(barrier.value), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "h"(ctas), "l"(policy.value)
      : "memory");
}

// cp.async.bulk.tensor.4d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes
// [dstMem], [tensorMap, coords], [mbar];  the barrier may lie in the other CTA of the pair
// PTX ISA, "cp.async.bulk.tensor", sm_100a
__device__ inline void cp_async_bulk_tensor_4d_load_pair(SmemAddr to, const TensorMap* map,
                                                         ClusterAddr barrier, int c0, int c1,
                                                         int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to.value),
      "l"(map), "r"(barrier.value), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}

// cp.async.bulk.tensor.2d.shared::cluster.global.tile::gather4.mbarrier::complete_tx::bytes
// [dstMem], [tensorMap, {column, row0, row1, row2, row3}], [mbar];  rows outside are zeros
// PTX ISA, "cp.async.bulk.tensor", sm_100a
__device__ inline void cp_async_bulk_tensor_2d_gather4_load(SmemAddr to, const TensorMap* map,
                                                            SmemAddr barrier, int column,
                                                            const int (&rows)[4]) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile::gather4.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(to.value),
      "l"(map), "r"(barrier.value), "r"(column), "r"(rows[0]), "r"(rows[1]), "r"(rows[2]),
      "r"(rows[3])
      : "memory");
}

// cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [dstMem], [tensorMap,
// coords], [mbar];
// PTX ISA, "cp.async.bulk.tensor", sm_90
__device__ inline void cp_async_bulk_tensor_5d_load(SmemAddr to, const TensorMap* map,
                                                    SmemAddr barrier, int c0, int c1, int c2,
                                                    int c3, int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
      "%4, %5, %6, %7}], [%2];" ::"r"(to.value),
      "l"(map), "r"(barrier.value), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}
// The same with .L2::cache_hint and a cache policy.
__device__ inline void cp_async_bulk_tensor_5d_load(SmemAddr to, const TensorMap* map,
                                                    SmemAddr barrier, int c0, int c1, int c2,
                                                    int c3, int c4, CachePolicy policy) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(to.value),
      "l"(map), "r"(barrier.value), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4), "l"(policy.value)
      : "memory");
}

// cp.async.bulk.prefetch.tensor.5d.L2.global [tensorMap, coords];  what a load will soon read, into
// the L2 cache
// PTX ISA, "cp.async.bulk.prefetch.tensor", sm_90
__device__ inline void cp_async_bulk_prefetch_tensor_5d(const TensorMap* map, int c0, int c1,
                                                        int c2, int c3, int c4) {
  asm volatile("cp.async.bulk.prefetch.tensor.5d.L2.global [%0, {%1, %2, %3, %4, %5}];" ::"l"(map),
               "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
               : "memory");
}

// cp.async.bulk.tensor.5d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes
// [dstMem], [tensorMap, coords], [mbar];  the barrier may lie in the other CTA of the pair
// PTX ISA, "cp.async.bulk.tensor", sm_100a
__device__ inline void cp_async_bulk_tensor_5d_load_pair(SmemAddr to, const TensorMap* map,
                                                         ClusterAddr barrier, int c0, int c1,
                                                         int c2, int c3, int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(to.value),
      "l"(map), "r"(barrier.value), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

// cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [tensorMap, coords], [srcMem];
// PTX ISA, "cp.async.bulk.tensor", sm_90
__device__ inline void cp_async_bulk_tensor_5d_store(const TensorMap* map, SmemAddr from, int c0,
                                                     int c1, int c2, int c3, int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], "
      "[%1];" ::"l"(map),
      "r"(from.value), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}
// The same with .L2::cache_hint and a cache policy.
__device__ inline void cp_async_bulk_tensor_5d_store(const TensorMap* map, SmemAddr from, int c0,
                                                     int c1, int c2, int c3, int c4,
                                                     CachePolicy policy) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.bulk_group.L2::cache_hint [%0, {%2, %3, %4, %5, "
      "%6}], [%1], %7;" ::"l"(map),
      "r"(from.value), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4), "l"(policy.value)
      : "memory");
}

// cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [tensorMap, coords], [srcMem];
// PTX ISA, "cp.async.bulk.tensor", sm_90
__device__ inline void cp_async_bulk_tensor_4d_store(const TensorMap* map, SmemAddr from, int c0,
                                                     int c1, int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(
          map),
      "r"(from.value), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}

// cp.async.bulk.commit_group;
// PTX ISA, "cp.async.bulk.commit_group", sm_90
__device__ inline void cp_async_bulk_commit_group() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// cp.async.bulk.wait_group.read N;  until all but N groups have read their sources
// PTX ISA, "cp.async.bulk.wait_group", sm_90
template <int kPending>
__device__ inline void cp_async_bulk_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// cp.async.bulk.wait_group N;  until all but N groups have written what they write
// PTX ISA, "cp.async.bulk.wait_group", sm_90
template <int kPending>
__device__ inline void cp_async_bulk_wait_group() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace fa4::ptx
