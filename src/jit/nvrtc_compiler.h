// KernelSource + architecture -> KernelImage, through NVRTC opened at run time. Works without a
// GPU.
#pragma once

#include <string>

#include "core/kernel_image.h"
#include "core/kernel_source.h"

namespace fa4::internal {

class NvrtcCompiler {
 public:
  // The process's compiler; throws Error{kCompiler} with how to get NVRTC when none can be opened.
  static const NvrtcCompiler& get();
  static bool available();

  std::string version() const;  // "NVRTC 13.0"
  // Always compiles: knows no cache. Thread-safe. Throws Error{kCompiler} with the compiler's log.
  KernelImage compile(const KernelSource& source, const std::string& architecture,
                      KernelImage::Kind kind = KernelImage::Kind::kCubin) const;
};

}  // namespace fa4::internal
