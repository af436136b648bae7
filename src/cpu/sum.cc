#include "cpu/sum.h"

#include <algorithm>

#include "core/rounding.h"

namespace fa4::internal {
namespace {

constexpr int64_t kElementsPerTask = int64_t{1} << 16;  // far more than handing out a task costs

void sum_row(const SumArgs& a, int64_t row) {
  const char* first = reinterpret_cast<const char*>(a.parts + row * a.part_pitch);
  for (int64_t column = 0; column < a.columns; ++column) {
    float total = reinterpret_cast<const float*>(first)[column];
    for (int part = 1; part < a.num_parts; ++part) {
      total += reinterpret_cast<const float*>(first + part * a.part_stride)[column];
    }
    store_from_float(a.to_type, a.to, row * a.to_pitch + column, total);
  }
}

}  // namespace

void cpu_sum(const SumArgs& args, ThreadPool& pool) {
  if (args.rows == 0 || args.columns == 0) return;
  const int64_t rows_per_task = std::max<int64_t>(1, kElementsPerTask / args.columns);
  pool.run(ceil_div(args.rows, rows_per_task), [&](int64_t task, int) {
    const int64_t end = std::min(args.rows, (task + 1) * rows_per_task);
    for (int64_t row = task * rows_per_task; row < end; ++row) sum_row(args, row);
  });
}

}  // namespace fa4::internal
