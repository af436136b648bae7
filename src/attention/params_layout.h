// How the parameters of kernels lie in memory, for tools that fill one themselves.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "plan/steps.h"

namespace fa4::internal {

struct ParamsField {
  std::string name;
  const char* type;  // "tensor_map", "ptr", "i64", "i32", "f32"
  size_t offset;     // bytes
};

// A parameter's memory, member by member.
struct ParamsLayout {
  const char* name;
  size_t bytes;
  std::vector<ParamsField> fields;
};
ParamsLayout params_layout(KernelParams params);

}  // namespace fa4::internal
