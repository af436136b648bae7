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

// One rank's shards of a whole of `sequences` that are cut.
struct Shards {
  Shards(const fa4::SequencePartition& cut, int32_t of_rank, const Tensors& whole,
         int64_t sequences = kBatch)
      : partition(cut),
        rank(of_rank),
        batch(sequences),
        mine(batch * cut.local_seqlen(), batch * cut.local_seqlen(), 0) {
    take(whole.q, mine.q, kHeadsQ);
    take(whole.k, mine.k, kHeadsKV);
    take(whole.v, mine.v, kHeadsKV);
  }
  void take(const std::vector<float>& whole, std::vector<float>& shard, int heads) const {
    partition.shard(whole.data(), rank, batch, heads * kHeadDim, shard.data());
  }
  void give(const std::vector<float>& shard, std::vector<float>& whole, int heads) const {
    partition.unshard(shard.data(), rank, batch, heads * kHeadDim, whole.data());
  }

  const fa4::SequencePartition& partition;
  int32_t rank;
  int64_t batch;
  Tensors mine;
};

struct Case {
  int32_t ranks;
  int64_t seqlen;
  fa4::SequenceLayout layout;
  bool causal;
  int32_t method = FA4_ALL_TO_ALL;
  int64_t window_left = -1, window_right = -1;
  int32_t slices = 0;

  bool has_no_window() const { return window_left == -1 && window_right == -1; }
  // Each head is computed by one call, of the whole sequence.
  bool has_bits_of_one_device() const { return method == FA4_ALL_TO_ALL || ranks == 1; }
};

fa4::ContextParallelOptions options_of(const Case& c) {
  fa4::ContextParallelOptions options;
  options.method = c.method;
  options.layout = static_cast<int32_t>(c.layout);
  options.num_threads = 2;
  options.slices = c.slices;
  return options;
}

std::vector<Case> cases() {
  std::vector<Case> made;
  for (const int32_t ranks : {1, 2, 4}) {
    for (const auto layout : {fa4::SequenceLayout::kZigzag, fa4::SequenceLayout::kContiguous}) {
      for (const int32_t method : {FA4_ALL_TO_ALL, FA4_ALL_GATHER, FA4_RING}) {
        for (const bool causal : {false, true}) {
          made.push_back({ranks, 72, layout, causal, method});
          made.push_back({ranks, 72, layout, causal, method, 13, -1});
        }
        made.push_back({ranks, 72, layout, false, method, 5, 20});
        made.push_back({ranks, 72, layout, false, method, 40, -30});  // early rows see nothing
      }
      made.push_back({ranks, 72, layout, true, FA4_ALL_GATHER, 13, -1, 2});
    }
  }
  return made;
}

fa4::Problem problem_of(const Case& c) {
  fa4::Problem problem = small::dense_problem(kBatch, c.seqlen, c.seqlen, c.causal);
  problem.has_window = 1;
  problem.window_left = c.window_left;
  problem.window_right = c.window_right;
  problem.window_bounds = c.window_right < -1 ? 2 : 0;
  return problem;
}

// The whole's results on one device.
void run_alone(const fa4::Device& device, const fa4::Problem& problem, Tensors& whole) {
  fa4::forward(device, problem, whole.args());
}

// 0 where both are the same infinity.
float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  float worst = a.size() == b.size() ? 0 : 1e30f;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (a[i] == b[i]) continue;
    worst = std::max(worst, std::isfinite(a[i]) ? std::abs(a[i] - b[i]) : 1e30f);
  }
  return worst;
}

std::string name_of(const Case& c) {
  return std::to_string(c.ranks) + " ranks, method " + std::to_string(c.method) + ", layout " +
         std::to_string(static_cast<int>(c.layout)) + ", causal " + std::to_string(c.causal) +
         ", window " + std::to_string(c.window_left) + " " + std::to_string(c.window_right) +
         ", slices " + std::to_string(c.slices);
}

template <class Op, class Args>
void execute(const Op& op, const fa4::Plan& plan, Args args) {
  const small::Workspace workspace = small::workspace_of(plan.workspace_bytes());
  args.workspace = workspace.get();
  args.workspace_bytes = plan.workspace_bytes();
  op.execute(args);
}

