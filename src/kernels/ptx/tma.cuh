// The bulk tensor copy engine (TMA): tiles of a tensor map between global and shared memory.
#pragma once

#include "kernels/base/tensor_map.h"
#include "kernels/ptx/address.cuh"
#include "kernels/ptx/cluster.cuh"

namespace fa4::ptx {

// cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [dstMem], [tensorMap,
// coords], [mbar]; PTX ISA, "cp.async.bulk.tensor", sm_90
__device__ inline void cp_async_bulk_tensor_4d_load(SmemAddr to, const TensorMap* map,
                                                    SmemAddr barrier, int c0, int c1, int c2,
                                                    int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
      "%4, %5, %6}], [%2];" ::"r"(to.value),
      "l"(map), "r"(barrier.value), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}

// cp.async.bulk.tensor.4d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes
// [dstMem], [tensorMap, coords], [mbar];  the barrier may lie in the other CTA of the pair PTX ISA,
// "cp.async.bulk.tensor", sm_100a
__device__ inline void cp_async_bulk_tensor_4d_load_pair(SmemAddr to, const TensorMap* map,
                                                         ClusterAddr barrier, int c0, int c1,
                                                         int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to.value),
      "l"(map), "r"(barrier.value), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}

// cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [dstMem], [tensorMap,
// coords], [mbar]; PTX ISA, "cp.async.bulk.tensor", sm_90
__device__ inline void cp_async_bulk_tensor_5d_load(SmemAddr to, const TensorMap* map,
                                                    SmemAddr barrier, int c0, int c1, int c2,
                                                    int c3, int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
      "%4, %5, %6, %7}], [%2];" ::"r"(to.value),
      "l"(map), "r"(barrier.value), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

// cp.async.bulk.tensor.5d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes
// [dstMem], [tensorMap, coords], [mbar];  the barrier may lie in the other CTA of the pair PTX ISA,
// "cp.async.bulk.tensor", sm_100a
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
