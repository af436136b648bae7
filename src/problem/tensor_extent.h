// The memory that a strided tensor spans: sizes without overflow, overlaps of two tensors.
#pragma once

#include <cstdint>
#include <optional>

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

// Contiguous strides; nothing when a product overflows int64.
std::optional<Strides> contiguous_strides(const TensorExtent& extent);

// The elements from the lowest to past the highest address; nothing when they overflow int64 bytes.
struct ElementSpan {
  int64_t begin = 0;  // of the base pointer, not above 0
  int64_t end = 0;
};
std::optional<ElementSpan> span_of(const TensorExtent& extent, const Strides& strides,
                                   int element_bytes);

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

}  // namespace fa4::internal
