#include "problem/backward_args.h"

#include <array>

#include "problem/refuse.h"
#include "problem/tensor_extent.h"

namespace fa4::internal {
namespace {

// A gradient that is not wanted takes no memory.
MemoryRegion wanted_region(const char* name, const void* data, const TensorExtent& extent,
                           const Strides& strides, DType dtype) {
  return {name, data, data == nullptr ? TensorExtent{} : extent, strides, size_of(dtype)};
}

struct Regions {
  std::array<MemoryRegion, 12> inputs;
  std::array<MemoryRegion, 5> outputs;
};

Regions regions_of(const AttentionProblem& p, const BackwardArgs& a) {
  const int bytes = size_of(p.dtype);
  const int64_t rows_q = rows_of_packed_q(p, a), rows_k = rows_of_packed_k(p, a);
  const TensorExtent q = query_extent(p, rows_q, p.head_dim);
  const TensorExtent out = query_extent(p, rows_q, p.head_dim_v);
  const TensorExtent k = key_extent(p, rows_k, p.head_dim);
  const TensorExtent v = key_extent(p, rows_k, p.head_dim_v);
  const TensorExtent rows{q.outer, q.rows, q.heads, 1};
  const Strides row_strides{rows.rows * rows.heads, rows.heads, 1};
  const TensorExtent given_out = a.dout == nullptr ? TensorExtent{} : out;
  return {{MemoryRegion{"q", a.q, q, p.q, bytes},
           {"k", a.k, k, p.k, bytes},
           {"v", a.v, v, p.v, bytes},
           {"out", a.out, given_out, p.out, size_of(p.out_dtype)},
           {"dout", a.dout, given_out, p.dout, bytes},
           {"lse", a.lse, rows, row_strides, 4},
           {"dlse", a.dlse, p.has_dlse ? rows : TensorExtent{}, row_strides, 4},
           flat_region("sink", a.sink, p.heads_q, size_of(p.sink_dtype)),
           flat_region("cu_seqlens_q", a.cu_seqlens_q, p.batch + 1, 4),
           flat_region("cu_seqlens_k", a.cu_seqlens_k, p.batch + 1, 4),
           flat_region("seqused_q", a.seqused_q, p.batch, 4),
           flat_region("seqused_k", a.seqused_k, p.batch, 4)},
          {wanted_region("dq", a.dq, q, p.dq, p.grad_dtype),
           wanted_region("dk", a.dk, k, p.dk, p.grad_dtype),
           wanted_region("dv", a.dv, v, p.dv, p.grad_dtype),
           flat_region("dsink", a.dsink, p.heads_q, 4),
           flat_region("workspace", a.workspace, static_cast<int64_t>(a.workspace_bytes), 1)}};
}

// What goes together.
void check_choices(const AttentionProblem& p, const BackwardArgs& a) {
  check_presence("sink", a.sink, p.has_sink, true, "sink", size_of(p.sink_dtype));
  check_presence("dsink", a.dsink, p.has_sink, false, "sink");
  check_presence("dlse", a.dlse, p.has_dlse, false, "dlse");
  const bool empty = query_extent(p, rows_of_packed_q(p, a), p.head_dim).empty();
  if (a.dout == nullptr && !p.has_dlse && !empty) {
    refuse("dout is NULL; accepted: a pointer, or NULL for zeros when the problem has_dlse");
  }
  if ((a.dk == nullptr) != (a.dv == nullptr) && p.rows_k() > 0) {
    refuse("{} is NULL and {} is not; accepted: both, or neither", a.dk == nullptr ? "dk" : "dv",
           a.dk == nullptr ? "dv" : "dk");
  }
}

}  // namespace

void check_pointers(const AttentionProblem& p, const BackwardArgs& a) {
  check_index_pointers(p, a);
  check_choices(p, a);
  const Regions regions = regions_of(p, a);
  const bool no_rows = regions.inputs[0].extent.empty();
  for (size_t i = 0; i < 7; ++i) {
    const bool of_keys = i == 1 || i == 2;  // without queries no key is read
    if (!of_keys || !no_rows) check_pointer(regions.inputs[i]);
  }
  for (const MemoryRegion& output : regions.outputs) check_pointer(output);
  check_overlaps(regions.inputs, regions.outputs);
}

void check_host_args(const AttentionProblem& p, const BackwardArgs& a) {
  check_pointers(p, a);
  check_index_tensors(p, a);
}

}  // namespace fa4::internal
