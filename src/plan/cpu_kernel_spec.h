// Which CPU path runs a problem, with which tiles and how many threads.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "core/device_spec.h"
#include "problem/attention_problem.h"

namespace fa4::internal {

// kAmxModel is the AMX path over the scalar model of the tile unit: for tests, on every machine.
enum class CpuIsa { kScalar, kAvx2, kAvx512, kAvx512Bf16, kAvx512Fp16, kAmxBf16, kAmxModel };

std::string_view name_of(
    CpuIsa isa);  // "scalar", "avx2", "avx512", "avx512_bf16", "avx512_fp16", "amx", "amx_model"
std::optional<CpuIsa> parse_cpu_isa(std::string_view text);

struct CpuKernelSpec {
  CpuIsa isa = CpuIsa::kScalar;
  int tile_m = 0;
  int tile_n = 0;
  int num_threads = 1;
};

// The best path that `device` has for `problem`, or `forced` (which the device must have:
// Error{kNotSupported}).
CpuKernelSpec plan_cpu(const AttentionProblem& problem, const DeviceSpec& device, int num_threads,
                       std::optional<CpuIsa> forced = {});

// Scratch of all threads together, 256-byte aligned.
size_t cpu_workspace_bytes(const AttentionProblem& problem, const CpuKernelSpec& spec);

}  // namespace fa4::internal
