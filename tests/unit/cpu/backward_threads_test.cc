// The number of threads changes no bit of a gradient, whatever the pool is.
#include "cpu_backward_run.h"
#include "threaded_case.h"

namespace fa4::internal {
namespace {

class CpuBackwardThreads : public CpuBackwardTest {};
INSTANTIATE_TEST_SUITE_P(Paths, CpuBackwardThreads, testing::ValuesIn(kAllPaths), path_name);

TEST_P(CpuBackwardThreads, BitsAreThoseOfOneThread) {
  for (DType dtype : dtypes()) {
    for (Layout layout : {Layout::kDense, Layout::kPacked}) {
      const BackwardCase given(threaded_case(dtype, layout));
      const CpuGradients one = run_cpu_backward(given.problem(), given.args(), GetParam(), 1);
      for (int threads : {2, 3, 7, 3, 2}) {
        EXPECT_TRUE(one == run_cpu_backward(given.problem(), given.args(), GetParam(), threads))
            << name_of(dtype) << ", " << threads << " threads";
      }
    }
  }
}

// A plan for more threads than the pool has runs all the same, within its workspace; so do waves of
// any number of heads.
TEST_P(CpuBackwardThreads, PoolAndWavesMayBeOfAnySize) {
  for (DType dtype : dtypes()) {
    const BackwardCase given(threaded_case(dtype, Layout::kDense));
    const AttentionProblem& p = given.problem();
    const CpuGradients expected = run_cpu_backward(p, given.args(), GetParam(), 1);
    for (int pool_threads : {1, 5}) {
      for (int heads : {1, 3, 4}) {
        CpuBackwardSpec spec = plan_cpu_backward(p, host_cpu_spec(), 2, GetParam());
        if (spec.heads_per_wave > 0) spec.heads_per_wave = heads;
        CpuGradients result = expected;
        std::fill(result.dq.begin(), result.dq.end(), 0x55);
        const size_t bytes = cpu_backward_workspace(p, spec).bytes();
        const std::unique_ptr<void, FreeDeleter> workspace(std::aligned_alloc(256, bytes));
        BackwardArgs args = given.args();
        args.dq = result.dq.data();
        args.dk = result.dk.data();
        args.dv = result.dv.data();
        args.workspace = workspace.get();
        args.workspace_bytes = bytes;
        ThreadPool pool(pool_threads);
        cpu_backward(p, spec, args, pool);
        EXPECT_TRUE(result == expected) << pool_threads << " threads, waves of " << heads;
      }
    }
  }
}

}  // namespace
}  // namespace fa4::internal
