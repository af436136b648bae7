// Which files a launch file may name: those of its own folder, for it may come from elsewhere.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ptxemu/launch_file.h"

namespace fa4::cli {

class AllowedPaths {
 public:
  // The folder of `launch_file`, and that of --files.
  AllowedPaths(const std::string& launch_file, const std::optional<std::string>& files);

  // Throws Failure{kBadInput} for the first "npy", "save" or "ptx" of the file that lies outside of
  // all folders, symbolic links followed.
  void check(const LaunchFile& file) const;

 private:
  void check(const std::string& where, const std::string& path) const;
  std::vector<std::filesystem::path> folders_;
};

}  // namespace fa4::cli
