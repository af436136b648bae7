// Compiled kernels in a folder, shared by the processes of one user. No failure of the disk is an
// error here: a read that fails is a miss, a write that fails is forgotten.
//
// What is read here is run on the GPU: folder and files must belong to this user (or to root), and
// nobody else may write them. A folder that is not so is left alone, and the log says why.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "core/kernel_image.h"
#include "jit/kernel_cache.h"

namespace fa4::internal {

class DiskCache {
 public:
  // "" switches it off: nothing is found, nothing stored.
  explicit DiskCache(std::string folder) : folder_(std::move(folder)) {}

  bool enabled() const { return !folder_.empty(); }
  const std::string& folder() const { return folder_; }
  // Why the folder that is there cannot be used, in one line; "" when it can, or can be made.
  std::string problem() const;

  // Nothing for an entry that is absent, damaged or of another format.
  std::optional<KernelImage> load(const std::string& key) const;
  // Through a temporary file and a rename: readers see all of an entry or none.
  bool store(const std::string& key, const KernelImage& image) const;

  std::vector<KernelCache::Entry> list() const;
  // Removes entries, damaged or not, locks and temporaries; returns how many entries. Files that
  // are no images stay, whatever they are called.
  size_t clear() const;

  // The advisory lock of one key, for as long as the object lives. The kernel drops it when its
  // holder dies.
  class Lock {
   public:
    Lock(const DiskCache& cache, const std::string& key, std::chrono::milliseconds timeout);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    bool held() const { return held_; }  // false: timed out, or the folder has no locks
    bool timed_out() const { return timed_out_; }

   private:
    int file_ = -1;
    bool held_ = false;
    bool timed_out_ = false;
  };

 private:
  bool usable() const;       // on, and the folder has no problem
  bool make_folder() const;  // unless it is there: with mode 0700; false when it cannot be used
  std::string file_of(const std::string& key, const char* extension) const;

  std::string folder_;
};

}  // namespace fa4::internal
