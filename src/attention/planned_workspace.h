// The caller's workspace as an operation sees it.
#pragma once

#include <cstddef>

#include "plan/steps.h"

namespace fa4::internal {

// Throws Error{kInvalidArgument} when the workspace is smaller than the layout, or not aligned.
void check_workspace(const void* workspace, size_t bytes, const WorkspaceLayout& layout);

// The arguments with as much of the workspace as the plan uses: what lies behind it in a larger
// one may be anything's.
template <class Args>
Args with_planned_workspace(const Args& args, const WorkspaceLayout& layout) {
  check_workspace(args.workspace, args.workspace_bytes, layout);
  Args used = args;
  used.workspace_bytes = layout.bytes();
  if (layout.bytes() == 0) used.workspace = nullptr;
  return used;
}

}  // namespace fa4::internal
