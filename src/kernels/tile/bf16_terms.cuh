// A float as the sum of three bf16, for products that take it off their sums.
#pragma once

#include "kernels/tile/pack.cuh"
#include "kernels/tile/unpack.cuh"

namespace fa4 {

// bf16 has 8 bits of a float's 24. What is not finite has no rest. The last term is yet to be
// rounded, as packing it does.
__device__ inline void split_in_terms(float x, float (&terms)[3]) {
  constexpr Element kTermType = Element::kBF16;
  terms[0] = unpack_lower<kTermType>(pack<kTermType>(x, 0.0f));
  const float rest = fabsf(terms[0]) < kInfinity ? x - terms[0] : 0.0f;
  terms[1] = unpack_lower<kTermType>(pack<kTermType>(rest, 0.0f));
  terms[2] = rest - terms[1];
}

}  // namespace fa4
