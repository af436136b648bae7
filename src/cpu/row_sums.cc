#include "cpu/row_sums.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fa4::internal {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The larger maximum; a NaN stays.
float larger(float a, float b) { return !(b <= a) ? b : a; }

// Weights that underflowed are still more than none: 0 times infinity stays one.
float weighted(float factor, float sum) {
  return factor == 0 && std::isinf(sum) ? sum : factor * sum;
}

}  // namespace

void set_sums(const RowSums& part, int64_t dim, float* sums) {
  sums[0] = part.max;
  sums[1] = part.sum;
  std::copy_n(part.o, dim, sums + 2);
}

void add_sums(const RowSums& part, int64_t dim, float* sums) {
  const float top = larger(sums[0], part.max);
  // Until a score is above -infinity, all weights are 0, relative to nothing.
  const bool none = top == -kInfinity;
  const auto before = none ? 1.0f : static_cast<float>(std::exp2(double{sums[0]} - top));
  const auto now = none ? 1.0f : static_cast<float>(std::exp2(double{part.max} - top));
  sums[0] = top;
  sums[1] = before * sums[1] + now * part.sum;
  float* o = sums + 2;
  if (before > 0 && now > 0) {
    for (int64_t d = 0; d < dim; ++d) o[d] = before * o[d] + now * part.o[d];
  } else {
    for (int64_t d = 0; d < dim; ++d) o[d] = weighted(before, o[d]) + weighted(now, part.o[d]);
  }
}

}  // namespace fa4::internal
