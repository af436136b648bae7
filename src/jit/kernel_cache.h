// The one way to a compiled kernel: embedded in the library, in memory, on disk, else compiled now.
//
// Disk entries are keyed by content (all embedded kernel sources, name expression, architecture,
// compiler, flags), published by atomic rename under an advisory lock per key; a bad entry is
// recompiled. No failure of the disk is an error.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/kernel_image.h"
#include "core/kernel_source.h"
#include "jit/prebuilt_images.h"

namespace fa4::internal {

class DiskCache;

class KernelCache {
 public:
  // What a cache stands on; the process's has the embedded images, NVRTC and the folder of
  // config().
  struct Parts {
    std::span<const PrebuiltImage> prebuilt;
    std::string folder;  // "": no disk
    // All that a compiled image depends on besides source and architecture: the sources' texts,
    // the compiler, its flags. May throw Error{kCompiler} when there is no compiler.
    std::function<std::string()> fingerprint;
    std::function<KernelImage(const KernelSource&, const std::string& architecture,
                              KernelImage::Kind kind)>
        compile;
    std::chrono::milliseconds lock_timeout{30000};
  };

  static KernelCache& get();
  explicit KernelCache(Parts parts);
  ~KernelCache();

  // Thread-safe; threads that ask for one kernel compile it once. PTX is never prebuilt. Throws
  // Error{kCompiler} where the kernel does not compile, and where it is not prebuilt and NVRTC is
  // not there: then the message says how many kernels are prebuilt for which architectures.
  std::shared_ptr<const KernelImage> find_or_compile(
      const KernelSource& source, const std::string& architecture,
      KernelImage::Kind kind = KernelImage::Kind::kCubin);

  // What find_or_compile() returned before; null when this object has not been asked for it yet.
  // Neither reads a file nor compiles.
  std::shared_ptr<const KernelImage> find_in_memory(
      const KernelSource& source, const std::string& architecture,
      KernelImage::Kind kind = KernelImage::Kind::kCubin) const;

  struct Entry {
    std::string display_name, architecture, compiler, path;
    size_t bytes = 0;
  };
  std::vector<Entry> list() const;  // on disk, in the order of their display names
  size_t clear();                   // removes all entries on disk; returns how many
  std::string path() const;         // the directory; "" when off
  std::string problem() const;      // why that directory is not used; "" when it is

  // Where this object's answers came from.
  struct Counts {
    int embedded = 0, memory = 0, disk = 0, compiled = 0, gave_up_waiting = 0;
  };
  Counts counts() const;

 private:
  struct Slot {
    std::mutex making;                         // held by who makes the image
    std::shared_ptr<const KernelImage> image;  // read and written under mutex_
  };
  std::shared_ptr<const KernelImage> image_of(const Slot& slot) const;
  KernelImage find_elsewhere(const KernelSource& source, const std::string& architecture,
                             KernelImage::Kind kind);
  std::string key_of(const KernelSource& source, const std::string& architecture,
                     KernelImage::Kind kind) const;
  void count(int Counts::*which);

  Parts parts_;
  std::unique_ptr<DiskCache> disk_;
  mutable std::mutex mutex_;  // of the two below, and of slots' images
  std::map<std::string, std::shared_ptr<Slot>> slots_;
  Counts counts_;
};

}  // namespace fa4::internal
