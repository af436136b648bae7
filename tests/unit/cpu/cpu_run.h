// Runs a case on one CPU path, and skips it where the machine lacks the path.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/device_spec.h"
#include "cpu/exponential.h"
#include "cpu/forward.h"
#include "verify/accuracy.h"
#include "verify/cases.h"

namespace fa4::internal {

inline constexpr CpuIsa kAllPaths[] = {CpuIsa::kScalar,     CpuIsa::kAvx2,    CpuIsa::kAvx512,
                                       CpuIsa::kAvx512Bf16, CpuIsa::kAmxBf16, CpuIsa::kAmxModel};

inline std::string path_name(const testing::TestParamInfo<CpuIsa>& info) {
  return std::string(name_of(info.param));
}

// A test of one path; each is forced, whatever the machine would choose.
class CpuPathTest : public testing::TestWithParam<CpuIsa> {
 protected:
  void SetUp() override {
    if (!has_isa(host_cpu_spec().cpu, GetParam())) {
      GTEST_SKIP() << "this machine has no " << name_of(GetParam());
    }
  }
  std::vector<DType> dtypes() const {
    std::vector<DType> list;
    for (DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
      if (isa_supports(GetParam(), dtype)) list.push_back(dtype);
    }
    return list;
  }
};

struct FreeDeleter {
  void operator()(void* p) const { std::free(p); }
};

struct CpuResult {
  std::vector<unsigned char> out;
  std::vector<float> lse;
  CpuKernelSpec spec;
  bool operator==(const CpuResult& other) const {
    return out == other.out &&
           std::memcmp(lse.data(), other.lse.data(), lse.size() * sizeof(float)) == 0;
  }
};

// The workspace is filled with NaN first: its contents are undefined.
inline CpuResult run_cpu(const AttentionProblem& problem, ForwardArgs args, CpuIsa isa,
                         int threads = 2, const DeviceSpec& device = host_cpu_spec()) {
  CpuResult result;
  result.spec = plan_cpu(problem, device, threads, isa);
  result.out.assign(static_cast<size_t>(extents_of(problem).out) * size_of(problem.out_dtype),
                    0x7f);
  result.lse.assign(static_cast<size_t>(problem.lse_elements()), 777.0f);
  const size_t bytes = cpu_workspace_bytes(problem, result.spec);
  const std::unique_ptr<void, FreeDeleter> workspace(std::aligned_alloc(256, bytes + 256));
  std::memset(workspace.get(), 0xff, bytes + 256);
  args.out = result.out.data();
  args.lse = result.lse.data();
  args.workspace = workspace.get();
  args.workspace_bytes = bytes;
  ThreadPool pool(threads);
  cpu_forward(problem, result.spec, args, pool);
  return result;
}

// Compares with double precision by the contract's rules.
inline void expect_accurate(const AttentionProblem& problem, const ForwardArgs& args,
                            const Reference& reference, const CpuResult& result) {
  const Accuracy out = check_out(problem, args, reference, result.out.data(), result.spec.tile_m);
  EXPECT_TRUE(out.passed) << name_of(result.spec.isa) << ": " << out.detail;
  const Accuracy lse = check_lse(problem, args, reference, result.lse.data(),
                                 exp2_max_relative_error(problem.dtype));
  EXPECT_TRUE(lse.passed) << name_of(result.spec.isa) << ": " << lse.detail;
}

}  // namespace fa4::internal
