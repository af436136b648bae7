#include "io/resolve_path.h"

#include <charconv>
#include <filesystem>
#include <system_error>

namespace fa4::cli {
namespace {

namespace fs = std::filesystem;

// Empty where the system has none.
fs::path folder_of_descriptors() {
  std::error_code error;
  return fs::canonical("/proc/self/fd", error);
}

}  // namespace

std::string resolve_path(const std::string& path) {
  static constexpr int kMostLinks = 40;  // as many as Linux follows
  const fs::path descriptors = folder_of_descriptors();
  fs::path file(path);
  std::error_code error;
  for (int links = 0; links < kMostLinks; ++links) {
    const fs::path folder = fs::canonical(file.has_parent_path() ? file.parent_path() : ".", error);
    if (error) break;
    file = folder / file.filename();
    if (folder == descriptors) return file.string();
    const fs::path next = fs::read_symlink(file, error);
    if (error) {
      const fs::path there = fs::canonical(file, error);
      return error ? file.string() : there.string();
    }
    file = folder / next;  // an absolute one stands alone
  }
  return file.string();
}

std::optional<int> own_descriptor(const std::string& resolved) {
  const fs::path path(resolved);
  if (path.parent_path() != folder_of_descriptors()) return std::nullopt;
  const std::string name = path.filename().string();
  const char* end = name.data() + name.size();
  int number = 0;
  const auto [stopped, error] = std::from_chars(name.data(), end, number);
  if (error != std::errc() || stopped != end) return std::nullopt;
  return number;
}

}  // namespace fa4::cli
