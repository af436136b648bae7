#include "cpu/merge.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/rounding.h"
#include "cpu/load.h"

namespace fa4::internal {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kColumns = 256;                        // of a row that are summed at once
constexpr int64_t kBytesPerTask = int64_t{1} << 18;  // far more than handing out a task costs

// One row of one head: where it lies in each tensor, and the maximum of its parts' lse.
struct MergedRow {
  MergedRow(const MergeArgs& given, int64_t row) : a(given) {
    const int64_t h = row % a.heads, i = row / a.heads % a.seqlen, b = row / (a.heads * a.seqlen);
    in_offset = b * a.part_out.batch + i * a.part_out.seqlen + h * a.part_out.head;
    in_lse_offset = b * a.part_lse.batch + i * a.part_lse.seqlen + h * a.part_lse.head;
    out_offset = b * a.output.batch + i * a.output.seqlen + h * a.output.head;
    lse_offset = (b * a.heads + h) * a.seqlen + i;
    for (int64_t part = 0; part < a.num_parts; ++part) {
      if (!(part_lse(part) <= top)) top = part_lse(part);  // a NaN stays
      if (std::isnan(top)) break;
    }
    for (int64_t part = 0; part < a.num_parts; ++part) total += weight(part);
  }

  double part_lse(int64_t part) const { return a.part_lses[part][in_lse_offset]; }
  // -infinity - -infinity would be NaN.
  bool counts(int64_t part) const { return part_lse(part) != -kInfinity; }
  double weight(int64_t part) const { return counts(part) ? std::exp(part_lse(part) - top) : 0; }

  const MergeArgs& a;
  int64_t in_offset = 0, in_lse_offset = 0, out_offset = 0, lse_offset = 0;
  double top = -kInfinity;
  double total = 0;  // of the weights; 0: no part counts
};

template <DType kType>
void add_part(const void* part, int64_t offset, int count, double weight, double* sums) {
  for (int d = 0; d < count; ++d) {
    const float value = load<kType>(part, offset + d);
    // A weight that underflowed is still more than none.
    sums[d] += weight == 0 && std::isinf(value) ? value : weight * value;
  }
}

template <DType kType>
void merge_row(const MergedRow& row) {
  const MergeArgs& a = row.a;
  double sums[kColumns];
  for (int64_t first = 0; first < a.head_dim; first += kColumns) {
    const int count = static_cast<int>(std::min<int64_t>(kColumns, a.head_dim - first));
    std::fill_n(sums, count, 0.0);
    for (int64_t part = 0; part < a.num_parts; ++part) {
      if (!row.counts(part)) continue;
      add_part<kType>(a.part_outs[part], row.in_offset + first, count, row.weight(part) / row.total,
                      sums);
    }
    for (int d = 0; d < count; ++d) {
      store_from_float(a.out_dtype, a.out, row.out_offset + first + d, static_cast<float>(sums[d]));
    }
  }
  if (a.lse == nullptr) return;
  const double lse = row.total == 0 ? -kInfinity : row.top + std::log(row.total);
  a.lse[row.lse_offset] = static_cast<float>(lse);
}

template <DType kType>
void merge_rows(const MergeArgs& a, ThreadPool& pool) {
  const int64_t bytes_per_row = a.num_parts * a.head_dim * size_of(a.dtype);
  const int64_t rows_per_task = std::max<int64_t>(1, kBytesPerTask / bytes_per_row);
  pool.run(ceil_div(a.rows(), rows_per_task), [&](int64_t task, int) {
    const int64_t end = std::min(a.rows(), (task + 1) * rows_per_task);
    for (int64_t row = task * rows_per_task; row < end; ++row) merge_row<kType>(MergedRow(a, row));
  });
}

}  // namespace

void cpu_merge(const MergeArgs& args, ThreadPool& pool) {
  switch (args.dtype) {
    case DType::kF32: merge_rows<DType::kF32>(args, pool); break;
    case DType::kF16: merge_rows<DType::kF16>(args, pool); break;
    case DType::kBF16: merge_rows<DType::kBF16>(args, pool); break;
    case DType::kE4M3: break;  // of stored keys and values alone
  }
}

}  // namespace fa4::internal
