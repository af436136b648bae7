#include "cpu/append.h"

#include <algorithm>
#include <cstring>

#include "core/rounding.h"
#include "kernels/append/quotient_math.h"
#include "problem/forward_args.h"

namespace fa4::internal {
namespace {

constexpr int64_t kBytesPerTask = int64_t{1} << 16;  // far more than handing out a task costs

// Elements from the cache's base to key `n` of a sequence and key head.
int64_t offset_of_key(const AttentionProblem& p, const AppendArgs& a, const Strides& strides,
                      int64_t b, int64_t head, int64_t n) {
  const int64_t at = head * strides.head;
  if (p.layout_kv != Layout::kPaged) return at + b * strides.batch + n * strides.seqlen;
  return at + page_of(p, a, b, head, n / p.page_size) * strides.batch +
         n % p.page_size * strides.seqlen;
}

// One row of a head, as it is and where it goes.
struct RowPlace {
  const void* from;
  int64_t from_offset;
  void* to;
  int64_t to_offset;
  float descale;
};

// A number into a cache of bytes goes over its descale.
void store(const AttentionProblem& p, const RowPlace& row, int64_t d, float value) {
  store_from_float(p.kv_dtype, row.to, row.to_offset + d,
                   p.is_quantised() ? odd_quotient(value, row.descale) : value);
}

// Elements [first, end).
void copy_row(const AttentionProblem& p, const RowPlace& row, int64_t first, int64_t end) {
  if (p.is_quantised()) {
    for (int64_t d = first; d < end; ++d) {
      store(p, row, d, load_as_float(p.dtype, row.from, row.from_offset + d));
    }
    return;
  }
  const int bytes = size_of(p.dtype);
  std::memcpy(static_cast<char*>(row.to) + (row.to_offset + first) * bytes,
              static_cast<const char*>(row.from) + (row.from_offset + first) * bytes,
              static_cast<size_t>((end - first) * bytes));
}

void turn_key(const AttentionProblem& p, const AppendArgs& a, const RowPlace& row, int64_t n) {
  const int64_t half = a.rotary_dim / 2;
  const bool interleaved = a.rotary_pairs == RotaryPairs::kInterleaved;
  for (int64_t i = 0; i < half; ++i) {
    const int64_t first = interleaved ? 2 * i : i, second = interleaved ? 2 * i + 1 : i + half;
    const float x = load_as_float(p.dtype, row.from, row.from_offset + first);
    const float y = load_as_float(p.dtype, row.from, row.from_offset + second);
    const float cosine = load_as_float(a.rotary_dtype, a.cos, n * half + i);
    const float sine = load_as_float(a.rotary_dtype, a.sin, n * half + i);
    store(p, row, first, x * cosine - y * sine);
    store(p, row, second, y * cosine + x * sine);
  }
}

// New row `i` of sequence `b`, all heads.
void append_row(const AttentionProblem& p, const AppendArgs& a, int64_t b, int64_t i) {
  const bool packed = p.layout_q == Layout::kPacked;
  const int64_t outer = packed ? 0 : b, row = (packed ? a.cu_seqlens_q[b] : 0) + i;
  const int64_t n = a.positions[b] + i;
  for (int64_t head = 0; head < p.heads_kv; ++head) {
    const auto from = [&](const Strides& s) {
      return outer * s.batch + row * s.seqlen + head * s.head;
    };
    const RowPlace key{a.k, from(a.new_k), a.k_cache, offset_of_key(p, a, p.k, b, head, n),
                       descale_of(p, a, Quantised::kKeys, b, head, n)};
    const RowPlace value{a.v, from(a.new_v), a.v_cache, offset_of_key(p, a, p.v, b, head, n),
                         descale_of(p, a, Quantised::kValues, b, head, n)};
    if (a.rotary_dim > 0) turn_key(p, a, key, n);
    copy_row(p, key, a.rotary_dim, p.head_dim);
    copy_row(p, value, 0, p.head_dim_v);
  }
}

}  // namespace

void cpu_append(const AttentionProblem& p, const AppendArgs& a, ThreadPool& pool) {
  const int64_t bytes = p.heads_kv * (p.head_dim + p.head_dim_v) * size_of(p.dtype);
  const int64_t rows = std::max<int64_t>(1, kBytesPerTask / bytes);  // of a task
  // Few new rows a sequence: a task takes several sequences.
  const int64_t longest = std::max<int64_t>(1, longest_queries(p, a));
  const int64_t tasks_per_sequence = ceil_div(longest, rows);
  const int64_t sequences = tasks_per_sequence > 1 ? 1 : rows / longest;
  pool.run(ceil_div(p.batch, sequences) * tasks_per_sequence, [&](int64_t task, int) {
    const int64_t first = task / tasks_per_sequence * sequences;
    const int64_t part = task % tasks_per_sequence;
    for (int64_t b = first; b < std::min(first + sequences, p.batch); ++b) {
      const int64_t end = std::min((part + 1) * rows, new_rows_of(p, a, b));
      for (int64_t i = part * rows; i < end; ++i) append_row(p, a, b, i);
    }
  });
}

}  // namespace fa4::internal
