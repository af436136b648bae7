// The one way to a compiled kernel: embedded in the library, in memory, on disk, else compiled now.
//
// Disk entries are keyed by content (all embedded kernel sources, name expression, architecture,
// compiler, flags), published by atomic rename under an advisory lock per key; a bad entry is
// recompiled. No failure of the disk is an error.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/kernel_image.h"
#include "core/kernel_source.h"

namespace fa4::internal {

class KernelCache {
 public:
  static KernelCache& get();  // the process's, configured by config()

  // Thread-safe. Throws Error{kCompiler}: no prebuilt image and no NVRTC lists what is available.
  std::shared_ptr<const KernelImage> find_or_compile(const KernelSource& source,
                                                     const std::string& architecture);

  struct Entry {
    std::string display_name, architecture, compiler, path;
    size_t bytes = 0;
  };
  std::vector<Entry> list() const;  // on disk
  size_t clear();                   // removes all entries on disk; returns how many
  std::string path() const;         // the directory; "" when off
};

}  // namespace fa4::internal
