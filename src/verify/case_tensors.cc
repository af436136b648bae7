#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "problem/tensor_extent.h"
#include "verify/cases.h"
#include "verify/random.h"

namespace fa4::internal {
namespace {

// From the base to past the last element; AttentionProblem::make has checked that it is a number.
int64_t elements(const TensorExtent& extent, const Strides& strides) {
  return span_of(extent, strides, 1)->end;
}

std::vector<int32_t> cumulative(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> sums(lengths.size() + 1, 0);
  std::partial_sum(lengths.begin(), lengths.end(), sums.begin() + 1);
  return sums;
}

void fill_row(DType dtype, std::vector<unsigned char>& data, int64_t at, int64_t dim,
              float amplitude, Random& random) {
  for (int64_t d = 0; d < dim; ++d) {
    store_from_float(dtype, data.data(), at + d, amplitude * random.normal());
  }
}

}  // namespace

TensorExtents extents_of(const AttentionProblem& p) {
  const auto of_query = [&](int64_t dim, const Strides& strides) {
    return elements(query_extent(p, p.total_q, dim), strides);
  };
  const auto of_key = [&](int64_t dim, const Strides& strides) {
    return elements(key_extent(p, p.total_k, dim), strides);
  };
  return {.q = of_query(p.head_dim, p.q),
          .k = of_key(p.head_dim, p.k),
          .v = of_key(p.head_dim_v, p.v),
          .out = of_query(p.head_dim_v, p.out),
          .dout = of_query(p.head_dim_v, p.dout),
          .dq = of_query(p.head_dim, p.dq),
          .dk = of_key(p.head_dim, p.dk),
          .dv = of_key(p.head_dim_v, p.dv)};
}

CaseTensors::CaseTensors(const Case& c, int threads) : problem_(AttentionProblem::make(c.desc)) {
  const AttentionProblem& p = problem_;
  const TensorExtents extents = extents_of(p);
  const auto bytes = [](int64_t n, DType dtype) {
    return static_cast<size_t>(std::max<int64_t>(1, n) * size_of(dtype));
  };
  q_.assign(bytes(extents.q, p.dtype), 0xff);
  k_.assign(bytes(extents.k, p.kv_dtype), 0xff);
  v_.assign(bytes(extents.v, p.kv_dtype), 0xff);
  if (p.layout_q == Layout::kPacked) cu_seqlens_q_ = cumulative(c.lengths_q);
  if (p.layout_kv == Layout::kPacked) cu_seqlens_k_ = cumulative(c.lengths_k);
  seqused_q_ = c.seqused_q;
  seqused_k_ = c.seqused_k;
  Random random(c.seed);
  if (p.layout_kv == Layout::kPaged) {
    fill_page_table(random);
  }
  if (p.has_sink) {
    sink_.resize(static_cast<size_t>(p.heads_q * size_of(p.sink_dtype)));
    for (int64_t h = 0; h < p.heads_q; ++h) {
      store_from_float(p.sink_dtype, sink_.data(), h, 2 * random.normal());
    }
  }
  if (p.has_descales) fill_descales(c.seed);
  ThreadPool pool(threads);
  fill_q(c.amplitude, random.bits(), pool);
  fill_kv(random.bits(), pool);
  dout_.assign(bytes(extents.dout, p.dtype), 0xff);
  fill_dout(random.bits(), pool);
}

// Every head's pages in an order of its own; behind a sequence's end what no kernel may use.
void CaseTensors::fill_page_table(Random& random) {
  constexpr int32_t kGarbage = 2147480000;
  const AttentionProblem& p = problem_;
  page_table_.assign(
      static_cast<size_t>(std::max<int64_t>(1, elements(page_table_extent(p), p.page_table))),
      kGarbage);
  std::vector<int32_t> pages(static_cast<size_t>(p.num_pages));
  std::iota(pages.begin(), pages.end(), 0);
  // The last ones are those of the keys that all share, whatever the others' order.
  const auto own = pages.end() - p.prefix_pages();
  prefix_pages_.assign(own, pages.end());
  pages.erase(own, pages.end());
  for (int64_t h = 0; h < p.page_table_heads; ++h) {
    for (size_t i = pages.size(); i > 1; --i) {
      std::swap(pages[i - 1], pages[static_cast<size_t>(random.between(0, i - 1))]);
    }
    for (int64_t b = 0; b < p.batch; ++b) {
      for (int64_t i = 0; i * p.page_size < seqused_k_[b] - p.prefix_len; ++i) {
        page_table_[b * p.page_table.batch + i * p.page_table.seqlen + h * p.page_table.head] =
            pages[b * p.pages_per_seq + i];
      }
    }
  }
}

// From 2^-8, which uses most bytes, to 2, which uses the subnormal ones. Those that no key has are
// NaN.
void CaseTensors::fill_descales(uint64_t seed) {
  const AttentionProblem& p = problem_;
  Random random(seed + 2);
  const auto fill = [&](std::vector<float>& descales, const Strides& strides, Quantised which) {
    descales.assign(static_cast<size_t>(std::max<int64_t>(1, elements(descale_extent(p), strides))),
                    std::numeric_limits<float>::quiet_NaN());
    const ForwardArgs inputs = args();
    for (int64_t b = 0; b < p.batch; ++b) {
      const int64_t keys = sequence_view(p, inputs, b).seqlen_k;
      for (int64_t n = 0; n < keys; ++n) {
        for (int64_t h = 0; h < p.heads_kv; ++h) {
          float& descale = descales[static_cast<size_t>(descale_place(p, inputs, which, b, h, n))];
          if (!std::isnan(descale)) continue;
          descale = std::exp2(static_cast<float>(random.between(-80, 10)) / 10);
        }
      }
    }
  };
  fill(k_descale_, p.k_descale, Quantised::kKeys);
  fill(v_descale_, p.v_descale, Quantised::kValues);
}

// dout, and dlse when the problem has it.
void CaseTensors::fill_dout(uint64_t seed, ThreadPool& pool) {
  const AttentionProblem& p = problem_;
  const BackwardArgs inputs = backward_args();
  if (p.has_dlse) {
    dlse_.assign(static_cast<size_t>(p.lse_elements()), std::numeric_limits<float>::quiet_NaN());
  }
  for (int64_t b = 0; b < p.batch; ++b) {
    const SequenceView view = sequence_view(p, inputs, b);
    pool.run(view.seqlen_q, [&, b](int64_t m, int) {
      Random random(seed + static_cast<uint64_t>(b << 32 | m));
      for (int64_t h = 0; h < p.heads_q; ++h) {
        const int64_t at = view.query_offset(p.dout) + m * p.dout.seqlen + h * p.dout.head;
        fill_row(p.dtype, dout_, at, p.head_dim_v, 1.0f, random);
        if (!p.has_dlse) continue;
        dlse_[view.lse_offset + h * view.lse_head_stride + m] = random.normal();
      }
    });
  }
}

void CaseTensors::fill_q(float amplitude, uint64_t seed, ThreadPool& pool) {
  const ForwardArgs inputs = args();
  for (int64_t b = 0; b < problem_.batch; ++b) {
    const SequenceView view = sequence_view(problem_, inputs, b);
    pool.run(view.seqlen_q, [&, b](int64_t m, int) {
      Random random(seed + static_cast<uint64_t>(b << 32 | m));
      for (int64_t h = 0; h < problem_.heads_q; ++h) {
        const int64_t at = view.offset_q + m * problem_.q.seqlen + h * problem_.q.head;
        fill_row(problem_.dtype, q_, at, problem_.head_dim, amplitude, random);
      }
    });
  }
}

void CaseTensors::fill_kv(uint64_t seed, ThreadPool& pool) {
  const AttentionProblem& p = problem_;
  const ForwardArgs inputs = args();
  for (int64_t b = 0; b < p.batch; ++b) {
    const SequenceView view = sequence_view(p, inputs, b);
    pool.run(view.seqlen_k, [&, b](int64_t n, int) {
      // Shared keys get the same values again: another thread may be at them, but not in this run.
      Random random(seed + static_cast<uint64_t>((n < p.prefix_len ? 0 : b) << 32 | n));
      int64_t at_k = view.offset_k + n * p.k.seqlen, at_v = view.offset_v + n * p.v.seqlen;
      for (int64_t h = 0; h < p.heads_kv; ++h) {
        if (p.layout_kv == Layout::kPaged) {
          const PageRow at = page_row_of(p, inputs, b, h, n);
          at_k = at.page * p.k.batch + at.row * p.k.seqlen;
          at_v = at.page * p.v.batch + at.row * p.v.seqlen;
        }
        fill_row(p.kv_dtype, k_, at_k + h * p.k.head, p.head_dim,
                 1 / descale_of(p, inputs, Quantised::kKeys, b, h, n), random);
        fill_row(p.kv_dtype, v_, at_v + h * p.v.head, p.head_dim_v,
                 1 / descale_of(p, inputs, Quantised::kValues, b, h, n), random);
      }
    });
  }
}

template <class Args>
Args CaseTensors::common_args() const {
  const auto or_null = [](const auto& v) { return v.empty() ? nullptr : v.data(); };
  Args args;
  args.q = q_.data();
  args.k = k_.data();
  args.v = v_.data();
  args.sink = or_null(sink_);
  args.cu_seqlens_q = or_null(cu_seqlens_q_);
  args.cu_seqlens_k = or_null(cu_seqlens_k_);
  args.seqused_q = or_null(seqused_q_);
  args.seqused_k = or_null(seqused_k_);
  args.page_table = or_null(page_table_);
  args.prefix_pages = or_null(prefix_pages_);
  if (args.cu_seqlens_q != nullptr) args.total_q = cu_seqlens_q_.back();
  if (args.cu_seqlens_k != nullptr) args.total_k = cu_seqlens_k_.back();
  return args;
}

ForwardArgs CaseTensors::args() const {
  auto args = common_args<ForwardArgs>();
  args.k_descale = k_descale_.empty() ? nullptr : k_descale_.data();
  args.v_descale = v_descale_.empty() ? nullptr : v_descale_.data();
  return args;
}

BackwardArgs CaseTensors::backward_args() const {
  auto args = common_args<BackwardArgs>();
  args.dout = dout_.data();
  args.dlse = dlse_.empty() ? nullptr : dlse_.data();
  return args;
}

}  // namespace fa4::internal
