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

// A case, what it should give, and the out and lse that its backward reads.
struct BackwardCase {
  CaseTensors tensors;
  BackwardReference reference;
  std::vector<unsigned char> out;
  std::vector<float> lse;

  explicit BackwardCase(const Case& c) : BackwardCase(c, [](const BackwardArgs&) {}) {}
  // `change` may write to the inputs before the reference is made.
  template <class Change>
  BackwardCase(const Case& c, const Change& change) : tensors(c) {
    const AttentionProblem& p = tensors.problem();
    change(tensors.backward_args());
    reference = reference_backward(p, tensors.backward_args(), 2);
    out.assign(static_cast<size_t>(extents_of(p).out) * size_of(p.dtype) + 1, 0xff);
    lse.assign(static_cast<size_t>(p.lse_elements()) + 1, std::numeric_limits<float>::quiet_NaN());
    store_forward_results(p, tensors.backward_args(), reference, out.data(), lse.data());
  }
  const AttentionProblem& problem() const { return tensors.problem(); }
  BackwardArgs args() const {
    BackwardArgs args = tensors.backward_args();
    args.out = out.data();
    args.lse = lse.data();
    return args;
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
