// One loaded kernel.
#pragma once

#include "device/cuda/cuda_device.h"

namespace fa4::internal {

class CudaKernel : public Kernel {
 public:
  CudaKernel(const DriverApi& api, CuContext context, const DeviceSpec& device,
             const KernelImage& image, uint32_t dynamic_smem_bytes);
  ~CudaKernel() override;

  void launch(const LaunchConfig& config, const void* params, size_t params_bytes,
              void* stream) const override;

 private:
  const DriverApi& api_;
  CuContext context_;
  std::string device_;
  std::string launch_name_;  // "launch of <kernel>", made here because launch() may not allocate
  CuModule module_ = nullptr;
  CuFunction function_ = nullptr;
};

}  // namespace fa4::internal
