#include "problem/forward_args.h"

#include <array>

#include "problem/tensor_extent.h"

namespace fa4::internal {
namespace {

struct Regions {
  std::array<MemoryRegion, 10> inputs;  // q, k and v first
  std::array<MemoryRegion, 3> outputs;
};

Regions regions_of(const AttentionProblem& p, const ForwardArgs& a) {
  const int bytes = size_of(p.dtype);
  const int64_t rows_q = rows_of_packed_q(p, a), rows_k = rows_of_packed_k(p, a);
  const TensorExtent q = query_extent(p, rows_q, p.head_dim);
  return {{MemoryRegion{"q", a.q, q, p.q, bytes},
           {"k", a.k, key_extent(p, rows_k, p.head_dim), p.k, bytes},
           {"v", a.v, key_extent(p, rows_k, p.head_dim_v), p.v, bytes},
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

void check_pointers(const AttentionProblem& p, const ForwardArgs& a) {
  check_index_pointers(p, a);
  check_presence("sink", a.sink, p.has_sink, true, "sink", size_of(p.sink_dtype));
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
