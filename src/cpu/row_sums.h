// The sums of a row over a part of its keys, and how those of two parts become one.
#pragma once

#include <cstdint>

namespace fa4::internal {

// `max`: of the scores times log2(e), possibly stale; -inf: none yet. `sum`: of the weights
// 2^(score - max). `o`: of the weights times values.
struct RowSums {
  float max;
  float sum;
  const float* o;
};

// A part's sums in memory: max, sum, then `dim` floats.
void store_sums(const RowSums& part, int64_t dim, float* sums);
inline RowSums sums_at(const float* sums) { return {sums[0], sums[1], sums + 2}; }

// The same of several parts, in double: floats would round once a part. The first part of a row is
// taken as it is; the others are added in their order.
void set_sums(const RowSums& part, int64_t dim, double* sums);
void add_sums(const RowSums& part, int64_t dim, double* sums);
// As floats, those of values at `o`.
RowSums round_sums(const double* sums, int64_t dim, float* o);

}  // namespace fa4::internal
