// Nineteen cases in which backwards of other libraries were wrong, by what was wrong.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include "backward_run.h"
#include "core/thread_pool.h"
#include "cpu/backward.h"
#include "table.h"

namespace fa4::internal {
namespace {

class BackwardCases : public BackendTest {};

Case make(DType dtype, int64_t seqlen_q, int64_t seqlen_k, int64_t head_dim = 64) {
  Case c;
  c.desc.dtype = dtype;
  c.desc.batch = 2;
  c.desc.heads_q = c.desc.heads_kv = 2;
  c.desc.seqlen_q = seqlen_q;
  c.desc.seqlen_k = seqlen_k;
  c.desc.head_dim = head_dim;
  c.seed = 17;
  return c;
}

constexpr DType kTypes[] = {DType::kBF16, DType::kF16, DType::kF32};

// Runs of the same problem, whose bits must agree.
void expect_same_bits(const Case& c, int runs) {
  const BackwardCase given(c);
  for_each_backward(given.problem(), [&](const Backend& backend) {
    GradientResult first = run_backward_on(backend, given.problem(), given.args());
    expect_gradients(given, first);
    for (int i = 0; i < runs; ++i) {
      EXPECT_TRUE(first == run_backward_on(backend, given.problem(), given.args(), 1 + i % 4));
    }
  });
}

// Every element of q, of one tensor of the case.
template <class Value>
void set_all(const AttentionProblem& p, const void* data, int64_t elements, const Value& value) {
  for (int64_t i = 0; i < elements; ++i) {
    store_from_float(p.dtype, const_cast<void*>(data), i, value(i));
  }
}

TEST_F(BackwardCases, C01OneQueryWithAVeryNegativeLse) {
  for (const DType dtype : kTypes) {
    const Case c = make(dtype, 1, 128);
    const BackwardCase given(c, [&](const BackwardArgs& args) {
      const AttentionProblem p = AttentionProblem::make(c.desc);
      set_all(p, args.q, extents_of(p).q, [](int64_t) { return -25.0f; });
      set_all(p, args.k, extents_of(p).k,
              [](int64_t i) { return 1.0f + static_cast<float>(i * 7919 % 101) / 1009; });
    });
    EXPECT_LT(given.lse[0], -180);
    expect_gradients(given);
  }
}

TEST_F(BackwardCases, C02HalfATileOfRowsUnderAMask) {
  for (const DType dtype : kTypes) {
    for (const int64_t seqlen : {64, 192, 320}) {
      Case c = make(dtype, seqlen, seqlen, 128);
      c.desc.batch = 1;
      c.desc.causal = true;
      expect_gradients(c);
      c.desc.causal = false;
      c.desc.window = {50, 30};
      expect_gradients(c);
    }
  }
}

TEST_F(BackwardCases, C02WindowsWithNegativeBoundsAndSinksOf16Bits) {
  for (const DType dtype : kTypes) {
    for (const MaskSpec window :
         {MaskSpec{70, -20, 2}, {-1, -100, 2}, {-5, 100, 1}, {-130, -1, 1}, {3, -5, 3}}) {
      Case c = make(dtype, 210, 300, 64);
      c.desc.window = window;
      c.desc.has_sink = true;
      c.desc.sink_dtype = window.window_left < 0 ? DType::kBF16 : DType::kF16;
      expect_gradients(c);
    }
  }
}

TEST_F(BackwardCases, C03SequencesOfLengthZero) {
  for (const DType dtype : kTypes) {
    for (const int64_t head_dim : {64, 256}) {
      Case c = make(dtype, 0, 0, head_dim);
      pack(c, {0, 70, 0, 33, 5, 0}, {40, 0, 0, 90, 5, 17});
      expect_gradients(c);
      c.desc.causal = c.desc.has_dlse = true;
      expect_gradients(c);
      pack(c, {0, 0}, {0, 0});
      expect_gradients(c);
      pack(c, {20, 9}, {0, 0});
      expect_gradients(c);
      pack(c, {0, 0}, {20, 9});
      expect_gradients(c);
    }
  }
}

TEST_F(BackwardCases, C04LeftWindowDeterministicManyMoreKeysThanQueries) {
  for (const DType dtype : kTypes) {
    Case c = make(dtype, 100, 1500);
    c.desc.batch = 1;
    c.desc.window = {64, -1};
    c.desc.deterministic = true;
    expect_same_bits(c, 2);
    c.desc.causal = true;
    expect_same_bits(c, 2);
  }
}

TEST_F(BackwardCases, C05OddNumberOfBlocksOfKeysDeterministic) {
  for (const DType dtype : kTypes) {
    for (const int64_t seqlen : {128, 384, 640}) {
      Case c = make(dtype, 200, seqlen, 128);
      c.desc.batch = 1;
      c.desc.deterministic = true;
      expect_same_bits(c, 2);
    }
  }
}

TEST_F(BackwardCases, C06GroupedHeadsDeterministic) {
  for (const DType dtype : kTypes) {
    Case c = make(dtype, 130, 170);
    c.desc.heads_q = 6;
    c.desc.deterministic = true;
    expect_same_bits(c, 4);
    c.desc.causal = true;
    c.desc.heads_q = 8;
    c.desc.heads_kv = 1;
    expect_same_bits(c, 4);
  }
}

// dout is what the operation right before wrote.
TEST_F(BackwardCases, C07DoutOfTheOperationBefore) {
  for (const DType dtype : kTypes) {
    Case c = make(dtype, 150, 150);
    c.desc.causal = true;
    BackwardCase given(c);
    const AttentionProblem& p = given.problem();
    std::vector<unsigned char> dout(given.out);
    for_each_backward(p, [&](const Backend& backend) {
      const Result forward = run_on(backend, p, given.tensors.args());
      BackwardArgs args = given.args();
      args.dout = forward.out.data();
      const GradientResult now = run_backward_on(backend, p, args);
      const std::vector<unsigned char> copy = forward.out;
      args.dout = copy.data();
      EXPECT_TRUE(now == run_backward_on(backend, p, args));
    });
  }
}

TEST_F(BackwardCases, C08WorkspaceAndOutputsHoldAnything) {
  for (const DType dtype : kTypes) {
    Case c = make(dtype, 210, 150);
    c.desc.causal = c.desc.has_sink = true;
    c.desc.heads_q = 4;
    const BackwardCase given(c);
    for_each_backward(given.problem(), [&](const Backend& backend) {
      GradientResult nan = run_backward_on(backend, given.problem(), given.args(), 2, 0xff);
      GradientResult zero = run_backward_on(backend, given.problem(), given.args(), 2, 0);
      expect_gradients(given, nan);
      expect_gradients(given, zero);
      nan.dq.resize(nan.dq.size() - 64);
      zero.dq.resize(zero.dq.size() - 64);
      EXPECT_EQ(nan.dq, zero.dq);
    });
  }
}

TEST_F(BackwardCases, C09LargeLogits) {
  for (const DType dtype : kTypes) {
    for (const float amplitude : {3.0f, 40.0f, 300.0f}) {
      Case c = make(dtype, 120, 150);
      c.amplitude = amplitude;
      SCOPED_TRACE(amplitude);
      expect_gradients(c);
      c.desc.causal = true;
      c.desc.softcap = 30;
      expect_gradients(c);
    }
  }
}

TEST_F(BackwardCases, C10RowsThatSeeNothing) {
  for (const DType dtype : kTypes) {
    for (const bool sink : {false, true}) {
      Case c = make(dtype, 0, 0);
      pack(c, {30, 20, 40}, {50, 0, 25});  // the second sees nothing; nor do some of the third
      c.desc.causal = c.desc.has_dlse = true;
      c.desc.has_sink = sink;
      const BackwardCase given(c);
      EXPECT_EQ(std::isinf(given.lse[35]), !sink);
      expect_gradients(given);
    }
  }
}

// Guard bytes lie behind every gradient.
TEST_F(BackwardCases, C11PackedHeadDimsBetweenTiles) {
  for (const DType dtype : kTypes) {
    for (const int64_t head_dim : {72, 104}) {
      Case c = make(dtype, 0, 0, head_dim);
      pack(c, {77, 130, 3}, {77, 129, 31});
      expect_gradients(c);
    }
  }
}

TEST_F(BackwardCases, C12WideValuesOfGroupedHeads) {
  for (const DType dtype : kTypes) {
    for (const int64_t head_dim_v : {160, 200, 208, 224}) {
      Case c = make(dtype, 70, 90, 128);
      c.desc.head_dim_v = head_dim_v;
      c.desc.heads_q = 4;
      expect_gradients(c);
    }
  }
}

// What lies beyond the rows in use is NaN in q, k, v, out, dout, lse and dlse.
TEST_F(BackwardCases, C13FewerRowsInUseThanThereAre) {
  for (const DType dtype : kTypes) {
    Case c = make(dtype, 140, 160);
    c.desc.has_seqused_q = c.desc.has_seqused_k = c.desc.has_dlse = c.desc.causal = true;
    c.seqused_q = {90, 140};
    c.seqused_k = {131, 64};
    expect_gradients(c);
    pack(c, {140, 100}, {160, 120});
    c.seqused_q = {17, 100};
    c.seqused_k = {160, 0};
    expect_gradients(c);
  }
}

// Memory of which only what is touched exists.
class SparseMemory {
 public:
  explicit SparseMemory(size_t bytes)
      : bytes_(bytes),
        data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~SparseMemory() {
    if (valid()) munmap(data_, bytes_);
  }
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;
  bool valid() const { return data_ != MAP_FAILED; }
  void* data() const { return data_; }

