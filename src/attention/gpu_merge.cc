#include "attention/gpu_merge.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/forward_params.h"
#include "core/error.h"
#include "core/rounding.h"
#include "kernels/output/params.h"
#include "kernels/output/traits.h"
#include "plan/kernel_spec.h"

namespace fa4::internal {
namespace {

constexpr int64_t kRowsPerCta = kMergeThreads / 32;
constexpr int64_t kMostRows = (int64_t{1} << 31) - 1;  // the kernel counts them in 32 bits

void check_gpu(const MergeArgs& a, const DeviceSpec& spec) {
  const auto refuse = [](std::string reason) {
    throw Error(ErrorCode::kNotSupported, std::move(reason));
  };
  const std::vector<std::string> built = prebuilt_architectures();
  if (std::find(built.begin(), built.end(), spec.architecture) == built.end()) {
    refuse(fmt::format("architecture {} of device {}; accepted in this version: {}",
                       spec.architecture, spec.name, fmt::join(built, ", ")));
  }
  if (a.num_parts > kMostMergedParts) {
    refuse(fmt::format("num_parts {}; accepted on a GPU: 1 to {}", a.num_parts, kMostMergedParts));
  }
  if (a.rows() > kMostRows) {
    refuse(fmt::format("batch {}, seqlen {} and num_heads {}; accepted on a GPU: below 2^31 rows",
                       a.batch, a.seqlen, a.heads));
  }
}

MergeStrides strides_of(const Strides& s) { return {s.batch, s.seqlen, s.head}; }

template <int kParts>
MergeParams<kParts> merge_params(const MergeArgs& a) {
  MergeParams<kParts> params{.outs = {},
                             .lses = {},
                             .out = a.out,
                             .lse = a.lse,
                             .part_out = strides_of(a.part_out),
                             .part_lse = strides_of(a.part_lse),
                             .merged = strides_of(a.output),
                             .rows = a.rows(),
                             .num_parts = static_cast<int32_t>(a.num_parts),
                             .seqlen = static_cast<int32_t>(a.seqlen),
                             .heads = static_cast<int32_t>(a.heads),
                             .head_dim = static_cast<int32_t>(a.head_dim),
                             .part_type = float_type(a.dtype),
                             .merged_type = float_type(a.out_dtype)};
  std::copy_n(a.part_outs, a.num_parts, params.outs);
  std::copy_n(a.part_lses, a.num_parts, params.lses);
  return params;
}

template <int kParts>
GpuOp prepared(std::shared_ptr<Device> device, void* stream) {
  return GpuOp(std::move(device),
               {KernelStep{.source = merge_source(kParts), .threads = kMergeThreads}}, {}, stream);
}

template <int kParts>
void launch(const GpuOp& gpu, const MergeArgs& args) {
  if (args.rows() == 0) return;
  gpu.launch(0, static_cast<int>(ceil_div(args.rows(), kRowsPerCta)), merge_params<kParts>(args),
             args.stream);
}

}  // namespace

static_assert(GpuMerge::kMostParts == kFewMergedParts);

GpuMerge::GpuMerge(std::shared_ptr<Device> device, void* stream)
    : gpu_(prepared<kMostParts>(std::move(device), stream)) {}

void GpuMerge::execute(const MergeArgs& args) const { launch<kMostParts>(gpu_, args); }

void gpu_merge(const MergeArgs& args, const std::shared_ptr<Device>& device) {
  check_gpu(args, device->spec());
  if (args.rows() == 0) return;
  if (args.num_parts <= kFewMergedParts) {
    GpuMerge(device, args.stream).execute(args);
  } else {
    launch<kMostMergedParts>(prepared<kMostMergedParts>(device, args.stream), args);
  }
}

}  // namespace fa4::internal
