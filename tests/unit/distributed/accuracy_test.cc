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
  explicit Aligned(size_t size)
      : bytes(size), data(std::aligned_alloc(256, std::max<size_t>(size, 256))) {
    std::memset(data, 0xff, std::max<size_t>(size, 256));  // NaN
  }
  ~Aligned() { std::free(data); }
  Aligned(const Aligned&) = delete;
  size_t bytes;
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

// Bytes of a token in tensors of all heads, and rows of lse.
struct Rows {
  explicit Rows(const AttentionProblem& p)
      : q(p.heads_q * p.head_dim * size_of(p.dtype)),
        k(p.heads_kv * p.head_dim * size_of(p.dtype)),
        v(p.heads_kv * p.head_dim_v * size_of(p.dtype)),
        out(p.heads_q * p.head_dim_v * size_of(p.dtype)),
        lses(p.batch * p.heads_q) {}
  int64_t q, k, v, out, lses;
};

// One rank's shards of a case, and what it makes of them.
class Shards {
 public:
  Shards(const BackwardCase& c, const SequencePartition& partition, int rank)
      : p_(c.problem()),
        given_(c.args()),
        cut_(partition, rank),
        row_(p_),
        q_(cut_.shard(given_.q, p_.batch, row_.q)),
        k_(cut_.shard(given_.k, p_.batch, row_.k)),
        v_(cut_.shard(given_.v, p_.batch, row_.v)),
        dout_(cut_.shard(given_.dout, p_.batch, row_.out)),
        given_out_(cut_.shard(given_.out, p_.batch, row_.out)),
        given_lse_(cut_.shard(given_.lse, row_.lses, 4)),
        dlse_(p_.has_dlse ? cut_.shard(given_.dlse, row_.lses, 4) : Bytes()),
        out_(dout_.size()),
        lse_(given_lse_.size()),
        dq_(q_.size()),
        dk_(k_.size()),
        dv_(v_.size()),
        dsink_(static_cast<size_t>(p_.heads_q)) {}

  ForwardArgs forward_args(const Aligned& workspace) {
    ForwardArgs f;
    f.q = q_.data(), f.k = k_.data(), f.v = v_.data(), f.out = out_.data();
    f.lse = reinterpret_cast<float*>(lse_.data()), f.sink = given_.sink;
    f.workspace = workspace.data, f.workspace_bytes = workspace.bytes;
    return f;
  }
  // Of the case's own out and lse, not of those that the forward makes.
  BackwardArgs backward_args(const Aligned& workspace) {
    BackwardArgs b;
    b.q = q_.data(), b.k = k_.data(), b.v = v_.data(), b.out = given_out_.data();
    b.lse = reinterpret_cast<const float*>(given_lse_.data()), b.sink = given_.sink;
    b.dout = dout_.data();
    b.dlse = p_.has_dlse ? reinterpret_cast<const float*>(dlse_.data()) : nullptr;
    b.dq = dq_.data(), b.dk = dk_.data(), b.dv = dv_.data();
    b.dsink = p_.has_sink ? dsink_.data() : nullptr;
    b.workspace = workspace.data, b.workspace_bytes = workspace.bytes;
    return b;
  }
  void give(Whole& whole) const {
    cut_.unshard(out_, p_.batch, row_.out, whole.out.data());
    cut_.unshard(lse_, row_.lses, 4, whole.lse.data());
    cut_.unshard(dq_, p_.batch, row_.q, whole.dq.data());
    cut_.unshard(dk_, p_.batch, row_.k, whole.dk.data());
    cut_.unshard(dv_, p_.batch, row_.v, whole.dv.data());
    for (size_t h = 0; h < dsink_.size(); ++h) whole.dsink[h] += dsink_[h];
  }

 private:
  const AttentionProblem& p_;
  BackwardArgs given_;
  Cut cut_;
  Rows row_;
  Bytes q_, k_, v_, dout_, given_out_, given_lse_, dlse_;
  Bytes out_, lse_, dq_, dk_, dv_;
  std::vector<float> dsink_;
};

// Forward and backward of the case over ranks; `mallocs` of all ranks' executions.
Whole run_ranks(const BackwardCase& c, int ranks, const ContextOptions& options, int64_t* mallocs) {
  const AttentionProblem& p = c.problem();
  const Rows row(p);
  const auto tokens = static_cast<size_t>(p.batch * p.seqlen_q);
  Whole whole{Bytes(tokens * row.out),
              Bytes(tokens * row.q),
              Bytes(tokens * row.k),
              Bytes(tokens * row.v),
              std::vector<float>(tokens * p.heads_q),
              std::vector<float>(p.heads_q)};
  const auto communicators = local_communicators(ranks);
  const SequencePartition partition(ranks, p.seqlen_q, options.layout);
  std::barrier all(ranks);
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const DeviceSpec cpu = host_cpu_spec();
      const auto& communicator = communicators[static_cast<size_t>(rank)];
      const auto forward_plan = plan_context_forward(p, cpu, communicator, options);
      const auto backward_plan = plan_context_backward(p, cpu, communicator, options);
      const ContextForwardOp forward(forward_plan, nullptr);
      const ContextBackwardOp backward(backward_plan, nullptr);
      const Aligned forward_workspace(forward_plan.workspace.bytes());
      const Aligned backward_workspace(backward_plan.workspace.bytes());
      Shards shards(c, partition, rank);
      const ForwardArgs f = shards.forward_args(forward_workspace);
      const BackwardArgs b = shards.backward_args(backward_workspace);
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
      shards.give(whole);
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
  if (method == ContextMethod::kRing) return {1};
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
        for (const ContextMethod method :
             {ContextMethod::kAllToAll, ContextMethod::kAllGather, ContextMethod::kRing}) {
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
