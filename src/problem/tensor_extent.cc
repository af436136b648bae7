#include "problem/tensor_extent.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <utility>

#include "core/rounding.h"
#include "problem/refuse.h"

namespace fa4::internal {
namespace {

[[noreturn]] void refuse_span(const char* name, const Strides& strides) {
  refuse("strides ({}, {}, {}) of {} reach too far; accepted: a span of at most 2^62 bytes",
         strides.batch, strides.seqlen, strides.head, name);
}

struct Axis {
  int64_t extent = 0;
  int64_t stride = 0;
};

// The axes that move: more than one step long.
struct Axes {
  std::array<Axis, 3> axis;
  int count = 0;
  void add(int64_t extent, int64_t stride) {
    if (extent > 1) axis[count++] = {extent, stride};
  }
};

Axes axes_of(const TensorExtent& extent, const Strides& strides) {
  Axes axes;
  axes.add(extent.outer, strides.batch);
  axes.add(extent.rows, strides.seqlen);
  axes.add(extent.heads, strides.head);
  return axes;
}

void sort_by_stride(Axes& axes) {
  for (int i = 1; i < axes.count; ++i) {
    for (int j = i; j > 0; --j) {
      if (std::llabs(axes.axis[j].stride) < std::llabs(axes.axis[j - 1].stride)) {
        std::swap(axes.axis[j], axes.axis[j - 1]);
      }
    }
  }
}

// A tensor as runs of contiguous bytes, and the axes along which they repeat: strides in bytes,
// the smallest first. Where strides are negative it begins with the last element of their axes.
struct Runs {
  int64_t run_bytes = 0;
  Axes axes;

