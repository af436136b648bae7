// Runs a case's backward on one CPU path.
#pragma once

#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "core/device_spec.h"
#include "cpu/backward.h"
#include "cpu_run.h"
#include "support/backward_case.h"
#include "verify/accuracy.h"
#include "verify/cases.h"

namespace fa4::internal {

struct CpuGradients {
  std::vector<unsigned char> dq, dk, dv;
  std::vector<float> dsink;
  CpuBackwardSpec spec;
  bool operator==(const CpuGradients& other) const {
    return dq == other.dq && dk == other.dk && dv == other.dv &&
           std::memcmp(dsink.data(), other.dsink.data(), dsink.size() * sizeof(float)) == 0;
  }
};

// A test of one path that has a backward; each is forced, whatever the machine would choose.
class CpuBackwardTest : public testing::TestWithParam<CpuIsa> {
 protected:
  void SetUp() override {
    if (dtypes().empty()) GTEST_SKIP() << name_of(GetParam()) << " has no backward";
    if (!has_isa(host_cpu_spec().cpu, GetParam())) {
      GTEST_SKIP() << "this machine has no " << name_of(GetParam());
    }
  }
  std::vector<DType> dtypes() const {
    std::vector<DType> list;
    for (DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
      if (isa_supports_backward(GetParam(), dtype)) list.push_back(dtype);
    }
    return list;
  }
};

// Outputs and the workspace begin as NaN. `args` has out and lse.
inline CpuGradients run_cpu_backward(const AttentionProblem& p, BackwardArgs args, CpuIsa isa,
                                     int threads = 2) {
  CpuGradients result;
  result.spec = plan_cpu_backward(p, host_cpu_spec(), threads, isa);
  const TensorExtents extents = extents_of(p);
  const auto bytes = [&](int64_t n) { return static_cast<size_t>(n) * size_of(p.grad_dtype); };
  result.dq.assign(bytes(extents.dq), 0xff);
  result.dk.assign(bytes(extents.dk), 0xff);
  result.dv.assign(bytes(extents.dv), 0xff);
  result.dsink.assign(static_cast<size_t>(p.heads_q), std::numeric_limits<float>::quiet_NaN());
  args.dq = result.dq.data();
  args.dk = result.dk.data();
  args.dv = result.dv.data();
  if (p.has_sink) args.dsink = result.dsink.data();
  const size_t size = cpu_backward_workspace(p, result.spec).bytes();
  const std::unique_ptr<void, FreeDeleter> workspace(std::aligned_alloc(256, size + 256));
  std::memset(workspace.get(), 0xff, size + 256);
  args.workspace = workspace.get();
  args.workspace_bytes = size;
  check_host_args(p, args);
  ThreadPool pool(threads);
  cpu_backward(p, result.spec, args, pool);
  const auto* end = static_cast<const unsigned char*>(workspace.get()) + size;
  for (int i = 0; i < 256; ++i) EXPECT_EQ(end[i], 0xff) << "behind the workspace";
  return result;
}

inline void expect_accurate(const BackwardCase& c, CpuGradients& result) {
  BackwardArgs args = c.args();
  args.dq = result.dq.data();
  args.dk = result.dk.data();
  args.dv = result.dv.data();
  if (c.problem().has_sink) args.dsink = result.dsink.data();
  const BackwardAccuracy accuracy =
      check_backward(c.problem(), args, c.reference, result.spec.tile_m);
  EXPECT_TRUE(accuracy.passed()) << name_of(result.spec.isa) << ": " << accuracy.detail();
}

}  // namespace fa4::internal
