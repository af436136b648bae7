#include "ptxemu/allowed_paths.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "failure.h"
#include "io/resolve_path.h"

namespace fa4::cli {
namespace {

namespace fs = std::filesystem;

// The path without links and dots, as far as it exists. The last link is followed as writing
// follows it: weakly_canonical takes one whose target is not there for a file of its own folder.
fs::path real(const fs::path& path) {
  std::error_code error;
  const fs::path target = resolve_path(path.string());
  fs::path result = fs::weakly_canonical(fs::absolute(target, error), error);
  return error ? fs::path() : result;
}

bool is_inside(const fs::path& path, const fs::path& folder) {
  const auto [in_folder, in_path] =
      std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return in_folder == folder.end() && in_path != path.end();
}

}  // namespace

AllowedPaths::AllowedPaths(const std::string& launch_file,
                           const std::optional<std::string>& files) {
  folders_.push_back(real(fs::path(launch_file).parent_path() / "."));
  if (files) {
    std::error_code error;
    if (!fs::is_directory(*files, error)) {
      throw bad_input(fmt::format("--files {}; accepted: a folder", *files));
    }
    folders_.push_back(real(*files));
  }
  // "folder/" has an empty last part, which nothing below it has.
  for (fs::path& folder : folders_) {
    if (!folder.has_filename()) folder = folder.parent_path();
  }
}

void AllowedPaths::check(const std::string& where, const std::string& path) const {
  const fs::path target = real(path);
  const bool allowed =
      !target.empty() && std::any_of(folders_.begin(), folders_.end(), [&](const fs::path& folder) {
        return is_inside(target, folder);
      });
  if (allowed) return;
  throw bad_input(
      fmt::format("{} {}: lies outside of {}; accepted: files of the launch file's folder and of "
                  "--files DIR, or any with --allow-paths",
                  where, path, folders_.front().string()));
}

void AllowedPaths::check(const LaunchFile& file) const {
  for (const BufferSpec& buffer : file.buffers) {
    if (!buffer.file.empty()) check(fmt::format("buffers.{}.npy", buffer.name), buffer.file);
    if (!buffer.save.empty()) check(fmt::format("buffers.{}.save", buffer.name), buffer.save);
  }
  for (const LaunchSpec& launch : file.launches) {
    if (launch.names_ptx) check(launch.where + "ptx", launch.ptx);
  }
}

}  // namespace fa4::cli
