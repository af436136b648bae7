#include "problem/merge_args.h"

#include <string>
#include <vector>

#include <fmt/format.h>

#include "problem/refuse.h"
#include "problem/tensor_extent.h"

namespace fa4::internal {
namespace {

bool is_dtype(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

void check_dtypes(const MergeArgs& a) {
  if (!is_dtype(a.dtype)) {
    refuse("dtype {}; accepted: 1 (f32), 2 (f16), 3 (bf16)", static_cast<int32_t>(a.dtype));
  }
  if (!is_dtype(a.out_dtype)) {
    refuse("out_dtype {}; accepted: 0 (dtype, {}), 1 (f32), 2 (f16), 3 (bf16)",
           static_cast<int32_t>(a.out_dtype), name_of(a.dtype));
  }
}

// A head's rows lie side by side.
Strides lse_strides(const MergeArgs& a) { return {a.heads * a.seqlen, 1, a.seqlen}; }

// An element of a part is read before its thread writes the merged one: it may take its place. The
// stride of an axis of one element does not matter.
bool takes_the_place(const MemoryRegion& output, const MemoryRegion& input) {
  const TensorExtent& extent = output.extent;
  const Strides &a = output.strides, &b = input.strides;
  return output.data == input.data && (extent.outer <= 1 || a.batch == b.batch) &&
         (extent.rows <= 1 || a.seqlen == b.seqlen) && (extent.heads <= 1 || a.head == b.head);
}

void check_memory(const MergeArgs& a, const TensorExtent& rows, const TensorExtent& lse) {
  const MemoryRegion outputs[] = {{"out", a.out, rows, a.output, size_of(a.out_dtype)},
                                  {"lse", a.lse, lse, lse_strides(a), 4}};
  check_pointer(outputs[0]);
  if (a.lse != nullptr) check_pointer(outputs[1]);
  for (int64_t i = 0; i < a.num_parts; ++i) {
    const std::string out_name = fmt::format("part_outs[{}]", i);
    const std::string lse_name = fmt::format("part_lses[{}]", i);
    const MemoryRegion inputs[] = {
        {out_name.c_str(), a.part_outs[i], rows, a.part_out, size_of(a.dtype)},
        {lse_name.c_str(), a.part_lses[i], lse, a.part_lse, 4}};
    const bool in_place[] = {a.dtype == a.out_dtype && takes_the_place(outputs[0], inputs[0]),
                             takes_the_place(outputs[1], inputs[1])};
    for (int input = 0; input < 2; ++input) {
      check_pointer(inputs[input]);
      for (int output = 0; output < 2; ++output) {
        if (input == output && in_place[input]) continue;
        check_overlaps({&inputs[input], 1}, {&outputs[output], 1});
      }
    }
  }
  check_overlaps({}, outputs);
}

}  // namespace

MergeArgs checked(MergeArgs a) {
  if (a.out_dtype == DType{}) a.out_dtype = a.dtype;
  check_dtypes(a);
  check_size("num_parts", a.num_parts, 1);
  check_size("batch", a.batch, 0);
  check_size("seqlen", a.seqlen, 0);
  check_size("num_heads", a.heads, 1, kMaxHeads);
  check_size("head_dim", a.head_dim, 1, 65536);
  const TensorExtent rows{a.batch, a.seqlen, a.heads, a.head_dim};
  const TensorExtent lse{a.batch, a.seqlen, a.heads, 1};
  const std::optional<Strides> contiguous = contiguous_strides(rows);
  complete_strides("part_outs", rows, size_of(a.dtype), contiguous, a.part_out);
  complete_strides("part_lses", lse, 4, lse_strides(a), a.part_lse);
  complete_strides("out", rows, size_of(a.out_dtype), contiguous, a.output);
  check_injective("out", rows, a.output);
  if (rows.empty()) return a;
  if (a.part_outs == nullptr) refuse("part_outs is NULL; accepted: {} pointers", a.num_parts);
  if (a.part_lses == nullptr) refuse("part_lses is NULL; accepted: {} pointers", a.num_parts);
  check_memory(a, rows, lse);
  return a;
}

}  // namespace fa4::internal
