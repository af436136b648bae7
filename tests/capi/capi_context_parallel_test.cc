// Context parallelism through the C ABI: ranks that are threads of this process, on the CPU.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>

#include "fa4/context_parallel.h"
#include "small_gradients.h"

namespace {

using small::kHeadDim;
using small::kHeadsKV;
using small::kHeadsQ;
using small::Tensors;

constexpr int64_t kBatch = 2;

// Runs `body(rank)` on a thread for each rank; what it throws, by rank.
std::vector<std::string> on_ranks(int32_t ranks, const std::function<void(int32_t)>& body) {
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const fa4::Error& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

fa4::ContextParallelOptions options_of(fa4::SequenceLayout layout) {
  fa4::ContextParallelOptions options;
  options.layout = static_cast<int32_t>(layout);
  options.num_threads = 2;
  return options;
}

// One rank's shards of a whole.
struct Shards {
  Shards(const fa4::SequencePartition& cut, int32_t of_rank, const Tensors& whole)
      : partition(cut),
        rank(of_rank),
        mine(kBatch * cut.local_seqlen(), kBatch * cut.local_seqlen(), 0) {
    take(whole.q, mine.q, kHeadsQ);
    take(whole.k, mine.k, kHeadsKV);
    take(whole.v, mine.v, kHeadsKV);
  }
  void take(const std::vector<float>& whole, std::vector<float>& shard, int heads) const {
    partition.shard(whole.data(), rank, kBatch, heads * kHeadDim, shard.data());
  }
  void give(const std::vector<float>& shard, std::vector<float>& whole, int heads) const {
    partition.unshard(shard.data(), rank, kBatch, heads * kHeadDim, whole.data());
  }

  const fa4::SequencePartition& partition;
  int32_t rank;
  Tensors mine;
};

struct Case {
  int32_t ranks;
  int64_t seqlen;
  fa4::SequenceLayout layout;
  bool causal;
};

std::vector<Case> cases() {
  std::vector<Case> made;
  for (const int32_t ranks : {1, 2, 4}) {
    for (const auto layout : {fa4::SequenceLayout::kZigzag, fa4::SequenceLayout::kContiguous}) {
      for (const bool causal : {false, true}) made.push_back({ranks, 72, layout, causal});
    }
  }
  return made;
}

fa4::Problem problem_of(const Case& c) {
  return small::dense_problem(kBatch, c.seqlen, c.seqlen, c.causal);
}

// The whole's results on one device.
void run_alone(const fa4::Device& device, const fa4::Problem& problem, Tensors& whole) {
  fa4::forward(device, problem, whole.args());
}

void execute(const fa4::ForwardOp& op, const fa4::Plan& plan, fa4::ForwardArgs args) {
  const small::Workspace workspace = small::workspace_of(plan.workspace_bytes());
  args.workspace = workspace.get();
  args.workspace_bytes = plan.workspace_bytes();
  op.execute(args);
}

TEST(ContextParallel, ForwardHasTheBitsOfOneDevice) {
  const fa4::Device device("cpu");
  for (const Case& c : cases()) {
    const fa4::Problem problem = problem_of(c);
    Tensors whole(kBatch * c.seqlen, kBatch * c.seqlen, 3);
    run_alone(device, problem, whole);
    for (const bool wants_lse : {true, false}) {
      Tensors got(kBatch * c.seqlen, kBatch * c.seqlen, 3);
      const auto communicators = fa4::Communicator::local(c.ranks);
      const fa4::SequencePartition partition(c.ranks, c.seqlen, c.layout);
      const auto errors = on_ranks(c.ranks, [&](int32_t rank) {
        const fa4::ContextParallelPlan plan(device, communicators[static_cast<size_t>(rank)],
                                            problem, options_of(c.layout));
        const fa4::ForwardOp op(plan);
        Shards shards(partition, rank, whole);
        fa4::ForwardArgs args = shards.mine.args();
        if (!wants_lse) args.lse = nullptr;
        execute(op, plan, args);
        shards.give(shards.mine.out, got.out, kHeadsQ);
        partition.unshard(shards.mine.lse.data(), rank, kBatch * kHeadsQ, 1, got.lse.data());
      });
      for (const std::string& error : errors) EXPECT_EQ(error, "");
      EXPECT_EQ(got.out, whole.out) << c.ranks << " ranks, causal " << c.causal;
      if (wants_lse) {
        EXPECT_EQ(got.lse, whole.lse) << c.ranks << " ranks";
      }
      for (int64_t b = 0; b < kBatch; ++b) {
        EXPECT_LT(small::error_of(got, b * c.seqlen, c.seqlen, b * c.seqlen, c.seqlen, c.causal),
                  small::kBound);
      }
    }
  }
}

}  // namespace
