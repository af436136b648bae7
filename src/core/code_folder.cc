#include "core/code_folder.h"

#include <dlfcn.h>

#include <algorithm>
#include <string_view>

namespace fa4::internal {

std::filesystem::path code_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&code_folder), &info) == 0) return {};
  // A program that was found through PATH has no folder in its name.
  const std::string_view name = info.dli_fname;
  const bool bare = name.find('/') == std::string_view::npos;
  std::error_code error;
  const auto file = std::filesystem::canonical(bare ? "/proc/self/exe" : name, error);
  return error ? std::filesystem::path() : file.parent_path();
}

bool lies_in(const std::filesystem::path& path, const std::filesystem::path& folder) {
  const auto [end_of_folder, rest] =
      std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return end_of_folder == folder.end();
}

}  // namespace fa4::internal
