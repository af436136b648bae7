// A CUDA device behind the door of device.h, over the driver API.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>

#include "core/error.h"
#include "device/cuda/driver_api.h"
#include "device/device.h"

namespace fa4::internal {

// Throws the Error that fits `result`, unless it is success: "cuda:0: <what>: CUDA_ERROR_...
// (text)".
void check_driver(const DriverApi& api, CuResult result, const std::string& device,
                  const char* what);

// Makes `context` this thread's current one while it lives; costs one query when it already is.
class ContextScope {
 public:
  ContextScope(const DriverApi& api, CuContext context, const std::string& device);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  const DriverApi& api_;
  bool pushed_ = false;
};

// Retains the primary context for the life of the process: driver objects are never torn down
// under a caller. Every method may be called from any thread.
class CudaDevice : public Device {
 public:
  // `api` must outlive the device.
  CudaDevice(const DriverApi& api, int ordinal);

  const DeviceSpec& spec() const override { return spec_; }
  std::unique_ptr<Kernel> load(const KernelImage& image, uint32_t dynamic_smem_bytes) override;
  void encode_tensor_map(const TensorMapDesc& desc, void* map) const override;
  bool is_capturing(void* stream) const override;
  void enqueue_zero(void* to, size_t bytes, void* stream) const override;
  void enqueue_copy(const CopyRows& copy, void* stream) const override;

  void* allocate(size_t bytes) override;
  void free(void* pointer) override;
  void copy_to_device(void* to, const void* from, size_t bytes) override;
  void copy_to_host(void* to, const void* from, size_t bytes) override;
  void fill(void* to, unsigned char value, size_t bytes) override;
  void* create_stream() override;
  void destroy_stream(void* stream) override;
  void synchronize(void* stream) override;
  std::unique_ptr<Event> create_event() override;
  void* create_urgent_stream() override;
  std::unique_ptr<Event> create_untimed_event() override;

 private:
  ContextScope enter() const { return ContextScope(api_, context_, spec_.name); }
  void check(CuResult result, const char* what) const {
    check_driver(api_, result, spec_.name, what);
  }

  const DriverApi& api_;
  DeviceSpec spec_;
  CuContext context_ = nullptr;
};

// How many devices the driver sees. Throws Error{kDriver} when it cannot say.
int cuda_device_count(const DriverApi& api);

// What device `ordinal` is; creates no context.
DeviceSpec cuda_spec(const DriverApi& api, int ordinal);

}  // namespace fa4::internal
