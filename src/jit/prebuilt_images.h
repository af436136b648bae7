// Kernels that the build compiled and put, compressed, into the library.
//
// prebuilt_images() is defined by the library fa4_images (what fa4_prebuild made) or by
// fa4_no_images (an empty table); src/jit/CMakeLists.txt says who links which.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "core/kernel_image.h"
#include "core/kernel_source.h"

namespace fa4::internal {

struct PrebuiltImage {
  const char* main_file;
  const char* name_expression;
  const char* display_name;
  const char* architecture;
  const char* compiler;
  const char* entry;
  const unsigned char* frame;  // the cubin as one zstd frame with a checksum
  size_t frame_bytes;
  size_t num_bytes;  // of the cubin
  KernelResources resources;
  const PrebuiltImage* base = nullptr;  // whose cubin is the frame's prefix; null: it needs none
};

std::span<const PrebuiltImage> prebuilt_images();

// The row of `images` that is `source` compiled for `architecture`, as an image. Throws
// Error{kInternal} when its frame, or its base's, is damaged.
std::optional<KernelImage> find_prebuilt(std::span<const PrebuiltImage> images,
                                         const KernelSource& source,
                                         const std::string& architecture);

}  // namespace fa4::internal
