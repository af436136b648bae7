// Ranks that are threads of this process, held to the accuracy of one device against double
// precision (docs/cli.md); and what they allocate.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cstring>
#include <thread>

#include "backward_case.h"
#include "cpu/exponential.h"
#include "distributed/context_op.h"
#include "distributed/local_communicator.h"
#include "malloc_counter.h"

namespace fa4::internal {
namespace {

using Bytes = std::vector<unsigned char>;

struct Aligned {
  explicit Aligned(size_t bytes) : data(std::aligned_alloc(256, std::max<size_t>(bytes, 256))) {}
  ~Aligned() { std::free(data); }
  Aligned(const Aligned&) = delete;
  void* data;
};

// One rank's part of contiguous (outer, seqlen, row bytes), and back.
class Cut {
 public:
  Cut(const SequencePartition& partition, int rank) : partition_(partition), rank_(rank) {}
  Bytes shard(const void* whole, int64_t outer, int64_t row) const {
    Bytes mine(static_cast<size_t>(outer * partition_.local_seqlen() * row));
    move(outer, row, [&](int64_t of_whole, int64_t of_shard, int64_t bytes) {
      std::memcpy(mine.data() + of_shard, static_cast<const char*>(whole) + of_whole,
                  static_cast<size_t>(bytes));
    });
    return mine;
  }
  void unshard(const Bytes& mine, int64_t outer, int64_t row, void* whole) const {
    move(outer, row, [&](int64_t of_whole, int64_t of_shard, int64_t bytes) {
      std::memcpy(static_cast<char*>(whole) + of_whole, mine.data() + of_shard,
                  static_cast<size_t>(bytes));
    });
  }

 private:
  template <class Body>
  void move(int64_t outer, int64_t row, const Body& body) const {
    for (int64_t i = 0; i < outer; ++i) {
      for (const Chunk& c : partition_.chunks(rank_)) {
        body((i * partition_.seqlen() + c.start) * row,
             (i * partition_.local_seqlen() + c.slot) * row, c.length * row);
      }
    }
  }
  const SequencePartition& partition_;
  int rank_;
};

struct Whole {
  Bytes out, dq, dk, dv;
  std::vector<float> lse, dsink;
};

// Forward and backward of the case over ranks; `mallocs` of all ranks' executions.
Whole run_ranks(const BackwardCase& c, int ranks, const ContextOptions& options, int64_t* mallocs) {
  const AttentionProblem& p = c.problem();
  const BackwardArgs given = c.args();
  const int64_t bytes = size_of(p.dtype), lses = p.batch * p.heads_q;
  const int64_t q_row = p.heads_q * p.head_dim * bytes, out_row = p.heads_q * p.head_dim_v * bytes;
  const int64_t k_row = p.heads_kv * p.head_dim * bytes;
  const int64_t v_row = p.heads_kv * p.head_dim_v * bytes;
  const auto rows = static_cast<size_t>(p.batch * p.seqlen_q);
  Whole whole{Bytes(rows * out_row),
              Bytes(rows * q_row),
              Bytes(rows * k_row),
              Bytes(rows * v_row),
              std::vector<float>(rows * p.heads_q),
              std::vector<float>(p.heads_q)};
  const auto communicators = local_communicators(ranks);
  const SequencePartition partition(ranks, p.seqlen_q, options.layout);
  std::barrier all(ranks);
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const Cut cut(partition, rank);
      const DeviceSpec cpu = host_cpu_spec();
      const auto& communicator = communicators[static_cast<size_t>(rank)];
      const ContextForwardPlan forward_plan = plan_context_forward(p, cpu, communicator, options);
      const ContextBackwardPlan backward_plan =
          plan_context_backward(p, cpu, communicator, options);
      const ContextForwardOp forward(forward_plan, nullptr);
      const ContextBackwardOp backward(backward_plan, nullptr);
      const Aligned forward_workspace(forward_plan.workspace.bytes());
      const Aligned backward_workspace(backward_plan.workspace.bytes());
      const Bytes q = cut.shard(given.q, p.batch, q_row), k = cut.shard(given.k, p.batch, k_row);
      const Bytes v = cut.shard(given.v, p.batch, v_row);
      const Bytes dout = cut.shard(given.dout, p.batch, out_row);
      const Bytes given_out = cut.shard(given.out, p.batch, out_row);
      const Bytes given_lse = cut.shard(given.lse, lses, 4);
      const Bytes dlse = p.has_dlse ? cut.shard(given.dlse, lses, 4) : Bytes();
      Bytes out(dout.size()), lse(given_lse.size()), dq(q.size()), dk(k.size()), dv(v.size());
      std::vector<float> dsink(static_cast<size_t>(p.heads_q));

      ForwardArgs f;
      f.q = q.data(), f.k = k.data(), f.v = v.data(), f.out = out.data();
      f.lse = reinterpret_cast<float*>(lse.data()), f.sink = given.sink;
      f.workspace = forward_workspace.data, f.workspace_bytes = forward_plan.workspace.bytes();
      BackwardArgs b;
      b.q = q.data(), b.k = k.data(), b.v = v.data(), b.out = given_out.data();
      b.lse = reinterpret_cast<const float*>(given_lse.data()), b.sink = given.sink;
      b.dout = dout.data();
      b.dlse = p.has_dlse ? reinterpret_cast<const float*>(dlse.data()) : nullptr;
      b.dq = dq.data(), b.dk = dk.data(), b.dv = dv.data();
      b.dsink = p.has_sink ? dsink.data() : nullptr;
      b.workspace = backward_workspace.data, b.workspace_bytes = backward_plan.workspace.bytes();
      all.arrive_and_wait();
      const int64_t before = num_mallocs();
      all.arrive_and_wait();
      forward.execute(f);
      backward.execute(b);
      all.arrive_and_wait();
      const int64_t after = num_mallocs();
      all.arrive_and_wait();
      const std::lock_guard lock(mutex);
      if (rank == 0) *mallocs += after - before;
      cut.unshard(out, p.batch, out_row, whole.out.data());
      cut.unshard(lse, lses, 4, whole.lse.data());
      cut.unshard(dq, p.batch, q_row, whole.dq.data());
      cut.unshard(dk, p.batch, k_row, whole.dk.data());
      cut.unshard(dv, p.batch, v_row, whole.dv.data());
      for (size_t h = 0; h < dsink.size(); ++h) whole.dsink[h] += dsink[h];
    });
  }
  for (std::thread& thread : threads) thread.join();
  return whole;
}

