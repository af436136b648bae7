// The tensor maps of a forward's loads, on their way before anybody needs them.
#pragma once

#include "kernels/forward/params.h"
#include "kernels/ptx/tma.cuh"

namespace fa4 {

// One thread, before the launch waits for the one before it. Rows of pages are no copies of TMA's.
template <Pages kPages>
__device__ inline void prefetch_maps(const FwdTensorMaps& maps) {
  ptx::prefetch_tensormap(maps.q);
  if constexpr (kPages == Pages::kRows) return;
  ptx::prefetch_tensormap(maps.k);
  ptx::prefetch_tensormap(maps.v);
}

}  // namespace fa4
