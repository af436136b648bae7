// The functions of fa4.h about devices.
#include <fmt/format.h>

#include <string_view>

#include "attention/cpu_threads.h"
#include "capi/boundary.h"
#include "capi/handles.h"

namespace internal = fa4::internal;

namespace {

using internal::CpuFeatures;
using internal::Device;
using internal::DeviceKind;
using internal::DeviceSpec;
using internal::Error;
using internal::ErrorCode;

std::vector<DeviceSpec> all_devices() {
  std::vector<DeviceSpec> specs = {internal::host_cpu_spec()};
  for (DeviceSpec& spec : Device::enumerate()) specs.push_back(std::move(spec));
  for (DeviceSpec& spec : Device::enumerate_emulated()) specs.push_back(std::move(spec));
  return specs;
}

template <size_t kBytes>
void copy_text(std::string_view text, char (&target)[kBytes]) {
  const size_t length = std::min(text.size(), kBytes - 1);
  std::memcpy(target, text.data(), length);
  target[length] = '\0';
}

std::string feature_text(const CpuFeatures& features) {
  std::string text;
  const auto add = [&](bool present, const char* name) {
    if (!present) return;
    if (!text.empty()) text += ' ';
    text += name;
  };
  add(features.avx2, "avx2");
  add(features.avx512, "avx512");
  add(features.avx512_bf16, "avx512_bf16");
  add(features.avx512_fp16, "avx512_fp16");
  add(features.amx_bf16, "amx_bf16");
  return text;
}

int32_t kind_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kCpu: return FA4_DEVICE_CPU;
    case DeviceKind::kCuda: return FA4_DEVICE_CUDA;
    case DeviceKind::kEmulated: return FA4_DEVICE_EMULATED;
  }
  return FA4_DEVICE_CPU;
}

fa4_device_info to_info(const DeviceSpec& spec) {
  fa4_device_info info{};
  const bool is_cpu = spec.kind == DeviceKind::kCpu;
  info.kind = kind_of(spec.kind);
  info.num_threads = is_cpu ? spec.num_threads : 0;
  info.num_sms = spec.num_sms;
  info.l2_bytes = spec.l2_bytes;
  info.smem_per_block_bytes = spec.smem_per_block_bytes;
  copy_text(spec.name, info.name);
  copy_text(spec.model, info.model);
  copy_text(spec.architecture, info.architecture);
  copy_text(feature_text(spec.cpu), info.features);
  return info;
}

// The door to the memory of `device`, for the call `function`.
Device& memory_of(fa4_device* device, const char* function) {
  internal::require(device, "device");
  if (device->device == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: device cpu; accepted: a GPU, emulated or not (the CPU's memory is "
                            "the host's)",
                            function));
  }
  return *device->device;
}

}  // namespace

internal::ThreadPool& fa4_device::threads() {
  const std::lock_guard lock(threads_mutex_);
  if (threads_ == nullptr) threads_ = internal::shared_threads(spec.num_threads);
  return *threads_;
}

std::shared_ptr<const internal::GpuAppend> fa4_device::append_op(
    const internal::AttentionProblem& problem, void* stream) {
  const fa4::Element element = element_of(problem);
  const bool is_quantised = problem.is_quantised();
  const std::lock_guard lock(append_mutex_);
  std::shared_ptr<const internal::GpuAppend>& op =
      append_ops_[2 * static_cast<int>(element) + is_quantised];
  if (op == nullptr) {
    op = std::make_shared<internal::GpuAppend>(device, element, is_quantised, stream);
  }
  return op;
}

extern "C" {

fa4_status fa4_device_count(int32_t* count) {
  return internal::guarded([&] {
    internal::require(count, "count");
    *count = static_cast<int32_t>(all_devices().size());
  });
}

fa4_status fa4_describe_device(int32_t index, fa4_device_info* info) {
  return internal::guarded([&] {
    internal::require(info, "info");
    internal::check_struct(info, "fa4_device_info", sizeof(*info));
    const std::vector<DeviceSpec> specs = all_devices();
    if (index < 0 || index >= static_cast<int32_t>(specs.size())) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("index {}; accepted: 0 to {}", index, specs.size() - 1));
    }
    internal::write_struct(to_info(specs[index]), info);
  });
}

fa4_status fa4_open_device(const char* name, fa4_device** device) {
  return internal::guarded([&] {
    internal::require(name, "name");
    internal::require(device, "device");
    auto handle = std::make_unique<fa4_device>();
    if (std::string_view(name) == "cpu") {
      handle->spec = internal::host_cpu_spec();
    } else {
      handle->device = Device::open(name);
      handle->spec = handle->device->spec();
    }
    *device = handle.release();
  });
}

void fa4_close_device(fa4_device* device) { delete device; }

fa4_status fa4_device_alloc(fa4_device* device, size_t bytes, void** pointer) {
  return internal::guarded([&] {
    Device& memory = memory_of(device, "fa4_device_alloc");
    internal::require(pointer, "pointer");
    *pointer = memory.allocate(std::max<size_t>(bytes, 1));
  });
}

fa4_status fa4_device_free(fa4_device* device, void* pointer) {
  return internal::guarded([&] {
    Device& memory = memory_of(device, "fa4_device_free");
    if (pointer != nullptr) memory.free(pointer);
  });
}

fa4_status fa4_device_copy(fa4_device* device, void* to, const void* from, size_t bytes,
                           int32_t direction) {
  return internal::guarded([&] {
    Device& memory = memory_of(device, "fa4_device_copy");
    if (direction != FA4_TO_DEVICE && direction != FA4_TO_HOST) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("direction {}; accepted: 1 (FA4_TO_DEVICE), 2 (FA4_TO_HOST)", direction));
    }
    if (bytes == 0) return;
    internal::require(to, "to");
    internal::require(from, "from");
    if (direction == FA4_TO_DEVICE) {
      memory.copy_to_device(to, from, bytes);
    } else {
      memory.copy_to_host(to, from, bytes);
    }
  });
}

}  // extern "C"
