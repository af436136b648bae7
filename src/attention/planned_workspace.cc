#include "attention/planned_workspace.h"

#include <fmt/format.h>

#include <cstdint>

#include "core/error.h"

namespace fa4::internal {

void check_workspace(const void* workspace, size_t bytes, const WorkspaceLayout& layout) {
  if (layout.bytes() == 0) return;
  if (workspace == nullptr || bytes < layout.bytes()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("workspace {} of workspace_bytes {}; accepted: at least {} bytes",
                            workspace, bytes, layout.bytes()));
  }
  if (reinterpret_cast<uintptr_t>(workspace) % kWorkspaceAlignment != 0) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("workspace {}; accepted: multiples of {}",
                                                         workspace, kWorkspaceAlignment));
  }
}

}  // namespace fa4::internal
