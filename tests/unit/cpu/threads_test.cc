// The number of threads changes no bit, and neither does the tile that a row falls into.
#include "cpu_run.h"
#include "threaded_case.h"

namespace fa4::internal {
namespace {

class CpuThreads : public CpuPathTest {};
INSTANTIATE_TEST_SUITE_P(Paths, CpuThreads, testing::ValuesIn(kAllPaths), path_name);

TEST_P(CpuThreads, BitsAreThoseOfOneThread) {
  for (DType dtype : dtypes()) {
    for (Layout layout : {Layout::kDense, Layout::kPacked}) {
      const CaseTensors tensors(threaded_case(dtype, layout));
      const CpuResult one = run_cpu(tensors.problem(), tensors.args(), GetParam(), 1);
      for (int threads : {2, 3, 7}) {
        EXPECT_TRUE(one == run_cpu(tensors.problem(), tensors.args(), GetParam(), threads))
            << name_of(dtype) << ", " << threads << " threads";
      }
    }
  }
}

TEST_P(CpuThreads, RepeatsAreIdentical) {
  for (DType dtype : dtypes()) {
    const CaseTensors tensors(threaded_case(dtype, Layout::kDense));
    const CpuResult first = run_cpu(tensors.problem(), tensors.args(), GetParam(), 3);
    for (int i = 0; i < 10; ++i) {
      EXPECT_TRUE(first == run_cpu(tensors.problem(), tensors.args(), GetParam(), 3));
    }
  }
}

// A plan for more threads than the pool has runs all the same, within its workspace.
TEST_P(CpuThreads, PoolMayBeSmallerOrLargerThanThePlan) {
  for (DType dtype : dtypes()) {
    const CaseTensors tensors(threaded_case(dtype, Layout::kDense));
    const AttentionProblem& p = tensors.problem();
    const CpuResult expected = run_cpu(p, tensors.args(), GetParam(), 1);
    const CpuKernelSpec spec = plan_cpu(p, host_cpu_spec(), 2, GetParam());
    const size_t bytes = cpu_workspace_bytes(p, spec);
    for (int pool_threads : {1, 5}) {
      CpuResult result = expected;
      result.out.assign(result.out.size(), 0x55);
      const std::unique_ptr<void, FreeDeleter> workspace(std::aligned_alloc(256, bytes + 256));
      auto* tail = static_cast<unsigned char*>(workspace.get()) + bytes;
      std::memset(tail, 0x5a, 256);
      ForwardArgs args = tensors.args();
      args.out = result.out.data();
      args.lse = result.lse.data();
      args.workspace = workspace.get();
      args.workspace_bytes = bytes;
      ThreadPool pool(pool_threads);
      cpu_forward(p, spec, args, pool);
      EXPECT_TRUE(result == expected) << pool_threads << " threads in the pool";
      for (int i = 0; i < 256; ++i) ASSERT_EQ(tail[i], 0x5a);
    }
  }
}

TEST_P(CpuThreads, TileOfARowChangesNoBit) {
  if (GetParam() == CpuIsa::kScalar) GTEST_SKIP() << "the scalar path has no tiles of rows";
  for (DType dtype : dtypes()) {
    const CaseTensors tensors(threaded_case(dtype, Layout::kDense));
    const AttentionProblem& p = tensors.problem();
    const CpuResult expected = run_cpu(p, tensors.args(), GetParam(), 1);
    for (int tile_m : {32, 96, 192}) {
      for (int heads_per_wave : {1, 2, 4}) {
        CpuKernelSpec spec = expected.spec;
        spec.tile_m = tile_m;
        spec.heads_per_wave = heads_per_wave;
        const size_t bytes = cpu_workspace_bytes(p, spec);
        const std::unique_ptr<void, FreeDeleter> workspace(std::aligned_alloc(256, bytes));
        CpuResult result = expected;
        result.out.assign(result.out.size(), 0x55);
        ForwardArgs args = tensors.args();
        args.out = result.out.data();
        args.lse = result.lse.data();
        args.workspace = workspace.get();
        args.workspace_bytes = bytes;
        ThreadPool pool(1);
        cpu_forward(p, spec, args, pool);
        EXPECT_TRUE(result == expected) << tile_m << " rows, waves of " << heads_per_wave;
      }
    }
  }
}

}  // namespace
}  // namespace fa4::internal
