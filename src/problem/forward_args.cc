#include "problem/forward_args.h"

#include <array>

#include <fmt/format.h>

#include "core/error.h"
#include "problem/tensor_extent.h"

namespace fa4::internal {
namespace {

template <class... Values>
[[noreturn]] void refuse(fmt::format_string<Values...> format, Values&&... values) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format(format, std::forward<Values>(values)...));
}

void check_total(const char* name, bool packed, int64_t given, int64_t maximum) {
  if (given < -1 || (packed && given > maximum)) {
    refuse("{} {}; accepted: -1 (the problem's), 0 to {}", name, given, maximum);
  }
}

// An index tensor is there exactly when the problem announced it.
void check_presence(const char* name, const void* data, bool wanted, bool needed,
                    const char* announced_by) {
  if (data != nullptr && !wanted) {
    refuse("{} is given, but the problem has no {}; accepted: NULL", name, announced_by);
  }
  if (data == nullptr && wanted && needed) {
    refuse("{} is NULL; accepted: a pointer, as the problem has {}", name, announced_by);
  }
  if (reinterpret_cast<uintptr_t>(data) % sizeof(int32_t) != 0) {
    refuse("{} {} is misaligned; accepted: multiples of 4", name, data);
  }
}

void check_cu_seqlens(const char* name, const int32_t* cu_seqlens, int64_t batch, int64_t total,
                      int64_t longest) {
  if (cu_seqlens[0] != 0) refuse("{}[0] {}; accepted: 0", name, cu_seqlens[0]);
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t length = static_cast<int64_t>(cu_seqlens[b + 1]) - cu_seqlens[b];
    if (length < 0 || length > longest || cu_seqlens[b + 1] > total) {
      refuse("{}[{}] {} after {}; accepted: ascending, at most {} a sequence and {} in all", name,
             b + 1, cu_seqlens[b + 1], cu_seqlens[b], longest, total);
    }
  }
}

void check_seqused(const AttentionProblem& p, const ForwardArgs& a) {
  for (int64_t b = 0; b < p.batch; ++b) {
    const int64_t longest =
        p.layout_kv == Layout::kPacked ? a.cu_seqlens_k[b + 1] - a.cu_seqlens_k[b] : p.seqlen_k;
    if (a.seqused_k[b] < 0 || a.seqused_k[b] > longest) {
      refuse("seqused_k[{}] {}; accepted: 0 to {}", b, a.seqused_k[b], longest);
    }
  }
}

// Only entries that hold keys are looked at: the others may be anything.
void check_page_table(const AttentionProblem& p, const ForwardArgs& a) {
  for (int64_t b = 0; b < p.batch; ++b) {
    const int64_t used = (a.seqused_k[b] + p.page_size - 1) / p.page_size;
    for (int64_t i = 0; i < used; ++i) {
      const int32_t page = a.page_table[b * p.pages_per_seq + i];
      if (page < 0 || page >= p.num_pages) {
        refuse("page_table[{}, {}] {}; accepted: 0 to {} (num_pages {})", b, i, page,
               p.num_pages - 1, p.num_pages);
      }
    }
  }
}

void check_index_pointers(const AttentionProblem& p, const ForwardArgs& a) {
  const bool packed_q = p.layout_q == Layout::kPacked;
  const bool packed_k = p.layout_kv == Layout::kPacked;
  const bool paged = p.layout_kv == Layout::kPaged;
  check_total("total_q", packed_q, a.total_q, p.total_q);
  check_total("total_k", packed_k, a.total_k, p.total_k);
  const bool any = p.batch > 0;
  check_presence("cu_seqlens_q", a.cu_seqlens_q, packed_q, any, "packed q");
  check_presence("cu_seqlens_k", a.cu_seqlens_k, packed_k, any, "packed k");
  check_presence("seqused_k", a.seqused_k, p.has_seqused_k, any, "seqused_k");
  check_presence("page_table", a.page_table, paged, any && p.pages_per_seq > 0, "paged k");
  check_presence("sink", a.sink, p.has_sink, true, "sink");
}

void check_index_tensors(const AttentionProblem& p, const ForwardArgs& a) {
  if (p.batch == 0) return;
  if (p.layout_q == Layout::kPacked) {
    check_cu_seqlens("cu_seqlens_q", a.cu_seqlens_q, p.batch, rows_of_packed_q(p, a), p.seqlen_q);
  }
  if (p.layout_kv == Layout::kPacked) {
    check_cu_seqlens("cu_seqlens_k", a.cu_seqlens_k, p.batch, rows_of_packed_k(p, a), p.seqlen_k);
  }
  if (p.has_seqused_k) check_seqused(p, a);
  if (p.layout_kv == Layout::kPaged) check_page_table(p, a);
}

// A tensor of `count` contiguous elements.
MemoryRegion flat(const char* name, const void* data, int64_t count, int element_bytes) {
  return {name, data, {1, 1, 1, data == nullptr ? 0 : count}, {}, element_bytes};
}

struct Regions {
  std::array<MemoryRegion, 8> inputs;
  std::array<MemoryRegion, 3> outputs;
};