  // Of the `count` axes of the smallest strides, from the first byte to the last.
  int64_t span(int count) const {
    int64_t bytes = run_bytes;
    for (int i = 0; i < count; ++i) bytes += (axes.axis[i].extent - 1) * axes.axis[i].stride;
    return bytes;
  }
  int64_t stride_gcd(int count) const {
    int64_t divisor = 0;
    for (int i = 0; i < count; ++i) divisor = std::gcd(divisor, axes.axis[i].stride);
    return divisor;
  }
};

Runs runs_of(const MemoryRegion& region) {
  Runs runs{region.extent.dim * region.element_bytes, {}};
  Axes axes = axes_of(region.extent, region.strides);
  sort_by_stride(axes);  // heads may lie outside of rows
  for (int i = 0; i < axes.count; ++i) {
    const int64_t stride = std::llabs(axes.axis[i].stride) * region.element_bytes;
    if (runs.axes.count == 0 && stride == runs.run_bytes) {
      runs.run_bytes *= axes.axis[i].extent;
    } else {
      runs.axes.add(axes.axis[i].extent, stride);
    }
  }
  return runs;
}

// Whether bytes of `a` and of `b`, which begins `distance` behind it, may be the same, along their
// first axes. Exact for slices of one buffer: where strides are alike and hold what lies inside of
// them, and where one tensor reaches only a step or two of the other; else every run is taken to
// repeat at the common divisor of all strides.
bool may_meet(const Runs& a, int axes_a, const Runs& b, int axes_b, int64_t distance) {
  if (distance >= a.span(axes_a) || -distance >= b.span(axes_b)) return false;
  const int64_t stride = axes_a == 0 ? 0 : a.axes.axis[axes_a - 1].stride;
  const int64_t stride_b = axes_b == 0 ? 0 : b.axes.axis[axes_b - 1].stride;
  if (stride < stride_b) return may_meet(b, axes_b, a, axes_a, -distance);
  if (stride == 0) return true;
  const auto residue = [&](int64_t period) { return (distance % period + period) % period; };
  const bool alike = stride == stride_b;
  if (alike && a.span(axes_a - 1) <= stride && b.span(axes_b - 1) <= stride) {
    const int64_t behind = residue(stride);
    return may_meet(a, axes_a - 1, b, axes_b - 1, behind) ||
           may_meet(a, axes_a - 1, b, axes_b - 1, behind - stride);
  }
  const int64_t before = distance - a.span(axes_a - 1);  // a step that ends there is too early
  const int64_t first = before < 0 ? 0 : before / stride + 1;
  const int64_t last =
      std::min(a.axes.axis[axes_a - 1].extent - 1, (distance + b.span(axes_b) - 1) / stride);
  constexpr int64_t kFewSteps = 2;
  if (last - first < kFewSteps) {
    for (int64_t step = first; step <= last; ++step) {
      if (may_meet(a, axes_a - 1, b, axes_b, distance - step * stride)) return true;
    }
    return false;
  }
  const int64_t period = std::gcd(a.stride_gcd(axes_a), b.stride_gcd(axes_b));
  const int64_t behind = residue(period);
  return behind < a.run_bytes || period - behind < b.run_bytes;
}

}  // namespace

TensorExtent query_extent(const AttentionProblem& p, int64_t packed_rows, int64_t dim) {
  if (p.layout_q == Layout::kPacked) return {1, packed_rows, p.heads_q, dim};
  return {p.batch, p.seqlen_q, p.heads_q, dim};
}

TensorExtent key_extent(const AttentionProblem& p, int64_t packed_rows, int64_t dim) {
  if (p.layout_kv == Layout::kPacked) return {1, packed_rows, p.heads_kv, dim};
  if (p.layout_kv == Layout::kPaged) return {p.num_pages, p.page_size, p.heads_kv, dim};
  return {p.batch, p.seqlen_k, p.heads_kv, dim};
}

TensorExtent page_table_extent(const AttentionProblem& p) {
  if (p.layout_kv != Layout::kPaged) return {};
  return {p.batch, p.pages_per_seq, p.page_table_heads, 1};
}

TensorExtent descale_extent(const AttentionProblem& p) {
  if (!p.has_descales) return {};
  if (p.has_page_descales()) return {1, p.num_pages, p.heads_kv, 1};
  return {p.batch, p.descale_block == 0 ? 1 : ceil_div(p.seqlen_k, p.descale_block), p.heads_kv, 1};
}

std::optional<Strides> contiguous_strides(const TensorExtent& extent) {
  Strides strides;
  strides.head = extent.dim;
  if (__builtin_mul_overflow(extent.heads, strides.head, &strides.seqlen) ||
      __builtin_mul_overflow(extent.rows, strides.seqlen, &strides.batch)) {
    return std::nullopt;
  }
  return strides;
}

std::optional<ElementSpan> span_of(const TensorExtent& extent, const Strides& strides,
                                   int element_bytes) {
  if (extent.empty()) return ElementSpan{};
  const int64_t limit = std::numeric_limits<int64_t>::max() / (2 * element_bytes);
  ElementSpan span{0, extent.dim};
  const Axes axes = axes_of(extent, strides);
  for (int i = 0; i < axes.count; ++i) {
    int64_t reach = 0;
    if (__builtin_mul_overflow(axes.axis[i].extent - 1, axes.axis[i].stride, &reach)) {
      return std::nullopt;
    }
    int64_t& side = reach < 0 ? span.begin : span.end;
    if (__builtin_add_overflow(side, reach, &side)) return std::nullopt;
  }
  if (span.begin < -limit || span.end > limit) return std::nullopt;
  return span;
}

bool is_injective(const TensorExtent& extent, const Strides& strides) {
  if (extent.empty()) return true;
  Axes axes = axes_of(extent, strides);
  sort_by_stride(axes);
  int64_t spanned = extent.dim;
  for (int i = 0; i < axes.count; ++i) {
    const int64_t stride = std::llabs(axes.axis[i].stride);
    if (stride < spanned) return false;
    spanned += (axes.axis[i].extent - 1) * stride;
  }
  return true;
}

void refuse_size(const char* name, const TensorExtent& extent) {
  refuse("{} of {} x {} x {} x {} elements is too large; accepted: at most 2^62 bytes", name,
         extent.outer, extent.rows, extent.heads, extent.dim);
}

void check_span(const char* name, const TensorExtent& extent, const Strides& strides,
                int element_bytes) {
  if (!span_of(extent, strides, element_bytes).has_value()) refuse_span(name, strides);
}

void check_injective(const char* name, const TensorExtent& extent, const Strides& strides) {
  if (is_injective(extent, strides)) return;
  refuse("strides ({}, {}, {}) of {} overlap; accepted: each at least what the smaller ones span",
         strides.batch, strides.seqlen, strides.head, name);
}

void complete_strides(const char* name, const TensorExtent& extent, int element_bytes,
                      const std::optional<Strides>& contiguous, Strides& strides) {
  if (!contiguous.has_value() ||
      (strides == Strides{} && !span_of(extent, *contiguous, element_bytes))) {
    refuse_size(name, extent);
  }
  if (strides == Strides{}) strides = *contiguous;
  check_span(name, extent, strides, element_bytes);
}

bool may_overlap(const MemoryRegion& a, const MemoryRegion& b) {
  if (a.data == nullptr || b.data == nullptr || a.extent.empty() || b.extent.empty()) return false;
  const std::optional<ElementSpan> span_a = span_of(a.extent, a.strides, a.element_bytes);
  const std::optional<ElementSpan> span_b = span_of(b.extent, b.strides, b.element_bytes);
  if (!span_a.has_value() || !span_b.has_value()) return true;
  const auto first_byte = [](const MemoryRegion& region, const ElementSpan& span) {
    return reinterpret_cast<intptr_t>(region.data) + span.begin * region.element_bytes;
  };
  const Runs runs_a = runs_of(a), runs_b = runs_of(b);
  return may_meet(runs_a, runs_a.axes.count, runs_b, runs_b.axes.count,
                  first_byte(b, *span_b) - first_byte(a, *span_a));
}

MemoryRegion flat_region(const char* name, const void* data, int64_t count, int element_bytes) {
  return {name, data, {1, 1, 1, data == nullptr ? 0 : count}, {}, element_bytes};
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

void check_overlaps(std::span<const MemoryRegion> inputs, std::span<const MemoryRegion> outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const MemoryRegion& output = outputs[i];
    const auto check = [&](const MemoryRegion& other) {
      if (may_overlap(output, other)) {
        refuse("{} {} overlaps {} {}; accepted: memory of its own", output.name, output.data,
               other.name, other.data);
      }
    };
    for (const MemoryRegion& input : inputs) check(input);
    for (size_t j = 0; j < i; ++j) check(outputs[j]);
  }
}

}  // namespace fa4::internal
