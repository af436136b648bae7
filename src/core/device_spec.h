// What a plan needs to know about a device: plain values, so that plans are made without one.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace fa4::internal {

enum class DeviceKind { kCpu, kCuda, kEmulated };

// What a CPU has beyond plain x86-64. `fa4 devices` lists the paths that this opens.
struct CpuFeatures {
  bool avx2 = false;         // AVX2, FMA and F16C
  bool avx512 = false;       // AVX-512 F, BW, DQ, VL
  bool avx512_bf16 = false;  // vdpbf16ps
  bool avx512_fp16 = false;
  bool avx512_vbmi = false;  // vpermi2b
  bool amx_bf16 = false;     // tiles, and the kernel granted their use
};

struct DeviceSpec {
  DeviceKind kind = DeviceKind::kCpu;
  std::string name;          // "cpu", "cuda:0", "emulated:h200"
  std::string model;         // "NVIDIA H200", "AMD EPYC ..."
  std::string architecture;  // "x86_64", "sm_90a"
  // CPU
  CpuFeatures cpu;
  int num_threads = 1;  // that a plan may use at most
  // GPU
  int num_sms = 0;
  size_t l2_bytes = 0;
  double memory_bandwidth = 0;      // bytes a second, by clock and width; 0: not known
  size_t smem_per_block_bytes = 0;  // opt-in maximum
};

// The CPU of this process: features and hardware threads, detected once.
const DeviceSpec& host_cpu_spec();

// A data-sheet H200, for plans on machines that have none.
DeviceSpec h200_spec();

// The GPUs that PTX can be run on without one: "emulated:h200", "emulated:b200".
std::vector<DeviceSpec> emulated_specs();

}  // namespace fa4::internal
