#include "plan/steps.h"

#include <algorithm>

#include "core/rounding.h"

namespace fa4::internal {

size_t Parts::add(int64_t bytes) {
  const size_t at = end_;
  end_ += static_cast<size_t>(round_up(bytes, kWorkspaceAlignment));
  return at;
}

void WorkspaceLayout::add(std::string_view name, int64_t bytes, bool zeroed) {
  parts_.push_back({name, cut_.add(bytes), static_cast<size_t>(bytes), zeroed});
}

const WorkspacePart* WorkspaceLayout::find(std::string_view name) const {
  const auto found = std::find_if(parts_.begin(), parts_.end(),
                                  [&](const WorkspacePart& part) { return part.name == name; });
  return found == parts_.end() ? nullptr : &*found;
}

}  // namespace fa4::internal
