#include "problem/forward_args.h"

#include <array>

#include "problem/tensor_extent.h"

namespace fa4::internal {
namespace {

struct Regions {
  std::array<MemoryRegion, 12> inputs;  // q, k and v first
  std::array<MemoryRegion, 3> outputs;
};

Regions regions_of(const AttentionProblem& p, const ForwardArgs& a) {
  const int64_t rows_q = rows_of_packed_q(p, a), rows_k = rows_of_packed_k(p, a);
  const TensorExtent q = query_extent(p, rows_q, p.head_dim);
  const int bytes_k = size_of(p.kv_dtype);
  const auto descale = [&](const char* name, const float* data, const Strides& strides) {
    return MemoryRegion{name, data, data == nullptr ? TensorExtent{} : descale_extent(p), strides,
                        4};
  };
  return {{MemoryRegion{"q", a.q, q, p.q, size_of(p.dtype)},
           {"k", a.k, key_extent(p, rows_k, p.head_dim), p.k, bytes_k},
           {"v", a.v, key_extent(p, rows_k, p.head_dim_v), p.v, bytes_k},
           descale("k_descale", a.k_descale, p.k_descale),
           descale("v_descale", a.v_descale, p.v_descale),
           flat_region("sink", a.sink, p.heads_q, size_of(p.sink_dtype)),
           flat_region("cu_seqlens_q", a.cu_seqlens_q, p.batch + 1, 4),
           flat_region("cu_seqlens_k", a.cu_seqlens_k, p.batch + 1, 4),
           flat_region("seqused_q", a.seqused_q, p.batch, 4),
           flat_region("seqused_k", a.seqused_k, p.batch, 4),
           flat_region("prefix_pages", a.prefix_pages, p.prefix_pages(), 4),
           MemoryRegion{"page_table", a.page_table,
                        a.page_table == nullptr ? TensorExtent{} : page_table_extent(p),
                        p.page_table, 4}},
          {MemoryRegion{"out", a.out, query_extent(p, rows_q, p.head_dim_v), p.out,
                        size_of(p.out_dtype)},
           flat_region("lse", a.lse, q.outer * q.rows * q.heads, 4),
           flat_region("workspace", a.workspace, static_cast<int64_t>(a.workspace_bytes), 1)}};
}

}  // namespace

int64_t descale_place(const AttentionProblem& p, const SequenceArgs& a, Quantised which, int64_t b,
                      int64_t head, int64_t n) {
  const Strides& s = which == Quantised::kKeys ? p.k_descale : p.v_descale;
  if (p.has_page_descales()) {
    return head * s.head + page_row_of(p, a, b, head, n).page * s.seqlen;
  }
  const int64_t block = p.descale_block == 0 ? 0 : n / p.descale_block;
  return head * s.head + b * s.batch + block * s.seqlen;
}

void check_pointers(const AttentionProblem& p, const ForwardArgs& a) {
  check_index_pointers(p, a);
  check_presence("sink", a.sink, p.has_sink, true, "sink", size_of(p.sink_dtype));
  check_presence("k_descale", a.k_descale, p.has_descales, false, "descales");
  check_presence("v_descale", a.v_descale, p.has_descales, false, "descales");
  const Regions regions = regions_of(p, a);
  const int read = regions.inputs[0].extent.empty() ? 1 : 3;  // without queries no key is read
  for (int i = 0; i < read; ++i) check_pointer(regions.inputs[i]);
  check_pointer(regions.outputs[0]);
  check_pointer(regions.outputs[1]);
  check_overlaps(regions.inputs, regions.outputs);
}

void check_host_args(const AttentionProblem& p, const ForwardArgs& a) {
  check_pointers(p, a);
  check_index_tensors(p, a);
}

}  // namespace fa4::internal
