// Empty rows, empty problems, outputs that are not wanted, and what may not be touched.
#include <cmath>

#include "cpu_run.h"

namespace fa4::internal {
namespace {

class CpuEdges : public CpuPathTest {};
INSTANTIATE_TEST_SUITE_P(Paths, CpuEdges, testing::ValuesIn(kAllPaths), path_name);

Case edge_case(DType dtype, int64_t seqlen_q, int64_t seqlen_k) {
  Case c;
  c.desc.dtype = dtype;
  c.desc.batch = 1;
  c.desc.seqlen_q = seqlen_q;
  c.desc.seqlen_k = seqlen_k;
  c.desc.heads_q = c.desc.heads_kv = 2;
  c.desc.head_dim = c.desc.head_dim_v = 16;
  return c;
}

TEST_P(CpuEdges, RowsThatSeeNothingAreZero) {
  for (DType dtype : dtypes()) {
    for (int64_t seqlen_k : {0, 30}) {
      Case c = edge_case(dtype, 100, seqlen_k);
      c.desc.causal = true;
      const CaseTensors tensors(c);
      const CpuResult r = run_cpu(tensors.problem(), tensors.args(), GetParam());
      for (int64_t i = 0; i < 100; ++i) {
        const bool empty = i + seqlen_k - 100 < 0;
        EXPECT_EQ(r.lse[i], empty ? -INFINITY : r.lse[i]);
        EXPECT_EQ(std::isfinite(r.lse[i]), !empty);
        if (empty) {
          EXPECT_EQ(load_as_float(dtype, r.out.data(), i * 32 + 3), 0.0f);
        }
      }
    }
  }
}

TEST_P(CpuEdges, EmptyRowWithASinkHasItsLse) {
  for (DType dtype : dtypes()) {
    Case c = edge_case(dtype, 10, 0);
    c.desc.has_sink = true;
    const CaseTensors tensors(c);
    ForwardArgs args = tensors.args();
    const float sink[2] = {3.5f, -2.0f};
    args.sink = sink;
    const CpuResult r = run_cpu(tensors.problem(), args, GetParam());
    for (int i = 0; i < 10; ++i) {
      EXPECT_EQ(r.lse[i], 3.5f);
      EXPECT_EQ(r.lse[10 + i], -2.0f);
      EXPECT_EQ(load_as_float(dtype, r.out.data(), i * 32), 0.0f);
    }
  }
}

TEST_P(CpuEdges, HugeSinkTakesAllTheWeight) {
  for (DType dtype : dtypes()) {
    Case c = edge_case(dtype, 4, 50);
    c.desc.has_sink = true;
    const CaseTensors tensors(c);
    ForwardArgs args = tensors.args();
    const float sink[2] = {1e4f, -1e4f};
    args.sink = sink;
    const CpuResult r = run_cpu(tensors.problem(), args, GetParam());
    EXPECT_EQ(r.lse[0], 1e4f);
    EXPECT_EQ(load_as_float(dtype, r.out.data(), 0), 0.0f);
    EXPECT_TRUE(std::isfinite(r.lse[4]));
    EXPECT_LT(r.lse[4], 100.0f);
  }
}

TEST_P(CpuEdges, EmptyProblemsWriteNothing) {
  for (DType dtype : dtypes()) {
    for (int64_t batch : {0, 1}) {
      Case c = edge_case(dtype, batch == 0 ? 5 : 0, 5);
      c.desc.batch = batch;
      const CaseTensors tensors(c);
      const CpuResult r = run_cpu(tensors.problem(), tensors.args(), GetParam());
      EXPECT_TRUE(r.out.empty());
      EXPECT_TRUE(r.lse.empty());
    }
  }
}

TEST_P(CpuEdges, LseIsOptional) {
  for (DType dtype : dtypes()) {
    const CaseTensors tensors(edge_case(dtype, 20, 20));
    const AttentionProblem& p = tensors.problem();
    const CpuResult expected = run_cpu(p, tensors.args(), GetParam());
    CpuResult result = expected;
    result.out.assign(result.out.size(), 0);
    const size_t bytes = cpu_workspace_bytes(p, expected.spec);
    const std::unique_ptr<void, FreeDeleter> workspace(std::aligned_alloc(256, bytes + 256));
    ForwardArgs args = tensors.args();
    args.out = result.out.data();
    args.workspace = workspace.get();
    args.workspace_bytes = bytes;
    ThreadPool pool(1);
    cpu_forward(p, expected.spec, args, pool);
    EXPECT_EQ(result.out, expected.out);
  }
}

// A plan for any number of queries: tasks are counted by the sequences that an execution brings.
// Counted by the maxima, they would take hours.
TEST_P(CpuEdges, TasksAreCountedByTheLengthsOfTheExecution) {
  for (DType dtype : dtypes()) {
    Case c = edge_case(dtype, 64, 70);
    c.desc.batch = 1000;
    c.desc.layout_q = Layout::kPacked;
    c.desc.causal = true;
    c.lengths_q = {30, 0, 61};
    c.lengths_q.resize(1000);
    c.desc.total_q = 91;
    const CaseTensors tensors(c);
    const CpuResult expected = run_cpu(tensors.problem(), tensors.args(), GetParam());

    ProblemDesc desc = c.desc;
    desc.seqlen_q = desc.total_q = kMaxSize;
    const AttentionProblem unbounded = AttentionProblem::make(desc);
    CpuResult result = expected;
    result.out.assign(result.out.size(), 0x7f);
    result.lse.assign(result.lse.size(), 777.0f);
    result.spec = plan_cpu(unbounded, host_cpu_spec(), 2, GetParam());
    const size_t bytes = cpu_workspace_bytes(unbounded, result.spec);
    const std::unique_ptr<void, FreeDeleter> workspace(std::aligned_alloc(256, bytes + 256));
    ForwardArgs args = tensors.args();
    args.total_q = 91;
    args.out = result.out.data();
    args.lse = result.lse.data();
    args.workspace = workspace.get();
    args.workspace_bytes = bytes;
    check_host_args(unbounded, args);
    ThreadPool pool(2);
    cpu_forward(unbounded, result.spec, args, pool);
    EXPECT_EQ(result, expected);
  }
}

// Strided outputs: what lies between the rows is not the library's.
TEST_P(CpuEdges, GapsBetweenOutputRowsAreLeftAlone) {
  for (DType dtype : dtypes()) {
    Case c = edge_case(dtype, 21, 40);
    c.desc.out = {21 * 2 * 24, 2 * 24, 24};  // rows of 16 in steps of 24
    const CaseTensors tensors(c);
    const CpuResult r = run_cpu(tensors.problem(), tensors.args(), GetParam());
    const auto bytes = static_cast<size_t>(size_of(dtype));
    for (size_t row = 0; row + 1 < 42; ++row) {
      for (size_t i = 16 * bytes; i < 24 * bytes; ++i) EXPECT_EQ(r.out[row * 24 * bytes + i], 0x7f);
    }
  }
}

}  // namespace
}  // namespace fa4::internal
