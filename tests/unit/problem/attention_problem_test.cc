#include "problem/attention_problem.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "core/error.h"

namespace fa4::internal {
namespace {

ProblemDesc dense() {
  ProblemDesc desc;
  desc.batch = 2;
  desc.seqlen_q = 5;
  desc.seqlen_k = 7;
  desc.heads_q = 4;
  desc.heads_kv = 2;
  desc.head_dim = 64;
  return desc;
}

ProblemDesc paged() {
  ProblemDesc desc = dense();
  desc.layout_kv = Layout::kPaged;
  desc.page_size = 4;
  desc.num_pages = 9;
  desc.pages_per_seq = 2;
  return desc;
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "accepted";
}

std::string error_of(const ProblemDesc& desc) {
  return error_of([&] { AttentionProblem::make(desc); });
}

std::string error_after(const std::function<void(ProblemDesc&)>& change) {
  ProblemDesc desc = dense();
  change(desc);
  return error_of(desc);
}

TEST(AttentionProblem, FillsInDefaults) {
  const AttentionProblem p = AttentionProblem::make(dense());
  EXPECT_EQ(p.head_dim_v, 64);
  EXPECT_FLOAT_EQ(p.scale, 0.125f);
  EXPECT_TRUE(p.mask.is_full());
  EXPECT_EQ(p.q, (Strides{5 * 4 * 64, 4 * 64, 64}));
  EXPECT_EQ(p.v, (Strides{7 * 2 * 64, 2 * 64, 64}));
  EXPECT_EQ(p.group(), 2);
  EXPECT_EQ(p.out_elements(), 2 * 5 * 4 * 64);
  EXPECT_EQ(p.lse_elements(), 2 * 5 * 4);
}

TEST(AttentionProblem, PackedAndPagedTensorsHaveTheirOwnStrides) {
  ProblemDesc desc = dense();
  desc.layout_q = desc.layout_kv = Layout::kPacked;
  desc.total_q = 9;
  desc.total_k = 12;
  const AttentionProblem packed = AttentionProblem::make(desc);
  EXPECT_EQ(packed.q, (Strides{0, 4 * 64, 64}));
  EXPECT_EQ(packed.k, (Strides{0, 2 * 64, 64}));
  EXPECT_EQ(packed.rows_q(), 9);
  const AttentionProblem p = AttentionProblem::make(paged());
  EXPECT_EQ(p.k, (Strides{4 * 2 * 64, 2 * 64, 64}));
  EXPECT_TRUE(p.has_seqused_k);
}

TEST(AttentionProblem, MasksAreCanonical) {
  const auto mask_of = [](bool causal, MaskSpec window) {
    ProblemDesc desc = dense();
    desc.causal = causal;
    desc.window = window;
    return AttentionProblem::make(desc).mask;
  };
  EXPECT_EQ(mask_of(true, {}), (MaskSpec{-1, 0}));
  EXPECT_EQ(mask_of(true, {3, 2}), (MaskSpec{3, 0}));
  EXPECT_EQ(mask_of(false, {3, 2}), (MaskSpec{3, 2}));
  EXPECT_EQ(mask_of(false, {6, 4}), (MaskSpec{-1, -1}));  // reaches every key of 5 x 7
  EXPECT_EQ(mask_of(false, {5, 3}), (MaskSpec{5, 3}));
  // A bound may be negative; -1 beside no bit is none.
  EXPECT_EQ(mask_of(false, {5, -1, 2}), (MaskSpec{5, -1, 2}));
  EXPECT_EQ(mask_of(false, {-2, 3, 1}), (MaskSpec{-2, 3, 1}));
  EXPECT_EQ(mask_of(true, {5, -3, 2}), (MaskSpec{5, -3, 2}));
  EXPECT_EQ(mask_of(true, {5, -1}), (MaskSpec{5, 0}));
  EXPECT_EQ(mask_of(false, {5, 3, 3}), (MaskSpec{5, 3}));
}

TEST(AttentionProblem, AMaskThatHidesAllIsOneMask) {
  const int64_t far = std::numeric_limits<int64_t>::max();
  for (const MaskSpec window : {MaskSpec{-5, -1, 1},
                                {-1, -7, 2},
                                {2, -3, 2},
                                {-1, -1, 3},
                                {-far, far, 1},
                                {-1, -far - 1, 2}}) {
    ProblemDesc desc = dense();  // 5 x 7
    desc.window = window;
    EXPECT_EQ(AttentionProblem::make(desc).mask, (MaskSpec{-1, -7, 2})) << window.window_left;
  }
}

// Whether or not a side is folded away, the same keys are seen, for all lengths up to the maxima.
TEST(AttentionProblem, CanonicalMasksSeeTheSameKeys) {
  for (int64_t left = -9; left <= 8; ++left) {
    for (int64_t right = -9; right <= 8; ++right) {
      ProblemDesc desc = dense();
      desc.window = {left, right, (left < -1) | (right < -1) << 1};
      const MaskSpec mask = AttentionProblem::make(desc).mask;
      for (int64_t seqlen_q = 0; seqlen_q <= desc.seqlen_q; ++seqlen_q) {
        for (int64_t seqlen_k = 0; seqlen_k <= desc.seqlen_k; ++seqlen_k) {
          ASSERT_EQ(visible_pairs(seqlen_q, seqlen_k, mask),
                    visible_pairs(seqlen_q, seqlen_k, desc.window))
              << seqlen_q << " x " << seqlen_k << " window " << left << ", " << right;
        }
      }
    }
  }
}

TEST(AttentionProblem, EmptyProblemsAreValid) {
  EXPECT_EQ(error_after([](ProblemDesc& d) { d.batch = 0; }), "accepted");
  EXPECT_EQ(error_after([](ProblemDesc& d) { d.seqlen_q = 0; }), "accepted");
  EXPECT_EQ(error_after([](ProblemDesc& d) { d.seqlen_k = 0; }), "accepted");
  EXPECT_EQ(error_after([](ProblemDesc& d) { d.layout_q = d.layout_kv = Layout::kPacked; }),
            "accepted");  // totals of 0
}

TEST(AttentionProblem, RefusesBadSizes) {
  const auto error = error_after;
  EXPECT_EQ(error([](ProblemDesc& d) { d.batch = -1; }), "batch -1; accepted: 0 to 2147483647");
  EXPECT_EQ(error([](ProblemDesc& d) { d.seqlen_q = int64_t{1} << 31; }),
            "seqlen_q 2147483648; accepted: 0 to 2147483647");
  EXPECT_EQ(error([](ProblemDesc& d) { d.heads_kv = 3; }),
            "num_heads 3 of k does not divide num_heads 4 of q; accepted: 1, 2, 4");
  EXPECT_EQ(error([](ProblemDesc& d) { d.heads_q = 0; }), "num_heads 0 of q; accepted: 1 to 65536");
  EXPECT_EQ(error([](ProblemDesc& d) { d.heads_kv = -2; }),
            "num_heads -2 of k; accepted: 1 to 65536");
  const auto head_dim = [&](int64_t value) {
    return error([&](ProblemDesc& d) { d.head_dim = value; });
  };
  for (int64_t value : {-8, 0, 4, 12, 257, 264}) {
    EXPECT_EQ(head_dim(value),
              "head_dim " + std::to_string(value) + "; accepted: multiples of 8 from 8 to 256");
  }
  EXPECT_EQ(head_dim(8), "accepted");
  EXPECT_EQ(head_dim(256), "accepted");
  EXPECT_EQ(error([](ProblemDesc& d) { d.head_dim_v = 20; }),
            "head_dim_v 20; accepted: multiples of 8 from 8 to 256");
  EXPECT_EQ(error([](ProblemDesc& d) {
              d.layout_q = Layout::kPacked;
              d.total_q = -1;
            }),
            "total_q -1; accepted: 0 to 2147483647");
  // 2^31 * 2^31 * 4 * 64 elements.
  EXPECT_EQ(error([](ProblemDesc& d) { d.batch = d.seqlen_q = 2147483647; }),
            "q of 2147483647 x 2147483647 x 4 x 64 elements is too large; accepted: at most 2^62 "
            "bytes");
}

// A key of all sequences and positions, expanded: gradients of it would be too large.
TEST(AttentionProblem, LeavesGradientsThatAreTooLargeToABackward) {
  ProblemDesc desc = dense();
  desc.batch = 1 << 20;
  desc.seqlen_k = 2147483647;
  desc.heads_q = desc.heads_kv = 65536;
  desc.k = desc.v = {0, 0, 64};
  const AttentionProblem p = AttentionProblem::make(desc);
  EXPECT_EQ(error_of([&] { check_gradients(p); }),
            "dk of 1048576 x 2147483647 x 65536 x 64 elements is too large; accepted: at most 2^62 "
            "bytes");
  desc.dk = {1, 1, 1};
  EXPECT_EQ(error_of(desc),
            "strides (1, 1, 1) of dk overlap; accepted: each at least what the smaller ones span");
  check_gradients(AttentionProblem::make(dense()));
}

TEST(AttentionProblem, RefusesBadPages) {
  const auto error = [](const std::function<void(ProblemDesc&)>& change) {
    ProblemDesc desc = paged();
    change(desc);
    return error_of(desc);
  };
  EXPECT_EQ(error([](ProblemDesc&) {}), "accepted");
  EXPECT_EQ(error([](ProblemDesc& d) { d.page_size = 0; }),
            "page_size 0; accepted: 1 to 2147483647");
  EXPECT_EQ(error([](ProblemDesc& d) { d.num_pages = -1; }),
            "num_pages -1; accepted: 0 to 2147483647");
  EXPECT_EQ(error([](ProblemDesc& d) { d.seqlen_k = 9; }),
            "seqlen_k 9; accepted: 0 to pages_per_seq 2 x page_size 4 = 8");
}

TEST(AttentionProblem, RefusesBadDescales) {
  const auto error = [](const std::function<void(ProblemDesc&)>& change) {
    ProblemDesc desc = paged();
    desc.kv_dtype = DType::kE4M3;
    desc.has_descales = true;
    change(desc);
    return error_of(desc);
  };
  EXPECT_EQ(error([](ProblemDesc&) {}), "accepted");
  EXPECT_EQ(error([](ProblemDesc& d) { d.kv_dtype = DType::kF16; }),
            "kv_dtype 2; accepted: 0 (dtype, bf16), 4 (e4m3)");
  EXPECT_EQ(error([](ProblemDesc& d) { d.kv_dtype = {}; }),
            "has_descales 1; accepted: 0, as kv_dtype is bf16");
  EXPECT_EQ(error([](ProblemDesc& d) { d.descale_block = 4; }), "accepted");
  EXPECT_EQ(error([](ProblemDesc& d) { d.descale_block = 128; }), "accepted");
  EXPECT_EQ(
      error([](ProblemDesc& d) { d.descale_block = 64; }),
      "descale_block 64; accepted: 0 (one a sequence and head), 128 (keys), 4 (page_size: one "
      "a page)");
  EXPECT_EQ(error([](ProblemDesc& d) {
              d.layout_kv = Layout::kDense;
              d.descale_block = 4;
            }),
            "descale_block 4; accepted: 0 (one a sequence and head), 128 (keys)");
  EXPECT_EQ(error([](ProblemDesc& d) {
              d.has_descales = false;
              d.descale_block = 128;
            }),
            "descale_block 128; accepted: 0, as has_descales is 0");
  EXPECT_EQ(error([](ProblemDesc& d) {
              d.has_descales = false;
              d.kv_dtype = {};
              d.descale_block = -1;
            }),
            "descale_block -1; accepted: 0, as has_descales is 0");
  EXPECT_EQ(error([](ProblemDesc& d) { d.dtype = DType::kE4M3; }),
            "dtype 4; accepted: 1 (f32), 2 (f16), 3 (bf16)");
}

TEST(AttentionProblem, WithoutDescalesTheirStridesDoNotMatter) {
  ProblemDesc desc = paged();
  desc.kv_dtype = DType::kE4M3;
  desc.k_descale = {1, 2, 3};
  const AttentionProblem p = AttentionProblem::make(desc);
  EXPECT_EQ(p.k_descale, Strides{});
}

TEST(AttentionProblem, RefusesBadNumbersAndEnums) {
  const auto error = error_after;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(
      error([](ProblemDesc& d) { d.window.window_left = -2; }),
      "window_left -2; accepted: -1 (unbounded), 0 or more, any number where window_bounds has "
      "bit 0");
  EXPECT_EQ(error([](ProblemDesc& d) { d.window.window_right = -3; }),
            "window_right -3; accepted: -1 (unbounded), 0 or more, any number where window_bounds "
            "has bit 1");
  EXPECT_EQ(error([](ProblemDesc& d) { d.window.window_bounds = 4; }),
            "window_bounds 4; accepted: 0, 1 (left), 2 (right), 3 (both)");
  EXPECT_EQ(error([](ProblemDesc& d) { d.sink_dtype = static_cast<DType>(4); }),
            "sink_dtype 4; accepted: 0 or 1 (f32), 2 (f16), 3 (bf16)");
  EXPECT_EQ(error([&](ProblemDesc& d) { d.softmax_scale = nan; }),
            "softmax_scale nan; accepted: a finite number");
  EXPECT_EQ(error([](ProblemDesc& d) { d.softcap = -1; }),
            "softcap -1; accepted: 0 (off) or a positive finite number");
  EXPECT_EQ(error([&](ProblemDesc& d) { d.softcap = nan; }),
            "softcap nan; accepted: 0 (off) or a positive finite number");
  EXPECT_EQ(error([](ProblemDesc& d) { d.dtype = static_cast<DType>(7); }),
            "dtype 7; accepted: 1 (f32), 2 (f16), 3 (bf16)");
  EXPECT_EQ(error([](ProblemDesc& d) { d.layout_q = Layout::kPaged; }),
            "layout_q 2; accepted: 0 (dense), 1 (packed)");
  EXPECT_EQ(error([](ProblemDesc& d) { d.layout_kv = static_cast<Layout>(-1); }),
            "layout_kv -1; accepted: 0 (dense), 1 (packed), 2 (paged)");
}

TEST(AttentionProblem, InputsHaveAnyStridesOutputsDoNotOverlap) {
  const auto error = error_after;
  EXPECT_EQ(error([](ProblemDesc& d) { d.k = {0, -128, 64}; }), "accepted");
  EXPECT_EQ(error([](ProblemDesc& d) {
              d.out = {0, 256, 64};
            }),
            "strides (0, 256, 64) of out overlap; accepted: each at least what the smaller ones "
            "span");
  EXPECT_EQ(error([](ProblemDesc& d) { d.out = {-2048, 64, 512}; }), "accepted");
  EXPECT_EQ(error([](ProblemDesc& d) {
              d.v = {std::numeric_limits<int64_t>::max(), 64, 64};
            }),
            "strides (9223372036854775807, 64, 64) of v reach too far; accepted: a span of at most "
            "2^62 bytes");
  EXPECT_EQ(error([](ProblemDesc& d) {
              d.v = {std::numeric_limits<int64_t>::min(), 64, 64};
            }),
            "strides (-9223372036854775808, 64, 64) of v reach too far; accepted: a span of at "
            "most 2^62 bytes");
}

}  // namespace
}  // namespace fa4::internal