 private:
  size_t bytes_;
  void* data_;
};

TEST_F(BackwardCases, C14OffsetsBeyondTwoToThe31) {
  const BackwardCase dense(make(DType::kBF16, 40, 50));
  const AttentionProblem& p = dense.problem();
  constexpr int64_t kBatchStride = (int64_t{1} << 31) + 4096;
  ProblemDesc desc = make(DType::kBF16, 40, 50).desc;
  for (Strides* s :
       {&desc.q, &desc.k, &desc.v, &desc.out, &desc.dout, &desc.dq, &desc.dk, &desc.dv}) {
    *s = {kBatchStride, 128, 64};
  }
  const AttentionProblem far = AttentionProblem::make(desc);
  std::vector<std::unique_ptr<SparseMemory>> memory;
  const auto spread = [&](const void* data, int64_t rows) -> void* {
    memory.push_back(std::make_unique<SparseMemory>((kBatchStride + rows * 128) * 2));
    auto* to = static_cast<char*>(memory.back()->data());
    if (!memory.back()->valid()) return nullptr;
    for (int64_t b = 0; b < 2 && data != nullptr; ++b) {
      std::memcpy(to + b * kBatchStride * 2, static_cast<const char*>(data) + b * rows * 256,
                  static_cast<size_t>(rows) * 256);
    }
    return to;
  };
  const BackwardArgs near = dense.args();
  for (const Backend& backend : tested_backends()) {
    // GPUs, whose memory is not the host's, have capi_far_memory_test.
    if (!backend.isa || !unsupported_backward(backend, p).empty()) continue;
    SCOPED_TRACE(backend.name);
    memory.clear();
    BackwardArgs args = near;
    args.q = spread(near.q, 40);
    args.k = spread(near.k, 50);
    args.v = spread(near.v, 50);
    args.out = spread(near.out, 40);
    args.dout = spread(near.dout, 40);
    args.dq = spread(nullptr, 40);
    args.dk = spread(nullptr, 50);
    args.dv = spread(nullptr, 50);
    for (const auto& part : memory) {
      if (!part->valid()) GTEST_SKIP() << "the system gives no sparse memory";
    }
    const CpuBackwardSpec spec = plan_cpu_backward(far, host_cpu_spec(), 2, backend.isa);
    const size_t bytes = cpu_backward_workspace(far, spec).bytes();
    const std::unique_ptr<void, void (*)(void*)> workspace(std::aligned_alloc(256, bytes + 256),
                                                           std::free);
    args.workspace = workspace.get();
    args.workspace_bytes = bytes;
    ThreadPool pool(2);
    cpu_backward(far, spec, args, pool);
    GradientResult expected = run_backward_on(backend, p, near);
    const auto same = [&](const char* name, const void* got, const auto& wanted, int64_t rows) {
      for (int64_t b = 0; b < 2; ++b) {
        EXPECT_EQ(std::memcmp(static_cast<const char*>(got) + b * kBatchStride * 2,
                              wanted.data() + b * rows * 256, static_cast<size_t>(rows) * 256),
                  0)
            << name << ", sequence " << b;
      }
    };
    same("dq", args.dq, expected.dq, 40);
    same("dk", args.dk, expected.dk, 50);
    same("dv", args.dv, expected.dv, 50);
  }
}

TEST_F(BackwardCases, C15TwoAtOnce) {
  Case c = make(DType::kBF16, 300, 300);
  c.desc.causal = c.desc.deterministic = true;
  const BackwardCase given(c);
  for_each_backward(given.problem(), [&](const Backend& backend) {
    const GradientResult alone = run_backward_on(backend, given.problem(), given.args());
    std::vector<GradientResult> results(2);
    std::vector<std::thread> callers;
    for (GradientResult& result : results) {
      callers.emplace_back([&] {
        for (int i = 0; i < 3; ++i) {
          result = run_backward_on(backend, given.problem(), given.args(), 5);
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
    for (const GradientResult& result : results) EXPECT_TRUE(alone == result);
  });
}

TEST_F(BackwardCases, C16CausalWithFewerKeysThanQueries) {
  for (const DType dtype : kTypes) {
    for (const int64_t keys : {1, 60, 129}) {
      Case c = make(dtype, 200, keys);
      c.desc.causal = true;
      expect_gradients(c);
      c.desc.heads_q = 4;
      c.desc.window = {20, 5};
      expect_gradients(c);
    }
  }
}

TEST_F(BackwardCases, C17ManyRepeats) {
  Case c = make(DType::kBF16, 48, 48);
  c.desc.batch = 1;
  c.desc.causal = c.desc.deterministic = true;
  expect_same_bits(c, 200);
}

TEST_F(BackwardCases, C18BroadcastKeysAndValues) {
  for (const DType dtype : kTypes) {
    Case c = make(dtype, 60, 80);
    c.desc.heads_q = c.desc.heads_kv = 4;
    c.desc.k = c.desc.v = {80 * 64, 64, 0};  // one head's memory for all
    c.desc.dout = {0, 0, 64};                // an expanded sum's gradient: one row for all
    expect_gradients(c);
  }
}

TEST_F(BackwardCases, C19ScalesOfEverySign) {
  for (const DType dtype : kTypes) {
    for (const float scale : {0.0f, -0.125f, 1.0f}) {
      Case c = make(dtype, 90, 110);
      c.desc.softmax_scale = scale;
      expect_gradients(c);
      c.desc.causal = c.desc.has_sink = true;
      c.desc.softcap = 12;
      expect_gradients(c);
    }
  }
}

}  // namespace
}  // namespace fa4::internal
