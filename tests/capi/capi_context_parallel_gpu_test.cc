// Context parallelism on an emulated Hopper: ranks that are threads of this process, by the
// library's own communicators, and by NCCL's, for which stand_in_nccl.cc stands.
#include <gtest/gtest.h>

#include "gpu_group.h"

namespace {

using namespace gpu_group;

constexpr const char* kDevice = "emulated:h200";

fa4::Problem problem_of(int64_t heads_q, int64_t heads_kv, int64_t window_right = 0) {
  fa4::Problem problem;
  problem.dtype = FA4_BF16;
  problem.batch = 2;
  problem.seqlen_q = problem.seqlen_k = 40;
  problem.heads_q = heads_q;
  problem.heads_kv = heads_kv;
  problem.head_dim = 64;
  problem.window_right = window_right;
  problem.window_bounds = 2;
  problem.deterministic = 1;
  return problem;
}

HostTensors alone(const fa4::Problem& problem, const HostTensors& whole) {
  const fa4::Device device(kDevice);
  const fa4::Plan forward(device, problem);
  const fa4::Plan backward(device, problem, fa4::Direction::kBackward);
  const Attention attention(device, problem, tokens_of(problem), forward, backward, nullptr);
  attention.write(whole);
  attention.forward();
  attention.backward();
  return attention.read();
}

// The same over ranks, of which `communicator_of` makes one.
HostTensors over_ranks(int ranks, const fa4::Problem& problem, const HostTensors& whole,
                       const fa4::ContextParallelOptions& options,
                       const std::function<fa4::Communicator(int)>& communicator_of) {
  HostTensors got = whole;
  const fa4::SequencePartition partition(ranks, tokens_of(problem),
                                         static_cast<fa4::SequenceLayout>(options.layout));
  on_ranks(ranks, [&](int rank) {
    const fa4::Device device(kDevice);
    const fa4::Communicator communicator = communicator_of(rank);
    const fa4::ContextParallelPlan forward(device, communicator, problem, options);
    const fa4::ContextParallelPlan backward(device, communicator, problem, options,
                                            fa4::Direction::kBackward);
    const Attention attention(device, problem, partition.local_seqlen(), forward, backward,
                              nullptr);
    attention.write(shard_of(whole, problem, partition, rank));
    attention.forward();
    attention.backward();
    unshard(attention.read(), problem, partition, rank, got);
  });
  return got;
}

struct Case {
  int64_t heads_q, heads_kv;
  int32_t method, layout;
  bool through_nccl;
  int64_t window_right = 0;              // 0: causal
  std::vector<int32_t> cu_seqlens = {};  // packed, of 80 rows
  int32_t slices = 0;
};

class ContextParallelGpu : public testing::TestWithParam<Case> {};

TEST_P(ContextParallelGpu, IsTheAttentionOfOneDevice) {
  constexpr int kRanks = 2;
  const Case& c = GetParam();
  fa4::Problem problem = problem_of(c.heads_q, c.heads_kv, c.window_right);
  if (!c.cu_seqlens.empty()) {
    problem.layout_q = problem.layout_kv = FA4_PACKED;
    problem.batch = static_cast<int64_t>(c.cu_seqlens.size()) - 1;
    problem.total_q = problem.total_k = 80;
  }
  HostTensors whole = random_tensors(problem);
  whole.cu_seqlens = c.cu_seqlens;
  HostTensors wanted;
  try {
    wanted = alone(problem, whole);
  } catch (const fa4::Error& error) {
    if (error.status() != FA4_COMPILER && error.status() != FA4_DEVICE_UNAVAILABLE) throw;
    GTEST_SKIP() << error.what();
  }
  fa4::ContextParallelOptions options;
  options.method = c.method;
  options.layout = c.layout;
  options.slices = c.slices;
  HostTensors got;
  if (c.through_nccl) {
    const NcclGroup group(kRanks);
    got = over_ranks(kRanks, problem, whole, options,
                     [&](int rank) { return fa4::Communicator::of_nccl(group.comm(rank)); });
  } else {
    std::vector<fa4::Communicator> local = fa4::Communicator::local(kRanks);
    got = over_ranks(kRanks, problem, whole, options,
                     [&](int rank) { return std::move(local[static_cast<size_t>(rank)]); });
  }
  EXPECT_EQ(gpu_group::problem_of(got, wanted), "");
  if (c.method == FA4_ALL_TO_ALL) {
    EXPECT_EQ(got.out, wanted.out);
    EXPECT_EQ(got.dq, wanted.dq);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Emulated, ContextParallelGpu,
    testing::Values(Case{4, 2, FA4_ALL_TO_ALL, FA4_ZIGZAG, false},
                    Case{4, 2, FA4_ALL_TO_ALL, FA4_CONTIGUOUS, true},
                    // dk and dv are added up
                    Case{2, 1, FA4_ALL_TO_ALL, FA4_ZIGZAG, true},
                    Case{3, 1, FA4_ALL_GATHER, FA4_ZIGZAG, true},
                    Case{2, 2, FA4_ALL_GATHER, FA4_CONTIGUOUS, false},
                    Case{4, 2, 0, FA4_ZIGZAG, true, 0, {0, 33, 40, 80}},
                    Case{8, 4, FA4_ALL_TO_ALL, FA4_ZIGZAG, true, 0, {}, 2},
                    Case{8, 8, FA4_ALL_TO_ALL, FA4_ZIGZAG, false, 0, {}, 4},
                    Case{4, 2, FA4_ALL_GATHER, FA4_ZIGZAG, true, 0, {}, 2},
                    Case{3, 3, FA4_ALL_GATHER, FA4_ZIGZAG, false, 0, {}, 3},
                    Case{4, 4, 0, FA4_ZIGZAG, false, 0, {0, 33, 40, 80}, 2},
                    // by all-gather, too, which three heads leave alone
                    Case{3, 3, 0, FA4_ZIGZAG, true, 0, {0, 5, 33, 40, 80}},
                    Case{4, 2, FA4_ALL_GATHER, FA4_CONTIGUOUS, false, -5, {0, 0, 33, 40, 80}, 2},
                    Case{4, 2, FA4_RING, FA4_ZIGZAG, true},
                    Case{3, 1, FA4_RING, FA4_CONTIGUOUS, false},
                    Case{2, 2, FA4_RING, FA4_ZIGZAG, false, -15},
                    // the first chunk sees nothing
                    Case{1, 1, 0, FA4_ZIGZAG, false, -15}));

TEST(ContextParallelNccl, IsRefusedOnTheCpu) {
  const NcclGroup group(1);
  const fa4::Communicator communicator = fa4::Communicator::of_nccl(group.comm(0));
  const fa4::Device device("cpu");
  try {
    const fa4::ContextParallelPlan plan(device, communicator, problem_of(2, 2));
    ADD_FAILURE() << "planned";
  } catch (const fa4::Error& error) {
    EXPECT_EQ(error.status(), FA4_NOT_SUPPORTED);
    EXPECT_NE(std::string(error.what()).find("accepted on cpu: one of fa4_create_local"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
