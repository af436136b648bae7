// A compiled kernel: what Device::load takes.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace fa4::internal {

struct KernelResources {
  int registers = 0;    // per thread at launch
  int spill_bytes = 0;  // stores + loads, as ptxas reports them
  int stack_bytes = 0;
  int static_smem_bytes = 0;
};

struct KernelImage {
  enum class Kind : int { kCubin = 0, kPtx = 1 };
  Kind kind = Kind::kCubin;
  std::vector<unsigned char> bytes;
  std::string entry;         // lowered (mangled) name of the __global__ function
  std::string display_name;  // KernelSource::display_name
  std::string architecture;  // "sm_90a"
  std::string compiler;      // "NVRTC 13.0"
  std::string log;           // what the compiler printed (warnings, resource use)
  KernelResources resources;
  double compile_seconds = 0;  // 0: not compiled by this process
};

}  // namespace fa4::internal
