// Which kernel, in which variant: prints as its own C++ name.
#pragma once

#include <string>
#include <vector>

#include "core/kernel_source.h"
#include "kernels/sm90/fwd_traits.h"

namespace fa4::internal {

struct Sm90ForwardSpec {
  FwdTraits traits;
  KernelSource source() const;
};

// Every kernel that the build compiles ahead of time for `architecture` ("sm_90a"); empty for one
// it does not know.
std::vector<KernelSource> prebuilt_kernels(const std::string& architecture);

}  // namespace fa4::internal
