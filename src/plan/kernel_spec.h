// Which kernel, in which variant: prints as its own C++ name.
#pragma once

#include <string>
#include <vector>

#include "core/kernel_source.h"
#include "kernels/sm90/fwd_traits.h"

namespace fa4::internal {

// How the tiles of one problem are handed out; values of the launch, not of the compiled kernel.
struct TileSchedule {
  int group = 1;     // query heads packed into a tile's rows
  int sections = 1;  // of heads whose keys and values share the L2 cache
  bool longest_first = false;
  bool on_demand = false;  // by an atomic counter in the workspace; else by stride
  int grid = 0;            // blocks launched
};

struct Sm90ForwardSpec {
  FwdTraits traits;
  TileSchedule schedule;
  KernelSource source() const;
};

// The kernel that measures the tensor cores' ceiling.
KernelSource sm90_peak_source();

// Every kernel that the build compiles ahead of time for `architecture` ("sm_90a"); empty for one
// it does not know.
std::vector<KernelSource> prebuilt_kernels(const std::string& architecture);

}  // namespace fa4::internal
