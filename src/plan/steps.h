// What a GPU plan launches, kernel after kernel, and how the caller's workspace is cut up for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/kernel_source.h"

namespace fa4::internal {

// The struct that a kernel takes as its one parameter (kernels/**/params.h).
enum class KernelParams { kForward, kBackward, kAppend };

// One launch. A plan's steps run in their order on one stream; each may begin while the one before
// it ends, and waits for what it needs itself.
struct KernelStep {
  KernelSource source;
  KernelParams params = KernelParams::kForward;
  int grid = 1;        // CTAs
  int threads = 0;     // of a CTA
  int cluster = 1;     // CTAs that are launched together
  int smem_bytes = 0;  // dynamic, of a CTA
};

// A workspace begins at a multiple of this many bytes, and so does each of its parts.
inline constexpr int64_t kWorkspaceAlignment = 256;

// Hands out parts of a block of memory one after another, each at a multiple of
// kWorkspaceAlignment.
class Parts {
 public:
  // Returns the part's offset.
  size_t add(int64_t bytes);
  size_t end() const { return end_; }

 private:
  size_t end_ = 0;
};

struct WorkspacePart {
  std::string_view name;  // a literal
  size_t offset = 0;
  size_t bytes = 0;
  bool zeroed = false;  // before the first step
};

// The caller's workspace: parts of undefined contents but for those that are zeroed.
class WorkspaceLayout {
 public:
  void add(std::string_view name, int64_t bytes, bool zeroed = false);
  // Null when there is no part of that name.
  const WorkspacePart* find(std::string_view name) const;

  const std::vector<WorkspacePart>& parts() const { return parts_; }
  size_t bytes() const { return cut_.end(); }  // 0: none is needed

 private:
  Parts cut_;
  std::vector<WorkspacePart> parts_;
};

// What rows saw of the parts of their keys (PartParams of kernels/forward/params.h).
inline constexpr std::string_view kPartSums = "part_sums";
inline constexpr std::string_view kPartStats = "part_stats";
// Counts the tiles that were handed out: a u32 for the main kernel, one behind it for that of few
// queries.
inline constexpr std::string_view kTileCounter = "tile_counter";

}  // namespace fa4::internal
