// What every backend promises beside accuracy: the same bits, nothing hidden leaks, NaN is not
// lost.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "backends.h"

namespace fa4::internal {
namespace {

constexpr int64_t kSeqlen = 700, kHeads = 2, kDim = 64;

Case causal_case(DType dtype) {
  Case c;
  c.desc.dtype = dtype;
  c.desc.batch = 1;
  c.desc.heads_q = c.desc.heads_kv = kHeads;
  c.desc.seqlen_q = c.desc.seqlen_k = kSeqlen;
  c.desc.head_dim = kDim;
  c.desc.causal = true;
  c.seed = 9;
  return c;
}

// k and v of a case, to change.
struct Changed {
  std::vector<unsigned char> k, v;
  ForwardArgs args;
  explicit Changed(const CaseTensors& tensors) : args(tensors.args()) {
    const TensorExtents extents = extents_of(tensors.problem());
    const size_t element = static_cast<size_t>(size_of(tensors.problem().dtype));
    const auto copy = [&](const void* data, int64_t count) {
      const auto* bytes = static_cast<const unsigned char*>(data);
      return std::vector<unsigned char>(bytes, bytes + static_cast<size_t>(count) * element);
    };
    k = copy(args.k, extents.k);
    v = copy(args.v, extents.v);
    args.k = k.data();
    args.v = v.data();
  }
};

size_t row_bytes(DType dtype) { return static_cast<size_t>(kHeads * kDim * size_of(dtype)); }

class Guarantees : public BackendTest {};

template <class Body>
void for_each_backend(const CaseTensors& tensors, const Body& body) {
  for (const Backend& backend : backends_that_take(tensors.problem())) {
    SCOPED_TRACE(backend.name + ", " + std::string(name_of(tensors.problem().dtype)));
    body(backend, tensors);
  }
}

template <class Body>
void for_each_backend(DType dtype, const Body& body) {
  for_each_backend(CaseTensors(causal_case(dtype)), body);
}

TEST_F(Guarantees, SameInputSameBits) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    for_each_backend(dtype, [](const Backend& backend, const CaseTensors& tensors) {
      const Result first = run_on(backend, tensors.problem(), tensors.args(), 1);
      for (const int threads : {1, 2, 3, 7}) {
        const Result again = run_on(backend, tensors.problem(), tensors.args(), threads);
        EXPECT_EQ(first.out, again.out) << threads;
        EXPECT_EQ(first.lse, again.lse) << threads;
      }
    });
  }
}

TEST_F(Guarantees, HiddenFiniteValuesChangeNoBit) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    for_each_backend(dtype, [&](const Backend& backend, const CaseTensors& tensors) {
      const Result before = run_on(backend, tensors.problem(), tensors.args());
      for (const int64_t first_hidden : {1, 129, 300, 699}) {
        Changed changed(tensors);
        for (int64_t i = first_hidden * kHeads * kDim; i < kSeqlen * kHeads * kDim; ++i) {
          store_from_float(dtype, changed.k.data(), i, i % 2 == 0 ? 300.0f : -300.0f);
          store_from_float(dtype, changed.v.data(), i, 1000.0f);
        }
        const Result after = run_on(backend, tensors.problem(), changed.args);
        EXPECT_EQ(std::memcmp(before.out.data(), after.out.data(),
                              static_cast<size_t>(first_hidden) * row_bytes(dtype)),
                  0)
            << first_hidden;
        for (int64_t h = 0; h < kHeads; ++h) {
          EXPECT_EQ(std::memcmp(before.lse.data() + h * kSeqlen, after.lse.data() + h * kSeqlen,
                                static_cast<size_t>(first_hidden) * sizeof(float)),
                    0)
              << first_hidden;
        }
      }
    });
  }
}

// With a NaN in the first element of a row of k or v, of head 0.
Result run_with_nan(const Backend& backend, const CaseTensors& tensors, bool in_v, int64_t row) {
  Changed changed(tensors);
  std::vector<unsigned char>& data = in_v ? changed.v : changed.k;
  store_from_float(DType::kBF16, data.data(), row * kHeads * kDim, std::nanf(""));
  return run_on(backend, tensors.problem(), changed.args);
}

