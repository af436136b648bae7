#include "io/resolve_path.h"

#include <filesystem>
#include <system_error>

namespace fa4::cli {

std::string resolve_path(const std::string& path) {
  namespace fs = std::filesystem;
  static constexpr int kMostLinks = 40;  // as many as Linux follows
  fs::path file(path);
  std::error_code error;
  for (int links = 0; links < kMostLinks; ++links) {
    const fs::path there = fs::canonical(file, error);
    if (!error) return there.string();
    const fs::path next = fs::read_symlink(file, error);
    if (error) break;
    file = file.parent_path() / next;  // an absolute one stands alone
  }
  const fs::path folder = fs::canonical(file.has_parent_path() ? file.parent_path() : ".", error);
  return error ? file.string() : (folder / file.filename()).string();
}

}  // namespace fa4::cli
