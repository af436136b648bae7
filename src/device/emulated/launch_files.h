// Writes a launch as files that `ptxemu run` takes, so that a kernel can be run again without the
// program that launched it: under other policies, with a trace, or changed by hand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "ptxemu/machine.h"

namespace fa4::internal {

// Address and bytes of what is allocated now. Device addresses are host addresses.
using Allocations = std::map<uint64_t, uint64_t>;

struct LaunchToSave {
  const std::string& ptx;
  const std::string& kernel_name;  // the folder is called after the word that it begins with
  const ptxemu::LaunchRequest& request;
  const void* params;
  size_t params_bytes;
};

// Makes a folder "0000-NAME" in `parent`, numbered in the order of this process's launches, and
// writes kernel.ptx, launch.json and one b*.npy for each allocation that the parameters point into,
// as it is now. Throws Error{kIo} with the file that could not be written.
void save_launch(const std::string& parent, const LaunchToSave& launch,
                 const Allocations& allocations);

}  // namespace fa4::internal