Case case_of(DType dtype, int variant) {
  Case c;
  c.desc.dtype = dtype;
  c.desc.batch = 2;
  c.desc.seqlen_q = c.desc.seqlen_k = 208;
  c.desc.heads_q = 8;
  c.desc.heads_kv = variant % 2 == 0 ? 4 : 2;
  c.desc.head_dim = 48;
  c.desc.head_dim_v = 32;
  c.desc.causal = variant % 3 != 0;
  if (variant == 2) c.desc.window.window_left = 70;
  if (variant == 3) c.desc.softcap = 15;
  c.desc.has_sink = c.desc.has_dlse = variant % 2 == 1;
  c.desc.deterministic = true;
  c.seed = 77 + static_cast<uint64_t>(variant);
  return c;
}

// Of the key heads that a rank computes, in how many slices it may.
std::vector<int> slices_of(const AttentionProblem& p, int ranks, ContextMethod method) {
  const bool gathers = method == ContextMethod::kAllGather;
  const int64_t heads = gathers ? p.heads_kv : std::max<int64_t>(1, p.heads_kv / ranks);
  std::vector<int> slices;
  for (int count = 1; count <= heads; count *= 2) slices.push_back(count);
  return slices;
}

TEST(ContextAccuracy, HasTheBoundsOfOneDevice) {
  int64_t mallocs = 0;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (int variant = 0; variant < 4; ++variant) {
      const BackwardCase c(case_of(dtype, variant));
      const AttentionProblem& p = c.problem();
      const BackwardArgs given = c.args();
      ForwardArgs inputs;
      inputs.q = given.q, inputs.k = given.k, inputs.v = given.v, inputs.sink = given.sink;
      const Reference reference = reference_forward(p, inputs, 2);
      for (const int ranks : {2, 4}) {
        for (const ContextMethod method : {ContextMethod::kAllToAll, ContextMethod::kAllGather}) {
          for (const int slices : slices_of(p, ranks, method)) {
            const ContextOptions options{
                .method = method,
                .layout = variant == 1 ? SequenceLayout::kContiguous : SequenceLayout::kZigzag,
                .num_threads = 2,
                .slices = slices};
            Whole got = run_ranks(c, ranks, options, &mallocs);
            const std::string said =
                fmt::format("{}, variant {}, {} ranks, {}, {} slices", name_of(dtype), variant,
                            ranks, name_of(method), slices);
            const Accuracy out = check_out(p, inputs, reference, got.out.data());
            EXPECT_TRUE(out.passed) << said << ": " << out.detail;
            const Accuracy lse =
                check_lse(p, inputs, reference, got.lse.data(), exp2_max_relative_error(dtype));
            EXPECT_TRUE(lse.passed) << said << ": " << lse.detail;
            BackwardArgs made = given;
            made.dq = got.dq.data(), made.dk = got.dk.data(), made.dv = got.dv.data();
            made.dsink = p.has_sink ? got.dsink.data() : nullptr;
            const BackwardAccuracy gradients = check_backward(p, made, c.reference);
            EXPECT_TRUE(gradients.passed()) << said << ": " << gradients.detail();
          }
        }
      }
    }
  }
  if (kCountsMallocs) {
    EXPECT_EQ(mallocs, 0);
  }
}

// Heads know nothing of one another: in slices they have the bits that they have at once, and those
// of one device where each is computed by one call.
TEST(ContextAccuracy, SlicesChangeNoBit) {
  int64_t mallocs = 0;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Case of = case_of(dtype, 1);
    of.desc.heads_kv = 8;
    const BackwardCase c(of);
    const Whole alone = run_ranks(c, 1, {.num_threads = 2}, &mallocs);
    for (const ContextMethod method : {ContextMethod::kAllToAll, ContextMethod::kAllGather}) {
      Whole wanted = alone;
      for (const int slices : slices_of(c.problem(), 2, method)) {
        const ContextOptions options{.method = method, .num_threads = 2, .slices = slices};
        const Whole got = run_ranks(c, 2, options, &mallocs);
        if (method == ContextMethod::kAllGather && slices == 1) wanted = got;
        SCOPED_TRACE(fmt::format("{}, {}, {} slices", name_of(dtype), name_of(method), slices));
        EXPECT_EQ(got.out, wanted.out);
        EXPECT_EQ(got.lse, wanted.lse);
        EXPECT_EQ(got.dq, wanted.dq);
        EXPECT_EQ(got.dk, wanted.dk);
        EXPECT_EQ(got.dv, wanted.dv);
        EXPECT_EQ(got.dsink, wanted.dsink);
      }
    }
  }
}

}  // namespace
}  // namespace fa4::internal