Regions regions_of(const AttentionProblem& p, const ForwardArgs& a) {
  const bool packed_q = p.layout_q == Layout::kPacked;
  const int bytes = size_of(p.dtype);
  TensorExtent q{p.batch, p.seqlen_q, p.heads_q, p.head_dim};
  if (packed_q) q = {1, rows_of_packed_q(p, a), p.heads_q, p.head_dim};
  TensorExtent k{p.batch, p.seqlen_k, p.heads_kv, p.head_dim};
  if (p.layout_kv == Layout::kPacked) k = {1, rows_of_packed_k(p, a), p.heads_kv, p.head_dim};
  if (p.layout_kv == Layout::kPaged) k = {p.num_pages, p.page_size, p.heads_kv, p.head_dim};
  TensorExtent v = k;
  v.dim = p.head_dim_v;
  TensorExtent out = q;
  out.dim = p.head_dim_v;
  return {{MemoryRegion{"q", a.q, q, p.q, bytes},
           {"k", a.k, k, p.k, bytes},
           {"v", a.v, v, p.v, bytes},
           flat("sink", a.sink, p.heads_q, 4),
           flat("cu_seqlens_q", a.cu_seqlens_q, p.batch + 1, 4),
           flat("cu_seqlens_k", a.cu_seqlens_k, p.batch + 1, 4),
           flat("seqused_k", a.seqused_k, p.batch, 4),
           flat("page_table", a.page_table, p.batch * p.pages_per_seq, 4)},
          {MemoryRegion{"out", a.out, out, p.out, bytes},
           flat("lse", a.lse, q.outer * q.rows * q.heads, 4),
           flat("workspace", a.workspace, static_cast<int64_t>(a.workspace_bytes), 1)}};
}

void check_pointer(const MemoryRegion& region) {
  if (region.data == nullptr && !region.extent.empty()) {
    refuse("{} is NULL; accepted: a pointer to {} x {} x {} x {} elements", region.name,
           region.extent.outer, region.extent.rows, region.extent.heads, region.extent.dim);
  }
  if (reinterpret_cast<uintptr_t>(region.data) % region.element_bytes != 0) {
    refuse("{} {} is misaligned; accepted: multiples of {}", region.name, region.data,
           region.element_bytes);
  }
}

// Refuses an output that overlaps an input or another output.
void check_overlaps(const Regions& regions) {
  for (size_t i = 0; i < regions.outputs.size(); ++i) {
    const MemoryRegion& output = regions.outputs[i];
    const auto check = [&](const MemoryRegion& other) {
      if (may_overlap(output, other)) {
        refuse("{} {} overlaps {} {}; accepted: memory of its own", output.name, output.data,
               other.name, other.data);
      }
    };
    for (const MemoryRegion& input : regions.inputs) check(input);
    for (size_t j = 0; j < i; ++j) check(regions.outputs[j]);
  }
}

}  // namespace

SequenceView sequence_view(const AttentionProblem& p, const ForwardArgs& a, int64_t b) {
  SequenceView view;
  if (p.layout_q == Layout::kPacked) {
    const int64_t first = a.cu_seqlens_q[b];
    view.seqlen_q = a.cu_seqlens_q[b + 1] - first;
    view.offset_q = first * p.q.seqlen;
    view.offset_out = first * p.out.seqlen;
    view.lse_offset = first;
    view.lse_head_stride = rows_of_packed_q(p, a);
  } else {
    view.seqlen_q = p.seqlen_q;
    view.offset_q = b * p.q.batch;
    view.offset_out = b * p.out.batch;
    view.lse_offset = b * p.heads_q * p.seqlen_q;
    view.lse_head_stride = p.seqlen_q;
  }
  view.seqlen_k = p.seqlen_k;
  if (p.layout_kv == Layout::kPacked) {
    const int64_t first = a.cu_seqlens_k[b];
    view.seqlen_k = a.cu_seqlens_k[b + 1] - first;
    view.offset_k = first * p.k.seqlen;
    view.offset_v = first * p.v.seqlen;
  } else if (p.layout_kv == Layout::kDense) {
    view.offset_k = b * p.k.batch;
    view.offset_v = b * p.v.batch;
  }
  if (p.has_seqused_k) view.seqlen_k = a.seqused_k[b];
  return view;
}

int64_t rows_of_packed_q(const AttentionProblem& p, const ForwardArgs& a) {
  if (p.layout_q != Layout::kPacked) return 0;
  return a.total_q < 0 ? p.total_q : a.total_q;
}

int64_t rows_of_packed_k(const AttentionProblem& p, const ForwardArgs& a) {
  if (p.layout_kv != Layout::kPacked) return 0;
  return a.total_k < 0 ? p.total_k : a.total_k;
}

void check_pointers(const AttentionProblem& p, const ForwardArgs& a) {
  check_index_pointers(p, a);
  const Regions regions = regions_of(p, a);
  const int read = regions.inputs[0].extent.empty() ? 1 : 3;  // without queries no key is read
  for (int i = 0; i < read; ++i) check_pointer(regions.inputs[i]);
  check_pointer(regions.outputs[0]);
  check_pointer(regions.outputs[1]);
  check_overlaps(regions);
}

void check_host_args(const AttentionProblem& p, const ForwardArgs& a) {
  check_pointers(p, a);
  check_index_tensors(p, a);
}

}  // namespace fa4::internal
