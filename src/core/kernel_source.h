// What a compiler needs to know of a kernel: a file of the embedded sources and one C++ name
// expression.
#pragma once

#include <string>

namespace fa4::internal {

struct KernelSource {
  std::string main_file;        // path below src/kernels, e.g. "sm90/forward/kernel.cuh"
  std::string name_expression;  // e.g. "fa4::fwd_sm90<fa4::sm90::FwdTraits{.head_dim=128, ...}>"
  std::string display_name;  // short and unique, e.g. "fwd_sm90_bf16_d128_m128n128": --kernel NAME
};

}  // namespace fa4::internal