TEST(ContextParallel, ForwardIsThatOfOneDevice) {
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
                                            problem, options_of(c));
        const fa4::ForwardOp op(plan);
        Shards shards(partition, rank, whole);
        fa4::ForwardArgs args = shards.mine.args();
        if (!wants_lse) args.lse = nullptr;
        execute(op, plan, args);
        shards.give(shards.mine.out, got.out, kHeadsQ);
        partition.unshard(shards.mine.lse.data(), rank, kBatch * kHeadsQ, 1, got.lse.data());
      });
      for (const std::string& error : errors) EXPECT_EQ(error, "");
      const std::string said = name_of(c);
      if (c.has_bits_of_one_device()) {
        EXPECT_EQ(got.out, whole.out) << said;
      }
      if (c.has_bits_of_one_device() && wants_lse) {
        EXPECT_EQ(got.lse, whole.lse) << said;
      }
      EXPECT_LT(largest_difference(got.out, whole.out), 1e-6f) << said;
      if (wants_lse) {
        EXPECT_LT(largest_difference(got.lse, whole.lse), 2e-6f) << said;
      }
      for (int64_t b = 0; b < kBatch && c.has_no_window(); ++b) {
        EXPECT_LT(small::error_of(got, b * c.seqlen, c.seqlen, b * c.seqlen, c.seqlen, c.causal),
                  small::kBound)
            << said;
      }
    }
  }
}

// dq, dk, dv and dsink of the whole, with a gradient of lse and a sink.
struct Backward {
  Backward(Tensors& tensors, int64_t rows)
      : gradients(tensors, rows, rows, 11),
        dlse(small::values(static_cast<size_t>(rows * kHeadsQ), 12)),
        dsink(kHeadsQ, 0.0f) {}
  fa4::BackwardArgs args(const std::vector<float>& sink) {
    fa4::BackwardArgs args = gradients.args();
    args.dlse = dlse.data();
    args.sink = sink.data();
    args.dsink = dsink.data();
    return args;
  }
  small::Gradients gradients;
  std::vector<float> dlse, dsink;
};

