// Attention of one sequence over several ranks, from C++: here threads on the CPU. On GPUs a rank
// is a process or a thread with its own GPU, its device "cuda:N", and its communicator
// fa4::Communicator::of_nccl(comm); the rest is the same.
#include <fa4/context_parallel.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

namespace {

constexpr int kRanks = 2, kRows = 128, kHeads = 4, kDim = 32, kRowElements = kHeads * kDim;
using Tensor = std::vector<float>;  // (1, seqlen, heads, head_dim)

fa4::Problem whole_problem() {
  fa4::Problem problem;
  problem.dtype = FA4_F32;
  problem.batch = 1;
  problem.seqlen_q = problem.seqlen_k = kRows;
  problem.heads_q = problem.heads_kv = kHeads;
  problem.head_dim = kDim;
  problem.causal = 1;
  return problem;
}

// In a model these rows are computed from their tokens and positions, on the rank that holds them.
Tensor rows_at(const std::vector<int64_t>& positions, float seed) {
  Tensor rows;
  for (const int64_t position : positions) {
    for (int i = 0; i < kRowElements; ++i) {
      rows.push_back(std::sin(seed * static_cast<float>(position * kRowElements + i)));
    }
  }
  return rows;
}

// This rank's rows of attention over the whole sequence.
Tensor run_rank(const fa4::Communicator& ranks) {
  const fa4::SequencePartition partition(ranks.size(), kRows);
  const std::vector<int64_t> positions = partition.positions(ranks.rank());
  const Tensor q = rows_at(positions, 0.7f), k = rows_at(positions, 1.3f);
  const Tensor v = rows_at(positions, 0.9f);
  Tensor out(q.size());

  const fa4::Device device("cpu");
  const fa4::ContextParallelPlan plan(device, ranks, whole_problem());  // the whole sequence's
  const fa4::ForwardOp attention(plan);
  const std::unique_ptr<void, decltype(&std::free)> workspace(
      std::aligned_alloc(256, plan.workspace_bytes()), std::free);
  fa4::ForwardArgs args;
  args.q = q.data(), args.k = k.data(), args.v = v.data(), args.out = out.data();
  args.workspace = workspace.get(), args.workspace_bytes = plan.workspace_bytes();
  attention.execute(args);  // every rank calls
  return out;
}

// The same on one device.
Tensor run_alone() {
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < kRows; ++i) positions.push_back(i);
  const Tensor q = rows_at(positions, 0.7f), k = rows_at(positions, 1.3f);
  const Tensor v = rows_at(positions, 0.9f);
  Tensor out(q.size());
  fa4::ForwardArgs args;
  args.q = q.data(), args.k = k.data(), args.v = v.data(), args.out = out.data();
  fa4::forward(fa4::Device("cpu"), whole_problem(), args);
  return out;
}

}  // namespace

int main() try {
  const std::vector<fa4::Communicator> communicators = fa4::Communicator::local(kRanks);
  const fa4::SequencePartition partition(kRanks, kRows);
  Tensor got(static_cast<size_t>(kRows) * kRowElements);
  std::vector<std::thread> threads;
  for (const fa4::Communicator& ranks : communicators) {
    threads.emplace_back([&] {
      try {
        const Tensor out = run_rank(ranks);
        partition.unshard(out.data(), ranks.rank(), 1, kRowElements, got.data());
      } catch (const fa4::Error& error) {
        std::fprintf(stderr, "rank %d: %s\n", ranks.rank(), error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const bool same = got == run_alone();
  std::printf("%d ranks of %d tokens each: out is %s one device's\n", kRanks, kRows / kRanks,
              same ? "bit for bit" : "not");
  return same ? 0 : 1;
} catch (const fa4::Error& error) {
  std::fprintf(stderr, "%s: %s\n", error.status_name(), error.what());
  return 1;
}
