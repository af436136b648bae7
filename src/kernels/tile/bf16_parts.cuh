// A float as the sum of three bf16, for products that take it off their sums.
#pragma once

#include "kernels/tile/pack.cuh"
#include "kernels/tile/unpack.cuh"

namespace fa4 {

// bf16 has 8 bits of a float's 24. What is not finite has no rest. The last part is yet to be
// rounded, as packing it does.
__device__ inline void split_in_bf16(float x, float (&parts)[3]) {
  constexpr Element kPart = Element::kBF16;
  parts[0] = unpack_lower<kPart>(pack<kPart>(x, 0.0f));
  const float rest = fabsf(parts[0]) < kInfinity ? x - parts[0] : 0.0f;
  parts[1] = unpack_lower<kPart>(pack<kPart>(rest, 0.0f));
  parts[2] = rest - parts[1];
}

}  // namespace fa4
