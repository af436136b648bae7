#include "attention/forward_params.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "attention/params_layout.h"
#include "kernels/append/params.h"
#include "kernels/backward/params.h"
#include "small_problem.h"

namespace fa4::internal {
namespace {

FwdParams params_of(const ProblemDesc& desc, const ForwardArgs& args = {}) {
  const AttentionProblem problem = AttentionProblem::make(desc);
  const ForwardPlan plan = plan_forward(problem, h200_spec());
  return forward_params(problem, *gpu_tiling(plan), args);
}

ProblemDesc desc_of(bool causal) { return small_problem(DType::kBF16, causal, 256); }

TEST(ForwardParams, TotalsAreThoseOfPackedSides) {
  ProblemDesc desc = desc_of(false);
  desc.layout_kv = Layout::kPacked;
  desc.total_k = 512;
  ForwardArgs args;
  args.total_q = 512;
  args.total_k = 300;
  EXPECT_EQ(params_of(desc, args).sequences.total_q, 0);
  EXPECT_EQ(params_of(desc, args).sequences.total_k, 300);
  EXPECT_EQ(params_of(desc).sequences.total_k, 512);
}

TEST(ForwardParams, ASideWithoutBoundReachesEveryKey) {
  const FwdParams causal = params_of(desc_of(true));
  EXPECT_EQ(causal.mask.window_right, 0);
  EXPECT_EQ(causal.mask.window_left, (1 << 30) - 1);
  const FwdParams full = params_of(desc_of(false));
  EXPECT_EQ(full.mask.window_right, (1 << 30) - 1);
}

// No plan asks for it; the kernel would write past the ranks that it keeps.
TEST(ForwardParams, MoreSequencesThanHaveRanksAreNotRanked) {
  const AttentionProblem problem = AttentionProblem::make(desc_of(false));
  GpuTiling tiling = *gpu_tiling(plan_forward(problem, h200_spec()));
  tiling.schedule.source = TileSource::kByLength;
  tiling.shape.most_ranked = static_cast<int>(problem.batch);
  EXPECT_NO_THROW(forward_params(problem, tiling, {}));
  tiling.shape.most_ranked -= 1;
  EXPECT_THROW(forward_params(problem, tiling, {}), Error);
}

TEST(ForwardParams, ANegativeBoundIsOne) {
  ProblemDesc desc = desc_of(false);
  desc.window = {-1, -1, 2};
  const FwdParams before = params_of(desc);
  EXPECT_EQ(before.mask.window_left, (1 << 30) - 1);
  EXPECT_EQ(before.mask.window_right, -1);
  desc.window = {-3, 40, 1};
  EXPECT_EQ(params_of(desc).mask.window_left, -3);
  EXPECT_EQ(params_of(desc).mask.window_right, 40);
}

TEST(ForwardParams, BytesAndTheirDescalesAreDescribed) {
  ProblemDesc desc = desc_of(false);
  desc.kv_dtype = DType::kE4M3;
  desc.has_descales = true;
  desc.k_descale = {14, 7, 3};
  desc.seqlen_k = 512;
  desc.k = desc.v = desc.dk = desc.dv = {};
  const std::vector<float> numbers(1000);
  ForwardArgs args;
  args.k_descale = numbers.data();
  EXPECT_EQ(params_of(desc, args).descales.shift, 31);  // every key's is block 0's
  desc.descale_block = 128;
  const FwdParams dense = params_of(desc, args);
  EXPECT_EQ(dense.descales.shift, 7);
  EXPECT_EQ(dense.descales.of_pages, 0);
  EXPECT_EQ(dense.descales.k.data, numbers.data());
  EXPECT_EQ(dense.descales.k.stride_batch, 14);
  EXPECT_EQ(dense.descales.k.stride_block, 7);
  EXPECT_EQ(dense.descales.k.stride_head, 3);
  EXPECT_EQ(dense.descales.v.data, nullptr);

  desc.layout_kv = Layout::kPaged;
  desc.page_size = desc.descale_block = 24;
  desc.pages_per_seq = 22;
  desc.num_pages = 50;
  desc.has_seqused_k = true;
  desc.k = desc.v = {};
  const FwdParams paged = params_of(desc, args);
  EXPECT_EQ(paged.descales.of_pages, 1);
  EXPECT_EQ(paged.descales.k.stride_batch, 0);
  const int64_t row = desc.heads_kv * desc.head_dim;
  EXPECT_EQ(paged.pages.k.columns, desc.head_dim / 2);  // pairs of bytes
  EXPECT_EQ(paged.pages.k.stride_row, row / 2);
  EXPECT_EQ(paged.pages.k.stride_page, 24 * row / 2);
  EXPECT_EQ(paged.pages.k.groups_of_page, 24 / 8);
}

// Rows of simple pages are found by a shift and one product, those of others by the whole way.
TEST(ForwardParams, PagesAreSimpleWhereRowsAreEvenlyApart) {
  const auto simple_log2 = [](int64_t page_size, auto change) {
    ProblemDesc desc = desc_of(false);
    desc.layout_kv = Layout::kPaged;
    desc.seqlen_k = 512;
    desc.page_size = page_size;
    desc.pages_per_seq = 512;
    desc.num_pages = 1000;
    desc.has_seqused_k = true;
    desc.k = desc.v = {};
    change(desc);
    return params_of(desc, {}).pages.simple_log2;
  };
  const auto as_it_is = [](ProblemDesc&) {};
  EXPECT_EQ(simple_log2(1, as_it_is), 0);
  EXPECT_EQ(simple_log2(4, as_it_is), 2);
  EXPECT_EQ(simple_log2(3, as_it_is), -1);
  const int64_t row = desc_of(false).heads_kv * desc_of(false).head_dim;
  const int64_t dim = desc_of(false).head_dim;
  // K and V in one tensor of (pages, 2, rows, heads, columns): a page of one row has no other row.
  for (const int64_t size : {1, 2}) {
    EXPECT_EQ(simple_log2(size,
                          [&](ProblemDesc& d) {
                            d.k = d.v = {2 * size * row, row, dim};
                          }),
              size == 1 ? 0 : -1);
  }
  EXPECT_EQ(simple_log2(1, [&](ProblemDesc& d) { d.v = {2 * row, row, dim}; }), -1) << "not alike";
  EXPECT_EQ(simple_log2(1,
                        [&](ProblemDesc& d) {
                          d.k = d.v = {int64_t{1} << 31, row, dim};
                        }),
            -1)
      << "4 GiB apart";
  EXPECT_EQ(simple_log2(1, [](ProblemDesc& d) { d.prefix_len = 8; }), -1);
  EXPECT_EQ(simple_log2(1, [](ProblemDesc& d) { d.page_table.seqlen = 2; }), -1);
}

TEST(ForwardParams, KernelsAreToldTheTypeOfSinks) {
  ProblemDesc desc = desc_of(false);
  desc.has_sink = true;
  EXPECT_EQ(params_of(desc).scores.sink_type, FloatType::kF32);
  desc.sink_dtype = DType::kBF16;
  EXPECT_EQ(params_of(desc).scores.sink_type, FloatType::kBF16);
  desc.sink_dtype = DType::kF16;
  EXPECT_EQ(params_of(desc).scores.sink_type, FloatType::kF16);
}

TEST(ForwardParams, FactorsOfScoresAreFiniteAndNotZero) {
  ProblemDesc desc = desc_of(false);
  for (const float scale : {0.0f, 1e-38f, 3e38f}) {
    for (const float softcap : {0.0f, 1e-38f, 30.0f, 3e38f}) {
      desc.softmax_scale = scale;
      desc.softcap = softcap;
      const FwdParams params = params_of(desc);
      EXPECT_GT(params.scores.scale_log2, 0) << scale << ", " << softcap;
      EXPECT_TRUE(std::isfinite(params.scores.scale_log2)) << scale << ", " << softcap;
      EXPECT_TRUE(std::isfinite(params.cap.scale_over_softcap)) << scale << ", " << softcap;
    }
  }
}

TEST(ParamsLayout, NamesEveryMemberOnceInsideTheStruct) {
  const struct {
    KernelParams params;
    size_t bytes;
    const char* member;
  } kAll[] = {{KernelParams::kForward, sizeof(FwdParams), "lse"},
              {KernelParams::kBackward, sizeof(BwdParams), "lse"},
              {KernelParams::kAppend, sizeof(AppendParams), "positions"}};
  for (const auto& [params, bytes, member] : kAll) {
    const ParamsLayout layout = params_layout(params);
    std::set<std::string> names;
    std::set<size_t> offsets;
    for (const ParamsField& field : layout.fields) {
      EXPECT_TRUE(names.insert(field.name).second) << field.name;
      EXPECT_TRUE(offsets.insert(field.offset).second) << field.name;
      EXPECT_LT(field.offset, layout.bytes) << field.name;
      EXPECT_EQ(field.name.find_first_of(", "), field.name.npos) << field.name;
    }
    EXPECT_TRUE(names.contains(member));
    EXPECT_EQ(layout.bytes, bytes);
  }
}

}  // namespace
}  // namespace fa4::internal