// On the CPU exactly the rows that see a NaN have it; on a GPU also hidden rows of the same tile
// may.
TEST_F(Guarantees, NanReachesTheRowsThatSeeIt) {
  constexpr int64_t kAt = 333;
  for (const bool in_v : {false, true}) {
    for_each_backend(DType::kBF16, [&](const Backend& backend, const CaseTensors& tensors) {
      const Result result = run_with_nan(backend, tensors, in_v, kAt);
      const int64_t tolerated = backend.is_gpu() ? result.tile_m : 0;
      for (int64_t m = 0; m < kSeqlen; ++m) {
        const float value = load_as_float(DType::kBF16, result.out.data(), m * kHeads * kDim);
        if (m >= kAt) {
          EXPECT_TRUE(std::isnan(value)) << m;
        } else if (m < kAt - tolerated) {
          EXPECT_FALSE(std::isnan(value)) << m;
        }
        const float other_head =
            load_as_float(DType::kBF16, result.out.data(), (m * kHeads + 1) * kDim);
        EXPECT_FALSE(std::isnan(other_head)) << m;
      }
    });
  }
}

TEST_F(Guarantees, InfinityInVReachesTheRowsThatSeeIt) {
  constexpr int64_t kAt = 333;
  for_each_backend(DType::kBF16, [&](const Backend& backend, const CaseTensors& tensors) {
    Changed changed(tensors);
    store_from_float(DType::kBF16, changed.v.data(), kAt * kHeads * kDim,
                     std::numeric_limits<float>::infinity());
    const Result result = run_on(backend, tensors.problem(), changed.args);
    for (int64_t m = kAt; m < kSeqlen; ++m) {
      const float value = load_as_float(DType::kBF16, result.out.data(), m * kHeads * kDim);
      EXPECT_FALSE(std::isfinite(value)) << m;
    }
  });
}

// On the CPU exactly the rows whose window holds the NaN have it.
TEST_F(Guarantees, NanBehindAWindowReachesNoOtherTile) {
  constexpr int64_t kAt = 333, kLeft = 100;
  Case c = causal_case(DType::kBF16);
  c.desc.window.window_left = kLeft;
  for_each_backend(CaseTensors(c), [&](const Backend& backend, const CaseTensors& tensors) {
    for (const bool in_v : {false, true}) {
      const Result result = run_with_nan(backend, tensors, in_v, kAt);
      const int64_t tolerated = backend.is_gpu() ? result.tile_m : 0;
      for (int64_t m = 0; m < kSeqlen; ++m) {
        const bool is_nan =
            std::isnan(load_as_float(DType::kBF16, result.out.data(), m * kHeads * kDim));
        if (m >= kAt && m <= kAt + kLeft) {
          EXPECT_TRUE(is_nan) << m;
        } else if (m < kAt - tolerated || m > kAt + kLeft + tolerated) {
          EXPECT_FALSE(is_nan) << m;
        }
      }
    }
  });
}

// Row i meets one NaN or infinite score, in column first + i: whatever computes the exponential
// there, the row has what the oracle has. Rows behind meet -infinity there, which counts for
// nothing.
TEST_F(Guarantees, NanAndInfinityOfEveryColumnReachTheirRow) {
  constexpr int64_t kKeys = 128;  // of a block; one more follows
  for (const int64_t head_dim : {64, 128}) {
    for (const int64_t first : {int64_t{0}, kKeys - head_dim}) {
      Case c = causal_case(DType::kBF16);
      c.desc.causal = false;
      c.desc.head_dim = head_dim;
      c.desc.heads_q = c.desc.heads_kv = 1;
      c.desc.seqlen_q = head_dim + 10;
      c.desc.seqlen_k = 2 * kKeys;
      for_each_backend(CaseTensors(c), [&](const Backend& backend, const CaseTensors& tensors) {
        const AttentionProblem& p = tensors.problem();
        Changed changed(tensors);
        std::vector<unsigned char> q(static_cast<size_t>(p.seqlen_q * head_dim) * 2);
        changed.args.q = q.data();
        for (int64_t j = 0; j < head_dim * head_dim; ++j) {
          const bool diagonal = j % (head_dim + 1) == 0;
          store_from_float(p.dtype, changed.k.data(), first * head_dim + j,
                           diagonal ? std::numeric_limits<float>::infinity() : 0.0f);
        }
        for (const float factor : {0.0f, 1.0f}) {  // times infinity: NaN, infinity
          for (int64_t j = 0; j < p.seqlen_q * head_dim; ++j) {
            const bool diagonal = j % (head_dim + 1) == 0 && j < head_dim * head_dim;
            store_from_float(p.dtype, q.data(), j, diagonal ? factor : -1.0f);
          }
          const Reference reference = reference_forward(p, changed.args, 2);
          EXPECT_TRUE(std::isnan(reference.out[0]));
          EXPECT_TRUE(std::isfinite(reference.out.back()));
          const Result result = run_on(backend, p, changed.args);
          const Accuracy out = check_out(p, changed.args, reference, result.out.data());
          EXPECT_TRUE(out.passed) << first << ", " << factor << ": " << out.detail;
        }
      });
    }
  }
}

}  // namespace
}  // namespace fa4::internal
