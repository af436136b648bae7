#include "cpu/scalar_forward.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/rounding.h"
#include "cpu/exponential.h"
#include "cpu/finish_row.h"
#include "cpu/load.h"
#include "cpu/tensor_rows.h"
#include "kernels/softmax/exp2_math.h"

namespace fa4::internal {
namespace {

constexpr int kMaxBlock = 64;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// One query row: the online softmax over blocks of keys. kType: of q; kKvType: of k and v.
template <DType kType, DType kKvType>
class Row {
 public:
  Row(const AttentionProblem& problem, const ForwardArgs& args, int64_t b, int64_t kv_head,
      int64_t q_offset)
      : p_(problem), args_(args), b_(b), kv_head_(kv_head) {
    for (int64_t d = 0; d < p_.head_dim; ++d) q_[d] = load<kType>(args.q, q_offset + d);
    std::fill_n(o_, p_.head_dim_v, 0.0);
  }

  void add_block(const TensorRows& k, const TensorRows& v, int64_t first, int count) {
    double s[kMaxBlock];
    double block_max = -kInfinity;
    for (int n = 0; n < count; ++n) {
      s[n] = score(k.offset(first + n), descale(Quantised::kKeys, first + n));
      if (!(s[n] <= block_max)) block_max = s[n];
    }
    raise_maximum(static_cast<float>(block_max));
    // A row whose scores are all -inf so far: 2^(-inf - 0) is 0.
    const double subtracted = row_max_ == -kInfinity ? 0.0 : row_max_;
    for (int n = 0; n < count; ++n) {
      const float weight = exp2_of(kType, static_cast<float>(s[n] - subtracted));
      row_sum_ += weight;
      add_value(weight, v.offset(first + n), descale(Quantised::kValues, first + n));
    }
  }

  // Adds the sums over later keys.
  void add_part(const Row& part) {
    const float top = !(part.row_max_ <= row_max_) ? part.row_max_ : row_max_;
    // Until a score is above -infinity, all weights are 0, relative to nothing.
    const bool none = top == -kInfinity;
    const double before = none ? 1.0 : std::exp2(static_cast<double>(row_max_) - top);
    const double now = none ? 1.0 : std::exp2(static_cast<double>(part.row_max_) - top);
    row_max_ = top;
    row_sum_ = before * row_sum_ + now * part.row_sum_;
    for (int64_t d = 0; d < p_.head_dim_v; ++d) {
      o_[d] = weighted(before, o_[d]) + weighted(now, part.o_[d]);
    }
  }

  RowEnd finish(bool sees_keys, const float* sink) const {
    return finish_row(row_max_, static_cast<float>(row_sum_), sees_keys, sink);
  }

  void store(const RowEnd& end, bool sees_keys, int64_t out_offset) const {
    for (int64_t d = 0; d < p_.head_dim_v; ++d) {
      const double value = sees_keys ? o_[d] * end.out_scale : 0.0;
      store_from_float(p_.out_dtype, args_.out, out_offset + d, static_cast<float>(value));
    }
  }

 private:
  double descale(Quantised which, int64_t n) const {
    if constexpr (kKvType != DType::kE4M3) return 1.0;
    return descale_of(p_, args_, which, b_, kv_head_, n);
  }

  // Scaled and capped, in powers of two. Summed in double, in four independent chains.
  double score(int64_t k_offset, double descale) const {
    double sums[4] = {};
    for (int64_t d = 0; d < p_.head_dim; d += 4) {
      for (int i = 0; i < 4; ++i) {
        sums[i] += static_cast<double>(q_[d + i]) * load<kKvType>(args_.k, k_offset + d + i);
      }
    }
    const double score = ((sums[0] + sums[1]) + (sums[2] + sums[3])) * descale * p_.scale;
    if (p_.softcap == 0) return score * std::numbers::log2e;
    return p_.softcap * std::tanh(score / p_.softcap) * std::numbers::log2e;
  }

  // Conditional rescaling: a maximum that moves little is left stale.
  void raise_maximum(float block_max) {
    if (row_max_ == -kInfinity) {
      const bool is_low = block_max < kLowestMaxLog2 && block_max != -kInfinity;
      row_max_ = is_low ? kLowestMaxLog2 : block_max;  // beyond the limit: as finish_row wants it
    } else if (block_max > row_max_ + rescale_threshold(kType)) {
      const double factor = std::exp2(static_cast<double>(row_max_) - block_max);
      row_sum_ *= factor;
      for (int64_t d = 0; d < p_.head_dim_v; ++d) o_[d] *= factor;
      row_max_ = block_max;
    }
  }

