// What every backward promises beside accuracy: parts add up to the whole, bits do not depend on
// what else is in the batch, nothing hidden leaks, what is not wanted is not written.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "backward_run.h"
#include "core/thread_pool.h"
#include "cpu/backward.h"
#include "table.h"

namespace fa4::internal {
namespace {

class BackwardGuarantees : public BackendTest {};

constexpr DType kTypes[] = {DType::kBF16, DType::kF16, DType::kF32};

Case make(DType dtype, int64_t seqlen_q, int64_t seqlen_k) {
  Case c;
  c.desc.dtype = dtype;
  c.desc.batch = 1;
  c.desc.heads_q = 4;
  c.desc.heads_kv = 2;
  c.desc.seqlen_q = seqlen_q;
  c.desc.seqlen_k = seqlen_k;
  c.desc.head_dim = 64;
  c.seed = 29;
  return c;
}

TEST_F(BackwardGuarantees, TheTableOfProblems) {
  for (const Row& row : conformance_rows()) {
    for (const DType dtype : kTypes) {
      Case c = make_row(row, dtype);
      if (c.desc.layout_kv == Layout::kPaged) continue;
      SCOPED_TRACE(row.name);
      expect_gradients(c);
    }
  }
}

// Ring attention: the keys in three parts, each with the whole's out and lse, gradients in f32
// added up.
TEST_F(BackwardGuarantees, PartsOfTheKeysAddUpToTheWhole) {
  for (const DType dtype : kTypes) {
    Case c = make(dtype, 100, 210);
    c.desc.grad_dtype = DType::kF32;
    const BackwardCase whole(c);
    const int64_t key_row = c.desc.heads_kv * 64;
    for_each_backward(whole.problem(), [&](const Backend& backend) {
      GradientResult sum = run_backward_on(backend, whole.problem(), whole.args());
      const size_t q_bytes = static_cast<size_t>(extents_of(whole.problem()).dq) * 4;
      std::memset(sum.dq.data(), 0, q_bytes);
      int64_t first = 0;
      for (const int64_t keys : {70, 13, 127}) {
        ProblemDesc desc = c.desc;
        desc.seqlen_k = keys;
        const AttentionProblem part = AttentionProblem::make(desc);
        BackwardArgs args = whole.args();
        const int64_t skipped = first * key_row * size_of(dtype);
        args.k = static_cast<const char*>(args.k) + skipped;
        args.v = static_cast<const char*>(args.v) + skipped;
        const GradientResult result = run_backward_on(backend, part, args);
        for (size_t i = 0; i < q_bytes / 4; ++i) {
          float* to = reinterpret_cast<float*>(sum.dq.data()) + i;
          *to += reinterpret_cast<const float*>(result.dq.data())[i];
        }
        const size_t bytes = static_cast<size_t>(keys * key_row) * 4;
        std::memcpy(sum.dk.data() + first * key_row * 4, result.dk.data(), bytes);
        std::memcpy(sum.dv.data() + first * key_row * 4, result.dv.data(), bytes);
        first += keys;
      }
      expect_gradients(whole, sum);
    });
  }
}

// One sequence's rows of a result.
struct SequenceBits {
  std::vector<unsigned char> dq, dk, dv;
  bool operator==(const SequenceBits&) const = default;
};
SequenceBits bits_of(const GradientResult& result, const AttentionProblem& p,
                     const BackwardArgs& args, int64_t b) {
  const SequenceView view = sequence_view(p, args, b);
  const auto cut = [&](const std::vector<unsigned char>& data, int64_t first, int64_t rows,
                       const Strides& s) {
    const auto* begin = data.data() + first * s.seqlen * size_of(p.grad_dtype);
    return std::vector<unsigned char>(begin, begin + rows * s.seqlen * size_of(p.grad_dtype));
  };
  return {cut(result.dq, view.first_q, view.seqlen_q, p.dq),
          cut(result.dk, view.first_k, view.seqlen_k, p.dk),
          cut(result.dv, view.first_k, view.seqlen_k, p.dv)};
}

// The tensor with the second and the fourth of its sequences 32 times as large.
std::vector<unsigned char> with_wide_sequences(DType dtype, const void* data, const Strides& s,
                                               const std::vector<int64_t>& rows) {
  int64_t count = 0;
  for (const int64_t n : rows) count += n;
  std::vector<unsigned char> copy(static_cast<size_t>(count * s.seqlen) * size_of(dtype));
  std::memcpy(copy.data(), data, copy.size());
  int64_t first = 0;
  for (size_t b = 0; b < rows.size(); first += rows[b++]) {
    if (b % 2 == 0) continue;
    for (int64_t i = first * s.seqlen; i < (first + rows[b]) * s.seqlen; ++i) {
      store_from_float(dtype, copy.data(), i, 32 * load_as_float(dtype, data, i));
    }
  }
  return copy;
}

// With a softcap scores of the second and of the fourth sequence are far above it, the others' far
// below: how a score is capped goes by how large those beside it are.
TEST_F(BackwardGuarantees, ASequenceHasItsBitsAlonePackedAndPermuted) {
  for (int i = 0; i < 6; ++i) {
    const DType dtype = kTypes[i % 3];
    Case c = make(dtype, 0, 0);
    c.desc.softcap = i < 3 ? 0.0f : 20.0f;
    pack(c, {130, 40, 75, 1}, {90, 150, 75, 300});  // to one query alone causal is no mask
    c.desc.causal = i < 3;
    c.desc.deterministic = true;
    const BackwardCase packed(c);
    const AttentionProblem& p = packed.problem();
    BackwardArgs args = packed.args();
    const auto q = with_wide_sequences(dtype, args.q, p.q, {130, 40, 75, 1});
    const auto k = with_wide_sequences(dtype, args.k, p.k, {90, 150, 75, 300});
    if (p.softcap > 0) args.q = q.data(), args.k = k.data();
    for_each_backward(p, [&](const Backend& backend) {
      const GradientResult all = run_backward_on(backend, p, args);
      for (int64_t b = 0; b < 4; ++b) {
        // The sequence alone, at the end of the same memory: the lengths before it are 0.
        const SequenceView view = sequence_view(p, args, b);
        Case one = c;
        const std::vector<int32_t> cu_q{0, static_cast<int32_t>(view.seqlen_q)};
        const std::vector<int32_t> cu_k{0, static_cast<int32_t>(view.seqlen_k)};
        one.desc.batch = 1;
        one.desc.total_q = one.desc.seqlen_q = view.seqlen_q;
        one.desc.total_k = one.desc.seqlen_k = view.seqlen_k;
        const AttentionProblem alone = AttentionProblem::make(one.desc);
        BackwardArgs part = args;
        const int bytes = size_of(dtype);
        const auto moved = [](const void* data, int64_t offset) {
          return static_cast<const void*>(static_cast<const char*>(data) + offset);
        };
        part.q = moved(args.q, view.offset_q * bytes);
        part.out = moved(args.out, view.offset_out * bytes);
        part.dout = moved(args.dout, view.query_offset(p.dout) * bytes);
        part.k = moved(args.k, view.offset_k * bytes);
        part.v = moved(args.v, view.offset_v * bytes);
        std::vector<float> lse;
        for (int64_t h = 0; h < p.heads_q; ++h) {
          const float* from = args.lse + view.lse_offset + h * view.lse_head_stride;
          lse.insert(lse.end(), from, from + view.seqlen_q);
        }
        part.lse = lse.data();
        part.cu_seqlens_q = cu_q.data();
        part.cu_seqlens_k = cu_k.data();
        part.total_q = part.total_k = -1;
        const GradientResult result = run_backward_on(backend, alone, part);
        EXPECT_TRUE(bits_of(result, alone, part, 0) == bits_of(all, p, args, b)) << b;
      }
    });
  }
}

// A tensor of `rows` rows of `s`, those of [first, end) full of `value`.
std::vector<unsigned char> with_rows_of(float value, DType dtype, const void* data, int64_t rows,
                                        const Strides& s, int64_t first, int64_t end) {
  std::vector<unsigned char> copy(static_cast<size_t>(rows * s.seqlen) * size_of(dtype));
  std::memcpy(copy.data(), data, copy.size());
  for (int64_t i = first * s.seqlen; i < end * s.seqlen; ++i) {
    store_from_float(dtype, copy.data(), i, value);
  }
  return copy;
}

// Whether two gradients have the same bits in the rows of [first, end).
bool are_same_rows(DType dtype, const std::vector<unsigned char>& a,
                   const std::vector<unsigned char>& b, const Strides& s, int64_t first,
                   int64_t end) {
  const size_t row_bytes = static_cast<size_t>(s.seqlen) * size_of(dtype);
  const auto offset = static_cast<size_t>(first) * row_bytes;
  return std::memcmp(a.data() + offset, b.data() + offset,
                     static_cast<size_t>(end - first) * row_bytes) == 0;
}

TEST_F(BackwardGuarantees, HiddenFiniteValuesChangeNoBit) {
  for (const DType dtype : kTypes) {
    Case c = make(dtype, 150, 150);
    c.desc.causal = c.desc.deterministic = true;
    const BackwardCase given(c);
    const AttentionProblem& p = given.problem();
    // The last 30 keys are hidden from the first 120 queries.
    const std::vector<unsigned char> k =
        with_rows_of(3.5f, dtype, given.args().k, 150, p.k, 120, 150);
    for_each_backward(p, [&](const Backend& backend) {
      const GradientResult first = run_backward_on(backend, p, given.args());
      BackwardArgs args = given.args();
      args.k = k.data();
      const GradientResult second = run_backward_on(backend, p, args);
      EXPECT_TRUE(are_same_rows(dtype, first.dq, second.dq, p.dq, 0, 120));
      EXPECT_FALSE(are_same_rows(dtype, first.dq, second.dq, p.dq, 120, 150));
    });
  }
}

// The largest numbers of bf16 and f32: a row's dP is infinite where the mask hides it, and a
// probability of zero does not silence it.
TEST_F(BackwardGuarantees, HiddenValuesWhoseProductsOverflowChangeNoBit) {
  constexpr std::pair<int64_t, float> kKernels[] = {
      {64, 0.0f}, {64, 5.0f}, {128, 0.0f}, {192, 0.0f}};
  for (const DType dtype : kTypes) {
    const float large = dtype == DType::kF16 ? 65504.0f : 3.3e38f;
    for (const auto& [head_dim, softcap] : kKernels) {
      Case c = make(dtype, 150, 150);
      c.desc.head_dim = head_dim;
      c.desc.softcap = softcap;
      c.desc.causal = c.desc.deterministic = true;
      const BackwardCase given(c);
      const AttentionProblem& p = given.problem();
      SCOPED_TRACE(head_dim);
      // The last 30 keys are hidden from the first 120 queries, the first 30 queries from the
      // last 120 keys.
      const std::vector<unsigned char> v =
          with_rows_of(large, dtype, given.args().v, 150, p.v, 120, 150);
      const std::vector<unsigned char> dout =
          with_rows_of(large, dtype, given.args().dout, 150, p.dout, 0, 30);
      for_each_backward(p, [&](const Backend& backend) {
        const GradientResult expected = run_backward_on(backend, p, given.args());
        BackwardArgs args = given.args();
        args.v = v.data();
        const GradientResult of_v = run_backward_on(backend, p, args);
        EXPECT_TRUE(are_same_rows(dtype, expected.dq, of_v.dq, p.dq, 0, 120));
        args = given.args();
        args.dout = dout.data();
        const GradientResult of_dout = run_backward_on(backend, p, args);
        EXPECT_TRUE(are_same_rows(dtype, expected.dk, of_dout.dk, p.dk, 30, 150));
        EXPECT_TRUE(are_same_rows(dtype, expected.dv, of_dout.dv, p.dv, 30, 150));
        EXPECT_TRUE(are_same_rows(dtype, expected.dq, of_dout.dq, p.dq, 30, 150));
      });
    }
  }
}

TEST_F(BackwardGuarantees, NanReachesWhatSeesItAndNothingElse) {
  for (const DType dtype : kTypes) {
    for (const char* tensor : {"q", "k", "v", "dout"}) {
      Case c = make(dtype, 150, 150);
      c.desc.causal = true;
      const BackwardCase given(c, [&](const BackwardArgs& args) {
        const std::string name = tensor;
        const void* data = name == "q"   ? args.q
                           : name == "k" ? args.k
                           : name == "v" ? args.v
                                         : args.dout;
        const int64_t heads = name == "k" || name == "v" ? 2 : 4;
        store_from_float(dtype, const_cast<void*>(data), 100 * heads * 64 + 5,
                         std::numeric_limits<float>::quiet_NaN());
      });
      SCOPED_TRACE(tensor);
      if (dtype == DType::kF32) continue;  // a bound that NaN makes of no use
      for_each_backward(given.problem(), [&](const Backend& backend) {
        if (backend.is_gpu()) return;  // a tile's rows may share it
        GradientResult result = run_backward_on(backend, given.problem(), given.args());
        expect_gradients(given, result);
      });
    }
  }
}

TEST_F(BackwardGuarantees, WhatIsNotWantedIsNotWritten) {
  for (const DType dtype : kTypes) {
    Case c = make(dtype, 90, 120);
    c.desc.causal = c.desc.has_dlse = c.desc.has_sink = true;
    const BackwardCase given(c);
    const AttentionProblem& p = given.problem();
    for_each_backward(p, [&](const Backend& backend) {
      if (!backend.isa) return;
      const CpuBackwardSpec spec = plan_cpu_backward(p, host_cpu_spec(), 2, backend.isa);
      const size_t bytes = cpu_backward_workspace(p, spec).bytes();
      const std::unique_ptr<void, void (*)(void*)> workspace(std::aligned_alloc(256, bytes + 256),
                                                             std::free);
      GradientResult all = run_backward_on(backend, p, given.args());
      for (const bool wants_dq : {false, true}) {
        GradientResult some = run_backward_on(backend, p, given.args());
        std::fill(some.dq.begin(), some.dq.end(), 1);
        std::fill(some.dk.begin(), some.dk.end(), 1);
        std::fill(some.dv.begin(), some.dv.end(), 1);
        const std::vector<unsigned char> untouched_dq = some.dq, untouched_dk = some.dk;
        BackwardArgs args = some.outputs_of(p, given.args());
        args.dsink = nullptr;
        (wants_dq ? args.dk : args.dq) = nullptr;
        if (wants_dq) args.dv = nullptr;
        args.workspace = workspace.get();
        args.workspace_bytes = bytes;
        check_host_args(p, args);
        ThreadPool pool(2);
        cpu_backward(p, spec, args, pool);
        const auto head = [](std::vector<unsigned char> data) {
          data.resize(data.size() - 64);
          return data;
        };
        EXPECT_EQ(head(some.dq), head(wants_dq ? all.dq : untouched_dq));
        EXPECT_EQ(head(some.dk), head(wants_dq ? untouched_dk : all.dk));
      }
    });
  }
}

// With dlse alone: dout of NULL is zeros.
TEST_F(BackwardGuarantees, DlseWithoutDout) {
  for (const DType dtype : kTypes) {
    Case c = make(dtype, 90, 120);
    c.desc.causal = c.desc.has_dlse = c.desc.has_sink = true;
    const BackwardCase zeros(c, [&](const BackwardArgs& args) {
      const AttentionProblem p = AttentionProblem::make(c.desc);
      std::memset(const_cast<void*>(args.dout), 0,
                  static_cast<size_t>(extents_of(p).dout) * size_of(dtype));
    });
    for_each_backward(zeros.problem(), [&](const Backend& backend) {
      BackwardArgs args = zeros.args();
      args.dout = args.out = nullptr;
      GradientResult result = run_backward_on(backend, zeros.problem(), args);
      expect_gradients(zeros, result);
    });
  }
}

}  // namespace
}  // namespace fa4::internal
