#include "plan/e4m3_plan.h"

#include <gtest/gtest.h>

#include <set>

#include "plan/gpu_plan.h"

namespace fa4::internal {
namespace {

ProblemDesc decode(int64_t head_dim, int64_t seqlen_q = 1) {
  ProblemDesc d;
  d.dtype = DType::kBF16;
  d.kv_dtype = DType::kE4M3;
  d.batch = 8;
  d.seqlen_q = seqlen_q;
  d.seqlen_k = 8192;
  d.heads_q = 64;
  d.heads_kv = 8;
  d.head_dim = head_dim;
  return d;
}

E4m3ForwardSpec spec_of(const ProblemDesc& desc, const DeviceSpec& device = h200_spec()) {
  return std::get<E4m3ForwardSpec>(plan_forward(AttentionProblem::make(desc), device).main);
}

TEST(E4m3Plan, EveryRowIsAVariantOfItsOwn) {
  std::set<std::string> names;
  for (const E4m3TuningRow& row : e4m3_tuning_rows()) {
    for (const Pages pages : {Pages::kNone, Pages::kBoxes, Pages::kRows}) {
      for (const bool parts : {false, true}) {
        E4m3ForwardSpec spec{traits_of(row, Element::kBF16, parts), {}, {}};
        spec.traits.pages = pages;
        spec.traits.parts = parts;
        EXPECT_EQ(mma::why_not(spec.traits), nullptr) << mma::why_not(spec.traits);
        EXPECT_TRUE(names.insert(spec.source().display_name).second) << spec.source().display_name;
      }
    }
  }
}

// The kernel would take them for contiguous keys.
TEST(E4m3Plan, PagesThatTheKernelDoesNotLoadAreRefused) {
  for (const E4m3TuningRow& row : e4m3_tuning_rows()) {
    mma::FwdTraits t = traits_of(row, Element::kBF16, false);
    for (const Pages pages : {Pages::kGroups, Pages::kGathers}) {
      t.pages = pages;
      EXPECT_STREQ(mma::why_not(t), "keys are contiguous, or in pages by boxes or by rows");
    }
  }
}

TEST(E4m3Plan, BothGpusTakeEveryHeadDimension) {
  for (const DeviceSpec& device : emulated_specs()) {
    for (int64_t d = 16; d <= 256; d += 16) {
      for (const int64_t seqlen_q : {1, 2, 300}) {
        ProblemDesc desc = decode(d, seqlen_q);
        desc.has_descales = true;
        desc.descale_block = 128;  // Hopper has another kernel for prompts with a head's
        const E4m3ForwardSpec spec = spec_of(desc, device);
        EXPECT_GE(spec.traits.head_dim, d);
        EXPECT_GE(spec.traits.head_dim_v, d);
        EXPECT_EQ(mma::tile_m(spec.traits), seqlen_q <= 2 ? 16 : d > 192 ? 32 : 64);
      }
    }
  }
}

TEST(E4m3Plan, BytesMoveInPairs) {
  const LaunchShape narrow = spec_of(decode(64)).shape(), wide = spec_of(decode(128)).shape();
  EXPECT_EQ(narrow.q_columns, 64);
  EXPECT_EQ(narrow.k_columns, 32);
  EXPECT_EQ(wide.k_columns, 64);
  EXPECT_EQ(wide.v_columns, 64);
  EXPECT_EQ(wide.out_columns, 0);  // threads store it
}

TEST(E4m3Plan, KeysAreCutWhereRowsAreFew) {
  const ForwardPlan plan = plan_forward(AttentionProblem::make(decode(128)), h200_spec());
  EXPECT_TRUE(spec_of(decode(128)).parts.are_cut());
  EXPECT_EQ(plan.steps.size(), 2u);
  ProblemDesc d = decode(128, 300);
  d.has_descales = true;
  d.descale_block = 128;
  EXPECT_FALSE(spec_of(d).parts.are_cut());
  EXPECT_EQ(spec_of(d).schedule.source, TileSource::kStride);
  d = decode(128);
  d.seqlen_k = 1024;
  EXPECT_FALSE(spec_of(d).parts.are_cut()) << "64 CTAs read nearly as fast as all";
}

// Ranking has nothing to save but time, and not where keys are few.
TEST(E4m3Plan, ManySequencesOfManyKeysGoByLength) {
  const auto source_of = [](int64_t head_dim, int64_t batch, int64_t seqlen_k) {
    ProblemDesc d = decode(head_dim);
    d.batch = batch;
    d.seqlen_k = seqlen_k;
    d.has_seqused_k = true;
    return spec_of(d).schedule.source;
  };
  EXPECT_EQ(source_of(128, 128, 8192), TileSource::kByLength);
  EXPECT_EQ(source_of(128, 64, 1024), TileSource::kByLength) << "four rounds";
  EXPECT_EQ(source_of(128, 24, 1024), TileSource::kByLength) << "two rounds";
  EXPECT_EQ(source_of(128, 64, 1023), TileSource::kStride);
  EXPECT_EQ(source_of(128, 129, 8192), TileSource::kStride) << "too many to rank";
  EXPECT_EQ(source_of(64, 128, 8192), TileSource::kByLength);
  EXPECT_EQ(source_of(192, 128, 8192), TileSource::kStride) << "no room for the ranks";
}

TEST(E4m3Plan, StridesAreOfBytes) {
  const AttentionProblem p = AttentionProblem::make(decode(72));
  EXPECT_EQ(query_support(p, h200_spec()).reason,
            "head stride 72 of k is 72 bytes; accepted on a GPU: multiples of 16 bytes from 0 to "
            "2^40");
}

}  // namespace
}  // namespace fa4::internal