  void add_value(float weight, int64_t v_offset, double descale) {
    for (int64_t d = 0; d < p_.head_dim_v; ++d) {
      o_[d] += weighted(weight, descale * load<kKvType>(args_.v, v_offset + d));
    }
  }

  // A weight that underflowed is still more than none.
  static double weighted(double weight, double value) {
    return weight == 0 && std::isinf(value) ? value : weight * value;
  }

  const AttentionProblem& p_;
  const ForwardArgs& args_;
  const int64_t b_, kv_head_;
  float row_max_ = -kInfinity;
  double row_sum_ = 0;
  float q_[kMaxHeadDim];
  double o_[kMaxHeadDim];
};

template <DType kType, DType kKvType>
void run_row(const AttentionProblem& p, const CpuKernelSpec& spec, const ForwardArgs& args,
             const SequenceView& view, int64_t b, int64_t h, int64_t i) {
  const int64_t head = h / p.group();
  const TensorRows k(p, args, view, b, head, false), v(p, args, view, b, head, true);
  const KeyRange range = visible_keys(i, view.seqlen_q, view.seqlen_k, p.mask);
  const int64_t q_offset = view.offset_q + i * p.q.seqlen + h * p.q.head;
  const auto add_keys = [&](Row<kType, kKvType>& row, int64_t n, int64_t until) {
    while (n < until) {
      // Blocks begin at multiples of tile_n, so that a row's bits do not depend on where it starts.
      const int64_t end = std::min(until, (n / spec.tile_n + 1) * spec.tile_n);
      row.add_block(k, v, n, static_cast<int>(end - n));
      n = end;
    }
  };
  // The first key behind the part that `n` lies in.
  const auto part_end = [&](int64_t n) {
    if (spec.split_keys == 0) return range.end;
    return std::min(range.end, (n / spec.split_keys + 1) * spec.split_keys);
  };
  Row<kType, kKvType> row(p, args, b, head, q_offset);
  int64_t n = part_end(range.begin);
  add_keys(row, range.begin, n);
  for (; n < range.end; n = part_end(n)) {
    Row<kType, kKvType> part(p, args, b, head, q_offset);
    add_keys(part, n, part_end(n));
    row.add_part(part);
  }
  const bool sees_keys = range.begin < range.end;
  const float sink = p.has_sink ? load_as_float(p.sink_dtype, args.sink, h) : 0.0f;
  const RowEnd end = row.finish(sees_keys, p.has_sink ? &sink : nullptr);
  row.store(end, sees_keys, view.offset_out + i * p.out.seqlen + h * p.out.head);
  if (args.lse != nullptr) args.lse[view.lse_offset + h * view.lse_head_stride + i] = end.lse;
}

template <DType kType, DType kKvType>
void run(const AttentionProblem& p, const CpuKernelSpec& spec, const ForwardArgs& args,
         ThreadPool& pool) {
  const int64_t blocks = ceil_div(longest_queries(p, args), spec.tile_m);
  pool.run(capped_product(blocks, p.batch * p.heads_q), [&](int64_t task, int) {
    const int64_t h = task % p.heads_q, b = task / p.heads_q % p.batch;
    const int64_t block =
        blocks - 1 - task / (p.heads_q * p.batch);  // the longest causal rows first
    const SequenceView view = sequence_view(p, args, b);
    const int64_t end = std::min<int64_t>((block + 1) * spec.tile_m, view.seqlen_q);
    for (int64_t i = block * spec.tile_m; i < end; ++i) {
      run_row<kType, kKvType>(p, spec, args, view, b, h, i);
    }
  });
}

template <DType kType>
void run_stored(const AttentionProblem& p, const CpuKernelSpec& spec, const ForwardArgs& args,
                ThreadPool& pool) {
  if (p.is_quantised()) return run<kType, DType::kE4M3>(p, spec, args, pool);
  run<kType, kType>(p, spec, args, pool);
}

}  // namespace

void scalar_forward(const AttentionProblem& problem, const CpuKernelSpec& spec,
                    const ForwardArgs& args, ThreadPool& pool) {
  switch (problem.dtype) {
    case DType::kF32: run_stored<DType::kF32>(problem, spec, args, pool); break;
    case DType::kF16: run_stored<DType::kF16>(problem, spec, args, pool); break;
    case DType::kBF16: run_stored<DType::kBF16>(problem, spec, args, pool); break;
    case DType::kE4M3: break;  // of stored keys and values alone
  }
}

}  // namespace fa4::internal
