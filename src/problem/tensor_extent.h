// The memory that a strided tensor spans: sizes without overflow, overlaps of two tensors, and the
// errors that pointers cause. Nothing here allocates or throws anything but
// Error{kInvalidArgument}.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "problem/attention_problem.h"

namespace fa4::internal {

// Rows of a tensor as (outer, rows, heads, dim): outer is the batch, the pages, or 1 when packed.
struct TensorExtent {
  int64_t outer = 0;
  int64_t rows = 0;
  int64_t heads = 0;
  int64_t dim = 0;
  bool empty() const { return outer == 0 || rows == 0 || heads == 0 || dim == 0; }
};

// Of q, out and their gradients, and of k, v and theirs. `packed_rows` counts in a packed layout.
TensorExtent query_extent(const AttentionProblem& problem, int64_t packed_rows, int64_t dim);
TensorExtent key_extent(const AttentionProblem& problem, int64_t packed_rows, int64_t dim);

// Of page_table: its rows are entries. Empty unless keys are paged.
TensorExtent page_table_extent(const AttentionProblem& problem);

// Of k_descale and v_descale: its rows are blocks of keys, or pages. Empty unless the problem has
// descales.
TensorExtent descale_extent(const AttentionProblem& problem);

// Contiguous strides; nothing when a product overflows int64.
std::optional<Strides> contiguous_strides(const TensorExtent& extent);

// The elements from the lowest to past the highest address; nothing when they overflow int64 bytes.
struct ElementSpan {
  int64_t begin = 0;  // of the base pointer, not above 0
  int64_t end = 0;
};
std::optional<ElementSpan> span_of(const TensorExtent& extent, const Strides& strides,
                                   int element_bytes);

// Refuses strides that reach too far, and those of which two elements share an address.
void check_span(const char* name, const TensorExtent& extent, const Strides& strides,
                int element_bytes);
void check_injective(const char* name, const TensorExtent& extent, const Strides& strides);

// Refuses a tensor that is too large to lie contiguous.
[[noreturn]] void refuse_size(const char* name, const TensorExtent& extent);

// All 0 become `contiguous`, which refuse_size refuses where it would be too large, or is not
// there; then check_span.
void complete_strides(const char* name, const TensorExtent& extent, int element_bytes,
                      const std::optional<Strides>& contiguous, Strides& strides);

// Whether no two elements share an address, by nesting: each stride is at least what the smaller
// ones span.
bool is_injective(const TensorExtent& extent, const Strides& strides);

// A tensor in memory, for the check that an output overlaps nothing.
struct MemoryRegion {
  const char* name = "";
  const void* data = nullptr;
  TensorExtent extent;
  Strides strides;
  int element_bytes = 0;
};
bool may_overlap(const MemoryRegion& a, const MemoryRegion& b);

// A tensor of `count` contiguous elements; empty when it is not there.
MemoryRegion flat_region(const char* name, const void* data, int64_t count, int element_bytes);

// Refuses a pointer that is missing or not aligned to its elements.
void check_pointer(const MemoryRegion& region);
// Refuses an output that overlaps an input or another output.
void check_overlaps(std::span<const MemoryRegion> inputs, std::span<const MemoryRegion> outputs);

}  // namespace fa4::internal