TEST(ContextParallel, BackwardIsThatOfOneDevice) {
  const fa4::Device device("cpu");
  const std::vector<float> sink = small::values(kHeadsQ, 5);
  for (const Case& c : cases()) {
    const int64_t rows = kBatch * c.seqlen;
    fa4::Problem problem = problem_of(c);
    problem.has_sink = problem.has_dlse = 1;
    Tensors whole(rows, rows, 3);
    fa4::ForwardArgs forward = whole.args();
    forward.sink = sink.data();
    fa4::forward(device, problem, forward);
    Backward wanted(whole, rows);
    fa4::backward(device, problem, wanted.args(sink));

    Tensors got_tensors(rows, rows, 3);
    Backward got(got_tensors, rows);
    std::vector<std::vector<float>> dsinks(static_cast<size_t>(c.ranks));
    const auto communicators = fa4::Communicator::local(c.ranks);
    const fa4::SequencePartition partition(c.ranks, c.seqlen, c.layout);
    const auto errors = on_ranks(c.ranks, [&](int32_t rank) {
      const fa4::ContextParallelPlan plan(device, communicators[static_cast<size_t>(rank)], problem,
                                          options_of(c), fa4::Direction::kBackward);
      const fa4::BackwardOp op(plan);
      Shards shards(partition, rank, whole);
      shards.take(whole.out, shards.mine.out, kHeadsQ);
      partition.shard(whole.lse.data(), rank, kBatch * kHeadsQ, 1, shards.mine.lse.data());
      Backward mine(shards.mine, kBatch * partition.local_seqlen());
      shards.take(wanted.gradients.dout, mine.gradients.dout, kHeadsQ);
      partition.shard(wanted.dlse.data(), rank, kBatch * kHeadsQ, 1, mine.dlse.data());
      mine.dsink.assign(kHeadsQ, 7.0f);
      execute(op, plan, mine.args(sink));
      shards.give(mine.gradients.dq, got.gradients.dq, kHeadsQ);
      shards.give(mine.gradients.dk, got.gradients.dk, kHeadsKV);
      shards.give(mine.gradients.dv, got.gradients.dv, kHeadsKV);
      dsinks[static_cast<size_t>(rank)] = mine.dsink;
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
    for (const std::vector<float>& part : dsinks) {
      for (size_t h = 0; h < part.size(); ++h) got.dsink[h] += part[h];
    }
    const std::string said = name_of(c);
    EXPECT_LT(largest_difference(got.dsink, wanted.dsink), 1e-5f) << said;
    if (c.has_bits_of_one_device()) {
      EXPECT_EQ(got.gradients.dq, wanted.gradients.dq) << said;
    }
    if (c.has_bits_of_one_device() && kHeadsKV % c.ranks == 0) {  // nothing is added over ranks
      EXPECT_EQ(got.gradients.dk, wanted.gradients.dk) << said;
      EXPECT_EQ(got.gradients.dv, wanted.gradients.dv) << said;
    }
    EXPECT_LT(largest_difference(got.gradients.dq, wanted.gradients.dq), 1e-5f) << said;
    EXPECT_LT(largest_difference(got.gradients.dk, wanted.gradients.dk), 1e-5f) << said;
    EXPECT_LT(largest_difference(got.gradients.dv, wanted.gradients.dv), 1e-5f) << said;
  }
}

void zero_results(Tensors& tensors, small::Gradients& gradients) {
  for (auto* tensor : {&tensors.out, &tensors.lse, &gradients.dq, &gradients.dk, &gradients.dv}) {
    std::fill(tensor->begin(), tensor->end(), 0.0f);
  }
}

struct PackedCase {
  int32_t ranks, method;
  bool causal;
  int64_t window_left = -1;
  fa4::SequenceLayout layout = fa4::SequenceLayout::kZigzag;
  int32_t slices = 0;
  int64_t window_right = 0;  // where there is a window
};

// Sequences of 40 rows, which chunks cut anywhere, and 8 rows behind the last.
void check_packed(const PackedCase& c, const std::vector<int32_t>& cu_seqlens) {
  constexpr int64_t kTotal = 48;
  const fa4::Device device("cpu");
  fa4::Problem problem =
      small::packed_problem(static_cast<int64_t>(cu_seqlens.size()) - 1, 40, kTotal, c.causal);
  if (c.window_left != -1) {
    problem.has_window = 1;
    problem.window_left = c.window_left;
    problem.window_right = c.window_right;
    problem.window_bounds = 3;
  }
  fa4::ContextParallelOptions options;
  options.method = c.method;
  options.layout = static_cast<int32_t>(c.layout);
  options.slices = c.slices;
  const auto partition = fa4::SequencePartition(c.ranks, kTotal, c.layout);
  Tensors whole(kTotal, kTotal, 3);
  small::Gradients wanted(whole, kTotal, kTotal, 11);
  const auto with_sequences = [&](auto args) {
    args.cu_seqlens_q = args.cu_seqlens_k = cu_seqlens.data();
    return args;
  };
  // Over ranks rows behind the last sequence are 0; one device leaves them as they are.
  zero_results(whole, wanted);
  fa4::forward(device, problem, with_sequences(whole.args()));
  fa4::backward(device, problem, with_sequences(wanted.args()));
  Tensors got(kTotal, kTotal, 3);
  small::Gradients gradients(got, kTotal, kTotal, 11);
  const auto communicators = fa4::Communicator::local(c.ranks);
  const auto errors = on_ranks(c.ranks, [&](int32_t rank) {
    const fa4::Communicator& communicator = communicators[static_cast<size_t>(rank)];
    const int64_t local = partition.local_seqlen();
    Shards shards(partition, rank, whole, 1);
    Tensors& mine = shards.mine;
    small::Gradients my_gradients(mine, local, local, 0);
    if (c.ranks == 1) zero_results(mine, my_gradients);  // as one device does
    shards.take(wanted.dout, my_gradients.dout, kHeadsQ);
    const fa4::ContextParallelPlan forward(device, communicator, problem, options);
    execute(fa4::ForwardOp(forward), forward, with_sequences(mine.args()));
    const fa4::ContextParallelPlan backward(device, communicator, problem, options,
                                            fa4::Direction::kBackward);
    execute(fa4::BackwardOp(backward), backward, with_sequences(my_gradients.args()));
    shards.give(mine.out, got.out, kHeadsQ);
    partition.unshard(mine.lse.data(), rank, kHeadsQ, 1, got.lse.data());
    shards.give(my_gradients.dq, gradients.dq, kHeadsQ);
    shards.give(my_gradients.dk, gradients.dk, kHeadsKV);
    shards.give(my_gradients.dv, gradients.dv, kHeadsKV);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  if (c.method != FA4_ALL_GATHER) {
    EXPECT_EQ(got.out, whole.out);
    EXPECT_EQ(got.lse, whole.lse);
    EXPECT_EQ(gradients.dq, wanted.dq);
  }
  EXPECT_LT(largest_difference(got.out, whole.out), 1e-6f);
  EXPECT_LT(largest_difference(got.lse, whole.lse), 2e-6f);
  EXPECT_LT(largest_difference(gradients.dq, wanted.dq), 1e-5f);
  EXPECT_LT(largest_difference(gradients.dk, wanted.dk), 1e-5f);
  EXPECT_LT(largest_difference(gradients.dv, wanted.dv), 1e-5f);
}

TEST(ContextParallel, PackedSequencesAreThoseOfOneDevice) {
  const std::vector<std::vector<int32_t>> kSequences = {
      {0, 7, 29, 40}, {0, 40}, {0, 0, 12, 12, 24, 36, 40, 40}, {0, 1, 2, 3, 4, 40}, {0, 0, 0}};
  for (const std::vector<int32_t>& cu_seqlens : kSequences) {
    for (const int32_t ranks : {1, 2, 4}) {
      for (const bool causal : {false, true}) {
        for (const auto layout : {fa4::SequenceLayout::kZigzag, fa4::SequenceLayout::kContiguous}) {
          SCOPED_TRACE(testing::Message()
                       << cu_seqlens.size() - 1 << " sequences, " << ranks << " ranks, causal "
                       << causal << ", layout " << static_cast<int>(layout));
          check_packed({ranks, FA4_ALL_TO_ALL, causal, -1, layout}, cu_seqlens);
          check_packed({ranks, FA4_ALL_GATHER, causal, -1, layout}, cu_seqlens);
          check_packed({ranks, FA4_ALL_GATHER, causal, 9, layout}, cu_seqlens);
          check_packed({ranks, FA4_ALL_GATHER, causal, 9, layout, 0, -3}, cu_seqlens);
          check_packed({ranks, FA4_ALL_GATHER, causal, -1, layout, 2}, cu_seqlens);
        }
      }
    }
  }
}

// A rank's forward of `problem`, with `args` as `change` leaves them.
void forward_of(const fa4::Device& device, const fa4::Communicator& communicator,
                const fa4::Problem& problem,
                const std::function<void(fa4::ForwardArgs&)>& change = {}, int32_t method = 0) {
  fa4::ContextParallelOptions options;
  options.method = method;
  const fa4::ContextParallelPlan plan(device, communicator, problem, options);
  const fa4::ForwardOp op(plan);
  const int64_t rows = problem.batch * problem.seqlen_q / communicator.size();
  Tensors mine(rows, rows, 1);
  fa4::ForwardArgs args = mine.args();
  if (change) change(args);
  execute(op, plan, args);
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(ContextParallel, ATotalIsTheSameOnEveryRank) {
  const int32_t cu_seqlens[] = {0, 8};
  const fa4::Device device("cpu");
  const auto communicators = fa4::Communicator::local(2);
  const auto errors = on_ranks(2, [&](int32_t rank) {
    forward_of(device, communicators[static_cast<size_t>(rank)],
               small::packed_problem(1, 8, 8, true), [&](fa4::ForwardArgs& args) {
                 args.cu_seqlens_q = args.cu_seqlens_k = cu_seqlens;
                 args.has_totals = 1;
                 args.total_q = args.total_k = 3;
               });
  });
  for (const std::string& error : errors) {
    EXPECT_TRUE(contains(error, "total_q 3; accepted over several ranks: 4")) << error;
  }
}

// A rank's part of the sequences may be right where the whole's are not.
TEST(ContextParallel, WrongSequencesAreAnErrorOnAllRanks) {
  const std::vector<std::pair<std::vector<int32_t>, std::string>> kWrong = {
      {{0, 8, 7}, "cu_seqlens_q[2] 7"}, {{0, 4, 9}, "cu_seqlens_q[2] 9"}, {{1, 4, 8}, "[0] 1"}};
  const fa4::Device device("cpu");
  const auto communicators = fa4::Communicator::local(2);
  for (const auto& [cu_seqlens, wanted] : kWrong) {
    for (const int32_t method : {FA4_ALL_TO_ALL, FA4_ALL_GATHER}) {
      const auto errors = on_ranks(2, [&](int32_t rank) {
        const auto change = [&](fa4::ForwardArgs& args) {
          args.cu_seqlens_q = args.cu_seqlens_k = cu_seqlens.data();
        };
        forward_of(device, communicators[static_cast<size_t>(rank)],
                   small::packed_problem(2, 8, 8, true), change, method);
      });
      for (const std::string& error : errors) EXPECT_TRUE(contains(error, wanted)) << error;
    }
  }
}

TEST(ContextParallel, ARankThatFailsFailsAllOnce) {
  const fa4::Device device("cpu");
  const fa4::Problem problem = small::dense_problem(kBatch, 8, 8, true);
  const auto communicators = fa4::Communicator::local(4);
  for (int round = 0; round < 3; ++round) {
    const auto errors = on_ranks(4, [&](int32_t rank) {
      forward_of(device, communicators[static_cast<size_t>(rank)], problem,
                 [&](fa4::ForwardArgs& args) {
                   if (rank == 2 && round != 1) args.q = nullptr;
                 });
    });
    for (int32_t rank = 0; rank < 4; ++rank) {
      const std::string& error = errors[static_cast<size_t>(rank)];
      if (round == 1) {
        EXPECT_EQ(error, "");
      } else if (rank == 2) {
        EXPECT_TRUE(contains(error, "q is NULL")) << error;
      } else {
        EXPECT_EQ(error.find("rank 2 failed: q is NULL"), 0u) << error;
      }
    }
  }
}

TEST(ContextParallel, OtherProblemsAreAnErrorOnAllRanks) {
  const fa4::Device device("cpu");
  const auto communicators = fa4::Communicator::local(2);
  for (const bool same_shapes : {true, false}) {
    const auto errors = on_ranks(2, [&](int32_t rank) {
      const int64_t seqlen = rank == 1 && !same_shapes ? 16 : 8;
      const bool causal = rank == 1 && same_shapes;
      forward_of(device, communicators[static_cast<size_t>(rank)],
                 small::dense_problem(kBatch, seqlen, seqlen, causal));
    });
    for (const std::string& error : errors) {
      EXPECT_TRUE(contains(error, "rank 1 executes [") && contains(error, "accepted: the same"))
          << error;
    }
  }
  const auto errors = on_ranks(2, [&](int32_t rank) {  // and the outputs are part of it
    forward_of(device, communicators[static_cast<size_t>(rank)],
               small::dense_problem(kBatch, 8, 8, true), [&](fa4::ForwardArgs& args) {
                 if (rank == 1) args.lse = nullptr;
               });
  });
  for (const std::string& error : errors) {
    EXPECT_TRUE(contains(error, "out of the forward")) << error;
  }
}

TEST(ContextParallel, ADestroyedCommunicatorWakesThoseThatWait) {
  const fa4::Device device("cpu");
  const fa4::Problem problem = small::dense_problem(kBatch, 8, 8, true);
  std::vector<fa4::Communicator> communicators = fa4::Communicator::local(2);
  const auto errors = on_ranks(2, [&](int32_t rank) {
    if (rank == 0) return forward_of(device, communicators[0], problem);
    communicators.pop_back();
  });
  EXPECT_TRUE(contains(errors[0], "rank 1 has destroyed its communicator")) << errors[0];
}

TEST(ContextParallel, AnOperationWithoutItsCommunicatorSaysSo) {
  const fa4::Device device("cpu");
  const fa4::Problem problem = small::dense_problem(1, 8, 8, true);
  std::vector<fa4::Communicator> communicators = fa4::Communicator::local(2);
  const fa4::ContextParallelPlan plan(device, communicators[0], problem);
  const fa4::ForwardOp op(plan);
  communicators.clear();
  Tensors mine(4, 4, 1);
  try {
    execute(op, plan, mine.args());
    ADD_FAILURE() << "executed";
  } catch (const fa4::Error& error) {
    EXPECT_TRUE(contains(error.what(), "has been destroyed")) << error.what();
  }
}

// What a plan of two ranks says against `problem`.
std::string refusal(const fa4::Problem& problem, int32_t method = 0, int32_t layout = 0,
                    int32_t ranks = 2, fa4_status wanted = FA4_NOT_SUPPORTED, int32_t slices = 0) {
  const fa4::Device device("cpu");
  const auto communicators = fa4::Communicator::local(ranks);
  fa4::ContextParallelOptions options;
  options.method = method;
  options.layout = layout;
  options.slices = slices;
  try {
    const fa4::ContextParallelPlan plan(device, communicators[0], problem, options);
  } catch (const fa4::Error& error) {
    EXPECT_EQ(error.status(), wanted) << error.what();
    return error.what();
  }
  return "";
}

TEST(ContextParallel, RefusesInWords) {
  const fa4::Problem good = small::dense_problem(1, 8, 8, true);
  EXPECT_EQ(refusal(good), "");
  fa4::Problem other = good;
  other.seqlen_k = 12;
  EXPECT_TRUE(contains(refusal(other), "seqlen_q 8 and seqlen_k 12; accepted"));
  other = small::packed_problem(1, 8, 8, true);
  EXPECT_EQ(refusal(other), "");
  EXPECT_EQ(refusal(other, FA4_ALL_GATHER), "");
  EXPECT_TRUE(contains(refusal(other, FA4_RING), "method ring of packed sequences; accepted"));
  other.causal = 0;
  other.has_window = 1;
  other.window_left = 3;
  other.window_right = -1;
  EXPECT_TRUE(contains(refusal(other, FA4_ALL_GATHER),
                       "all_gather of packed sequences in a window of 3 keys to the left and any "
                       "number of to the right; accepted: causal masks"));
  other.window_right = 2;
  EXPECT_TRUE(contains(refusal(other, FA4_ALL_GATHER), "and 2 to the right; accepted"));
  EXPECT_EQ(refusal(other), "");  // all_to_all
  other = small::packed_problem(1, 8, 8, true);
  other.total_k = 12;
  EXPECT_TRUE(contains(refusal(other), "total_q 8 and total_k 12; accepted"));
  other.total_q = other.total_k = 6;
  EXPECT_TRUE(contains(refusal(other, 0, 0, 2, FA4_INVALID_ARGUMENT),
                       "total_q 6 of the whole; accepted: multiples of 4"));
  other = small::packed_problem(1, 8, 8, true);
  other.layout_kv = FA4_DENSE;
  EXPECT_TRUE(contains(refusal(other), "layout_q 1 and layout_kv 0; accepted"));
  other = good;
  other.has_seqused_k = 1;
  EXPECT_TRUE(contains(refusal(other), "has_seqused_k 1; accepted"));
  other = good;
  other.batch = 32769;
  EXPECT_TRUE(contains(refusal(other), "batch 32769; accepted in context parallelism: 0 to 32768"));
  EXPECT_EQ(refusal(other, 0, 0, 1), "");
  other.batch = 1024;
  EXPECT_EQ(refusal(other), "");
  other = good;
  other.q_strides[0] = 8 * kHeadsQ * kHeadDim, other.q_strides[1] = kHeadsQ * kHeadDim;
  other.q_strides[2] = kHeadDim;
  EXPECT_EQ(refusal(other), "");  // contiguous, in so many words
  other.q_strides[1] *= 2, other.q_strides[0] *= 2;
  EXPECT_TRUE(contains(refusal(other), "q_strides 1024 128 16; accepted")) << refusal(other);
  EXPECT_TRUE(contains(refusal(good, FA4_ALL_TO_ALL, 0, 3, FA4_INVALID_ARGUMENT),
                       "multiples of 6 from 6 on"));
  other = small::dense_problem(1, 24, 24, true);
  EXPECT_TRUE(contains(refusal(other, FA4_ALL_TO_ALL, 0, 3),
                       "4 heads of q and 2 of k over 3 ranks; accepted"));
  EXPECT_TRUE(contains(refusal(good, 7, 0, 2, FA4_INVALID_ARGUMENT), "method 7; accepted"));
  EXPECT_TRUE(contains(refusal(good, 0, 2, 2, FA4_INVALID_ARGUMENT), "layout 2; accepted"));
  EXPECT_EQ(refusal(good, FA4_ALL_GATHER, 0, 2, FA4_OK, 2), "");
  EXPECT_TRUE(contains(refusal(good, FA4_ALL_GATHER, 0, 2, FA4_INVALID_ARGUMENT, 4),
                       "slices 4; accepted: 0 (the plan decides), or a divisor of 2,"));
  EXPECT_TRUE(contains(refusal(good, FA4_ALL_TO_ALL, 0, 2, FA4_INVALID_ARGUMENT, 2),
                       "slices 2; accepted: 0 (the plan decides), or a divisor of 1,"));
  EXPECT_TRUE(contains(refusal(good, 0, 0, 2, FA4_INVALID_ARGUMENT, -1), "slices -1; accepted"));
}

TEST(ContextParallel, TheBackwardWantsAllGradients) {
  const fa4::Device device("cpu");
  const fa4::Problem problem = small::dense_problem(1, 8, 8, true);
  const auto communicators = fa4::Communicator::local(2);
  const auto errors = on_ranks(2, [&](int32_t rank) {
    const fa4::ContextParallelPlan plan(device, communicators[static_cast<size_t>(rank)], problem,
                                        fa4::Direction::kBackward);
    const fa4::BackwardOp op(plan);
    Tensors mine(4, 4, 1);
    small::Gradients gradients(mine, 4, 4, 1);
    fa4::BackwardArgs args = gradients.args();
    args.dq = nullptr;
    const small::Workspace workspace = small::workspace_of(plan.workspace_bytes());
    args.workspace = workspace.get();
    args.workspace_bytes = plan.workspace_bytes();
    op.execute(args);
  });
  for (const std::string& error : errors) {
    EXPECT_TRUE(contains(error, "dq is NULL; accepted over several ranks")) << error;
  }
}

TEST(ContextParallel, PlansDescribeThemselves) {
  const fa4::Device device("cpu");
  const auto communicators = fa4::Communicator::local(2);
  EXPECT_EQ(communicators[1].rank(), 1);
  EXPECT_EQ(communicators[1].size(), 2);
  EXPECT_EQ(fa4_communicator_rank(nullptr), -1);
  const fa4::ContextParallelPlan plan(device, communicators[1],
                                      small::dense_problem(1, 8, 8, true));
  EXPECT_TRUE(contains(plan.describe(), "rank: 1 of 2")) << plan.describe();
  EXPECT_TRUE(contains(plan.describe(), "method: all_to_all")) << plan.describe();
  EXPECT_TRUE(contains(plan.describe(), "slices: 1 (2 heads of q and 1 of k at a time)"));
  EXPECT_TRUE(contains(plan.kernel_name(), "cpu_")) << plan.kernel_name();
  fa4_communicator* handle = nullptr;
  EXPECT_EQ(fa4_create_local_communicators(0, &handle), FA4_INVALID_ARGUMENT);
  EXPECT_TRUE(contains(fa4_last_error(), "ranks 0; accepted: 1 to 1024"));
  for (const int32_t ranks : {-1, 1025, 0x7fffffff}) {
    try {
      fa4::Communicator::local(ranks);
      ADD_FAILURE() << ranks;
    } catch (const fa4::Error& error) {
      EXPECT_TRUE(contains(error.what(), std::to_string(ranks) + "; accepted: 1 to 1024"));
    }
  }
}

TEST(SequencePartition, EveryTokenHasOneRank) {
  for (const int32_t ranks : {1, 2, 3, 4}) {
    for (const auto layout : {fa4::SequenceLayout::kZigzag, fa4::SequenceLayout::kContiguous}) {
      const fa4::SequencePartition partition(ranks, 24, layout);
      std::vector<int> seen(24, 0);
      for (int32_t rank = 0; rank < ranks; ++rank) {
        const std::vector<int64_t> positions = partition.positions(rank);
        int64_t slot = 0;
        for (const int64_t position : positions) {
          ++seen[static_cast<size_t>(position)];
          const auto found = partition.rank_and_slot(position);
          EXPECT_EQ(found.rank, rank);
          EXPECT_EQ(found.slot, slot++);
        }
        std::vector<int64_t> of_chunks;
        for (const auto& c : partition.chunks(rank)) {
          for (int64_t i = 0; i < c.length; ++i) of_chunks.push_back(c.start + i);
        }
        EXPECT_EQ(of_chunks, positions);
      }
      EXPECT_EQ(seen, std::vector<int>(24, 1));
    }
  }
  const fa4::SequencePartition zigzag(2, 8);
  EXPECT_EQ(zigzag.positions(0), (std::vector<int64_t>{0, 1, 6, 7}));
  EXPECT_EQ(fa4_sequence_positions(2, 6, FA4_ZIGZAG, 0, nullptr), FA4_INVALID_ARGUMENT);
  EXPECT_EQ(fa4_sequence_positions(2, 8, FA4_ZIGZAG, 2, nullptr), FA4_INVALID_ARGUMENT);
  EXPECT_TRUE(contains(fa4_last_error(), "rank 2; accepted: 0 to 1")) << fa4_last_error();
}

}  // namespace
