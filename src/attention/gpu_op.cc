#include "attention/gpu_op.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "jit/kernel_cache.h"

namespace fa4::internal {
namespace {

// Whether `stream` is being captured, or one of the two that every thread has, by the driver's
// handles: the legacy one (whose query also fails while any blocking stream is captured) and the
// thread's own.
bool is_any_capturing(const Device& device, void* stream) {
  void* const kLegacyStream = nullptr;
  void* const kPerThreadStream = reinterpret_cast<void*>(uintptr_t{2});
  return device.is_capturing(kLegacyStream) || device.is_capturing(kPerThreadStream) ||
         (stream != nullptr && device.is_capturing(stream));
}

const Kernel& find_kernel(const KernelStep& step, Device& device, void* stream) {
  KernelCache& cache = KernelCache::get();
  const std::string& architecture = device.spec().architecture;
  const auto smem_bytes = static_cast<uint32_t>(step.smem_bytes);
  const auto known = cache.find_in_memory(step.source, architecture, device.image_kind());
  if (known != nullptr) {
    if (const Kernel* kernel = device.find_loaded(known, smem_bytes)) return *kernel;
  }
  if (is_any_capturing(device, stream)) {
    throw Error(ErrorCode::kStreamCapture,
                fmt::format("kernel {} is not loaded and a stream is being captured; accepted: "
                            "prepare before the capture begins, then execute inside it",
                            step.source.display_name));
  }
  return device.find_or_load(cache.find_or_compile(step.source, architecture, device.image_kind()),
                             smem_bytes);
}

}  // namespace

GpuOp::GpuOp(std::shared_ptr<Device> device, const std::vector<KernelStep>& steps,
             const WorkspaceLayout& workspace, void* stream)
    : device_(std::move(device)), workspace_(workspace) {
  const bool zeroes = std::any_of(workspace.parts().begin(), workspace.parts().end(),
                                  [](const WorkspacePart& part) { return part.zeroed; });
  for (const KernelStep& step : steps) {
    LaunchConfig config;
    config.grid[0] = static_cast<uint32_t>(step.grid);
    config.block[0] = static_cast<uint32_t>(step.threads);
    config.cluster[0] = static_cast<uint32_t>(step.cluster);
    config.dynamic_smem_bytes = static_cast<uint32_t>(step.smem_bytes);
    // Behind a fill there is no kernel to overlap with.
    config.waits_itself = !launches_.empty() || !zeroes;
    launches_.push_back({&find_kernel(step, *device_, stream), config});
  }
}

void GpuOp::check_base(const char* name, const void* data) {
  if (reinterpret_cast<uintptr_t>(data) % 16 == 0) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} {}; accepted on a GPU: multiples of 16 bytes", name, data));
}

void GpuOp::encode(const GpuTensor& tensor, void* map) const {
  check_base(tensor.name, tensor.data);
  const bool wide = tensor.slab == 64;
  TensorMapDesc desc{
      .base = tensor.data,
      .dtype = tensor.dtype,
      .rank = 1,
      .dims = {static_cast<uint64_t>(tensor.columns)},
      .strides_bytes = {},
      .box = {static_cast<uint32_t>(tensor.slab)},
      .swizzle = wide ? TensorMapDesc::Swizzle::k128B : TensorMapDesc::Swizzle::k64B};
  for (const TensorAxis& axis : tensor.axes) {
    // A dimension of one element has no stride that matters; TMA wants a valid one.
    desc.strides_bytes[desc.rank - 1] =
        static_cast<uint64_t>(axis.extent > 1 ? axis.stride * size_of(tensor.dtype) : 16);
    desc.dims[desc.rank] = static_cast<uint64_t>(axis.extent);
    desc.box[desc.rank++] = static_cast<uint32_t>(axis.box);
  }
  device_->encode_tensor_map(desc, map);
}

void* GpuOp::part(std::string_view name, void* workspace) const {
  const WorkspacePart* part = workspace_.find(name);
  return part == nullptr ? nullptr : static_cast<char*>(workspace) + part->offset;
}

void GpuOp::zero_workspace(void* workspace, void* stream) const {
  for (const WorkspacePart& part : workspace_.parts()) {
    if (!part.zeroed) continue;
    device_->enqueue_zero(static_cast<char*>(workspace) + part.offset, part.bytes, stream);
  }
}

void GpuOp::launch(const LaunchConfig& config, size_t step, const void* params, size_t bytes,
                   void* stream) const {
  launches_[step].kernel->launch(config, params, bytes, stream);
}

}  // namespace fa4::internal
