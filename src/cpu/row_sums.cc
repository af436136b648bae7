#include "cpu/row_sums.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fa4::internal {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The larger maximum; a NaN stays.
double larger(double a, double b) { return !(b <= a) ? b : a; }

// Weights that underflowed are still more than none: 0 times infinity stays one.
double weighted(double factor, double sum) {
  return factor == 0 && std::isinf(sum) ? sum : factor * sum;
}

}  // namespace

void store_sums(const RowSums& part, int64_t dim, float* sums) {
  sums[0] = part.max;
  sums[1] = part.sum;
  std::copy_n(part.o, dim, sums + 2);
}

void set_sums(const RowSums& part, int64_t dim, double* sums) {
  sums[0] = part.max;
  sums[1] = part.sum;
  std::copy_n(part.o, dim, sums + 2);
}

void add_sums(const RowSums& part, int64_t dim, double* sums) {
  const double top = larger(sums[0], part.max);
  // Until a score is above -infinity, all weights are 0, relative to nothing.
  const bool none = top == -kInfinity;
  const double before = none ? 1 : std::exp2(sums[0] - top);
  const double now = none ? 1 : std::exp2(part.max - top);
  sums[0] = top;
  sums[1] = before * sums[1] + now * part.sum;
  double* o = sums + 2;
  if (before > 0 && now > 0) {
    for (int64_t d = 0; d < dim; ++d) o[d] = before * o[d] + now * part.o[d];
  } else {
    for (int64_t d = 0; d < dim; ++d) o[d] = weighted(before, o[d]) + weighted(now, part.o[d]);
  }
}

RowSums round_sums(const double* sums, int64_t dim, float* o) {
  for (int64_t d = 0; d < dim; ++d) o[d] = static_cast<float>(sums[2 + d]);
  return {static_cast<float>(sums[0]), static_cast<float>(sums[1]), o};
}

}  // namespace fa4::internal
