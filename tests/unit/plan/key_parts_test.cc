#include "plan/key_parts.h"

#include <gtest/gtest.h>

#include "kernels/geometry/key_parts.h"
#include "plan/forward_plan.h"
#include "plan/sm90_tuning.h"
#include "problems.h"

namespace fa4::internal {
namespace {

ProblemDesc decode(int64_t batch, int64_t seqlen_k, int64_t heads_q = 64, int64_t heads_kv = 8) {
  ProblemDesc d;
  d.batch = batch;
  d.seqlen_q = 1;
  d.seqlen_k = seqlen_k;
  d.heads_q = heads_q;
  d.heads_kv = heads_kv;
  d.head_dim = 128;
  return d;
}

ForwardPlan plan_of(const ProblemDesc& d) {
  return plan_forward(AttentionProblem::make(d), h200_spec());
}
Sm90ForwardSpec spec_of(const ProblemDesc& d) { return std::get<Sm90ForwardSpec>(plan_of(d).main); }
int keys_of(const ProblemDesc& d) { return spec_of(d).parts.keys; }

std::string refusal(const ProblemDesc& d, const DeviceSpec& device = h200_spec()) {
  return query_support(AttentionProblem::make(d), device).reason;
}

TEST(PartTuning, EveryRowCanBeBuiltAndEveryHeadDimHasOne) {
  for (const Sm90PartRow& row : sm90_part_rows()) {
    for (const bool softcap : {false, true}) {
      const sm90::FwdTraits t = traits_of(row, Element::kBF16, softcap);
      const char* reason = sm90::why_not(t);
      EXPECT_EQ(reason, nullptr) << "head_dim " << row.head_dim << ": " << reason;
      EXPECT_TRUE(t.parts);
      EXPECT_EQ(t.tile_m, sm90::kWarpgroupRows);
      EXPECT_EQ(kSplitStep, kPartStep);
    }
    EXPECT_STRNE(row.reason, "");
  }
  for (int64_t d = 8; d <= 256; d += 8) {
    for (int64_t dv = 8; dv <= 256; dv += 8) {
      const Sm90PartRow* row = find_sm90_part_row(d, dv);
      ASSERT_NE(row, nullptr) << d << " " << dv;
      EXPECT_GE(row->head_dim, d);
      EXPECT_GE(row->head_dim_v, dv);
    }
  }
  sm90::FwdTraits t = traits_of(*find_sm90_part_row(64, 64), Element::kBF16, false);
  t.tile_n = 80;
  EXPECT_STREQ(sm90::why_not(t), "a part of the keys is whole blocks");
}

TEST(KeyParts, FewTilesAreCutForAllSms) {
  EXPECT_EQ(keys_of(decode(1, 1024)), 128);
  EXPECT_EQ(keys_of(decode(1, 4096)), 512) << "64 parts, as many as clusters put together";
  EXPECT_EQ(keys_of(decode(1, 8192)), 512) << "128 parts: 64 SMs do not read as fast";
  EXPECT_EQ(keys_of(decode(1, 65536)), 4096) << "128 parts: one for each SM";
  EXPECT_EQ(keys_of(decode(8, 8192)), 4096);
  EXPECT_EQ(keys_of(decode(64, 8192)), 0) << "512 tiles are work enough";
  EXPECT_EQ(keys_of(decode(1, 256)), 0) << "one part's work";
  EXPECT_EQ(keys_of(decode(2, 1024)), 256) << "64 CTAs in clusters of four";
  EXPECT_EQ(keys_of(decode(4, 2048)), 512);
  EXPECT_EQ(keys_of(decode(8, 2048)), 1024);
  EXPECT_EQ(keys_of(decode(12, 4096)), 0) << "96 SMs read as fast as all";
  ProblemDesc d = decode(1, 8192);
  d.seqlen_q = 8;  // 64 rows
  EXPECT_EQ(keys_of(d), 512);
  d.seqlen_q = 9;
  EXPECT_EQ(keys_of(d), 0);
}

TEST(KeyParts, TheProblemMaySayWhere) {
  ProblemDesc d = decode(64, 8192);
  d.num_splits = 3;
  EXPECT_EQ(keys_of(d), 2816);
  EXPECT_EQ(spec_of(d).parts.most, 3);
  d.num_splits = 1000;
  EXPECT_EQ(keys_of(d), 128) << "parts begin at multiples of 128";
  d.num_splits = 1;
  EXPECT_EQ(keys_of(d), 0);
  d = decode(1, 8192);
  d.num_splits = 1;
  EXPECT_EQ(keys_of(d), 0);
  d.num_splits = 0;
  d.split_keys = 1280;
  EXPECT_EQ(keys_of(d), 1280);
  EXPECT_EQ(spec_of(d).parts.most, 7);
  d.seqlen_q = 5000;
  EXPECT_EQ(keys_of(d), 1280) << "also where rows are many";
  d.split_keys = 1 << 20;
  EXPECT_EQ(keys_of(d), 8192) << "all keys";
  EXPECT_EQ(spec_of(d).parts.most, 1);
}

// Where memory is slower fewer SMs wait for it.
TEST(KeyParts, AreOfTheDevicesBandwidth) {
  const auto keys = [](const ProblemDesc& d, double bandwidth) {
    DeviceSpec device = h200_spec();
    device.memory_bandwidth = bandwidth;
    return std::get<Sm90ForwardSpec>(plan_forward(AttentionProblem::make(d), device).main)
        .parts.keys;
  };
  EXPECT_EQ(keys(decode(6, 4096), 4.8e12), 2048);
  EXPECT_EQ(keys(decode(6, 4096), 3.35e12), 0) << "48 SMs take all of an H100's";
  EXPECT_EQ(keys(decode(6, 4096), 0), 2048) << "not known: as an H200's";
}

// Those of one launch, which the next call's is to begin behind: of two launches the second one
// does.
TEST(KeyParts, OfFewCtasLeaveSms) {
  const auto leaves_sms = [](const ProblemDesc& d) { return spec_of(d).schedule.leaves_sms; };
  EXPECT_TRUE(leaves_sms(decode(10, 8192))) << "80 whole tiles";
  EXPECT_TRUE(leaves_sms(decode(6, 16384))) << "96 CTAs in clusters";
  EXPECT_FALSE(leaves_sms(decode(16, 8192))) << "128 whole tiles";
  EXPECT_FALSE(leaves_sms(decode(8, 8192))) << "128 CTAs in clusters";
  ProblemDesc d = decode(2, 8192);
  d.split_keys = 1024;
  ASSERT_EQ(spec_of(d).parts.cluster, 1);
  EXPECT_FALSE(leaves_sms(d));
}

// What is not known when the plan is made decides nothing; what else is in the batch may, since the
// batch is the plan's.
TEST(KeyParts, ShortSequencesOfALongMaximumAreCutToo) {
  ProblemDesc d = decode(1, 131072);
  d.has_seqused_k = true;
  EXPECT_TRUE(spec_of(d).parts.are_even());
  d.has_seqused_k = false;
  EXPECT_EQ(keys_of(d), 8192) << "all keys are in use";
  d.has_seqused_k = true;
  d.batch = 64;
  EXPECT_EQ(keys_of(d), 4096) << "one long sequence may be the only one";
}

// Those of the table in docs/kernels/decode_measured.md.
TEST(KeyParts, WhereLengthsMayDiffer) {
  constexpr struct {
    int64_t batch, seqlen_k;
    int keys, most, cluster;
  } kRows[] = {{1, 1024, 128, 8, 8},   {1, 8192, 0, 8, 8},      {1, 131072, 0, 8, 8},
               {8, 8192, 0, 2, 2},     {8, 131072, 0, 2, 2},    {12, 8192, 1024, 8, 1},
               {64, 8192, 4096, 2, 1}, {64, 65536, 4096, 16, 1}};
  for (const auto& row : kRows) {
    ProblemDesc d = decode(row.batch, row.seqlen_k);
    d.has_seqused_k = true;
    const KeyParts parts = spec_of(d).parts;
    EXPECT_EQ(parts.keys, row.keys) << row.batch << " x " << row.seqlen_k;
    EXPECT_EQ(parts.most, row.most) << row.batch << " x " << row.seqlen_k;
    EXPECT_EQ(parts.cluster, row.cluster) << row.batch << " x " << row.seqlen_k;
  }
}

// A plan for 131072 keys so serves 8192 as one for 8192 does.
TEST(KeyParts, EvenPartsAreOfASequencesOwnKeys) {
  EXPECT_EQ(part_keys_of(384, 3, 1000), 384) << "the plan's";
  EXPECT_EQ(part_keys_of(0, 3, 8192), 1024);
  EXPECT_EQ(part_keys_of(0, 3, 8193), 1152) << "multiples of 128";
  EXPECT_EQ(part_keys_of(0, 3, 1), 128);
  EXPECT_EQ(part_keys_of(0, 3, 0), 128) << "of a sequence without keys there are none";
  for (const int most_log2 : {1, 2, 3}) {
    for (int keys = 1; keys < 5000; keys += 37) {
      const KeyBounds all{0, keys};
      EXPECT_LE(part_span(all, all, part_keys_of(0, most_log2, keys)).count(), 1 << most_log2)
          << keys;
    }
  }
}

// What a tile of a window sees is not cut by where its sequence ends.
TEST(KeyParts, AWindowIsNotCutEvenly) {
  ProblemDesc d = decode(1, 131072);
  d.has_seqused_k = true;
  EXPECT_TRUE(spec_of(d).parts.are_even());
  d.window = {8191, 0};
  EXPECT_TRUE(spec_of(d).parts.are_cut());
  EXPECT_FALSE(spec_of(d).parts.are_even());
}

// Whole tiles of few rows have the shape of parts.
TEST(KeyParts, FullGpusTakeWholeTilesOfFewRows) {
  for (const int64_t head_dim : {64, 128}) {
    ProblemDesc d = decode(64, 8192);
    d.head_dim = head_dim;
    const Sm90ForwardSpec spec = spec_of(d);
    EXPECT_FALSE(spec.parts.are_cut());
    EXPECT_EQ(spec.traits.tile_m, sm90::kWarpgroupRows);
    EXPECT_FALSE(spec.traits.parts);
    EXPECT_EQ(sm90::why_not(spec.traits), nullptr);
    d.seqlen_q = 9;  // 72 rows
    EXPECT_GT(spec_of(d).traits.tile_m, sm90::kWarpgroupRows);
  }
}

TEST(KeyParts, AWindowBoundsThem) {
  ProblemDesc d = decode(1, 131072);
  d.split_keys = 512;
  EXPECT_EQ(spec_of(d).parts.most, 256);
  d.window = {4095, 0};  // 4096 keys
  EXPECT_EQ(spec_of(d).parts.most, 9);
  d.window = {100, -200, 2};
  EXPECT_GE(spec_of(d).parts.most, 1) << "nobody sees anything";
}

// 1024 keys that begin anywhere lie in nine parts of 128, for which there is no cluster.
TEST(KeyParts, AWindowIsCutForTheClusterThatItsPartsFill) {
  ProblemDesc d = decode(1, 65536);
  d.window = {1023, 0};
  KeyParts parts = spec_of(d).parts;
  EXPECT_EQ(parts.keys, 256);
  EXPECT_EQ(parts.most, 5);
  EXPECT_EQ(parts.cluster, 8);
  d.seqlen_k = 1024;  // all keys, from the first on
  parts = spec_of(d).parts;
  EXPECT_EQ(parts.keys, 128);
  EXPECT_EQ(parts.most, 8);
  EXPECT_EQ(parts.cluster, 8);
  d.seqlen_k = 1224;  // the first 1024 at most, which the plan does not tell from any others
  d.window = {-1, -201, 2};
  parts = spec_of(d).parts;
  EXPECT_EQ(parts.keys, 256);
  EXPECT_EQ(parts.cluster, 8);
}

// More than the kernels find for any sequence of the problem would be written past the workspace.
TEST(KeyParts, NoTileSeesMoreThanTheWorkspaceHolds) {
  for (const int64_t keys : {128, 384}) {
    for (const MaskSpec& window :
         {MaskSpec{}, MaskSpec{-1, 0}, MaskSpec{200, 0}, MaskSpec{0, 0}, MaskSpec{500, 130},
          MaskSpec{300, -90, 2}, MaskSpec{-300, -1, 1}}) {
      for (const int64_t seqlen_q : {1, 3, 100, 700}) {
        ProblemDesc d = decode(1, 1000, 6, 2);
        d.seqlen_q = seqlen_q;
        d.split_keys = keys;
        d.window = window;
        const Sm90ForwardSpec spec = spec_of(d);
        const int positions = sm90::kWarpgroupRows / (spec.schedule.group == 3 ? 4 : 1);
        const auto bound = [](bool is_bounded, int64_t w) {
          return is_bounded ? static_cast<int>(w) : 1 << 29;
        };
        for (const int used : {0, 1, 127, 128, 129, 640, 999, 1000}) {
          for (int first = 0; first < seqlen_q; first += positions) {
            const int last = std::min<int>(first + positions, static_cast<int>(seqlen_q)) - 1;
            const auto bounds = [&](int row) {
              return key_bounds(row + used - static_cast<int>(seqlen_q), used,
                                bound(window.is_bounded_left(), window.window_left),
                                bound(window.is_bounded_right(), window.window_right));
            };
            const PartSpan span = part_span(bounds(first), bounds(last), spec.parts.keys);
            EXPECT_LE(span.count(), spec.parts.most) << keys << " " << used << " " << first;
            const BlockRange blocks = block_range(bounds(first), bounds(last), kPartStep);
            for (int part = span.begin; part < span.end; ++part) {
              EXPECT_FALSE(blocks_of_part(blocks, part, spec.parts.keys / kPartStep).is_empty())
                  << keys << " " << used << " " << first;
            }
            for (int part = 0; part <= spec.parts.most; ++part) {
              EXPECT_EQ(sees_part(bounds(first), bounds(last), part, spec.parts.keys),
                        span.contains(part))
                  << keys << " " << used << " " << first << " " << part;
            }
            for (int row = first; row <= last; ++row) {
              const KeyBounds b = bounds(row);
              if (b.begin >= b.end) continue;
              EXPECT_TRUE(span.contains(b.begin / spec.parts.keys));
              EXPECT_TRUE(span.contains((b.end - 1) / spec.parts.keys));
            }
          }
        }
      }
    }
  }
}

TEST(KeyParts, BlocksOfAPartLieInIt) {
  const BlockRange blocks{{3, 17}, 4, 15};
  EXPECT_EQ(blocks_of_part(blocks, 0, 4).n_block_min, 3);
  EXPECT_EQ(blocks_of_part(blocks, 0, 4).n_block_max, 4);
  EXPECT_EQ(blocks_of_part(blocks, 2, 4).n_block_min, 8);
  EXPECT_EQ(blocks_of_part(blocks, 2, 4).n_block_max, 12);
  EXPECT_EQ(blocks_of_part(blocks, 4, 4).n_block_max, 17);
  EXPECT_EQ(blocks_of_part(blocks, 4, 4).full_end, 15);
  EXPECT_TRUE(blocks_of_part(blocks, 5, 4).is_empty());
}

// Of eight parts at most, each a CTA's, of which all run at once; elsewhere the workspace takes
// them.
TEST(KeyParts, OfFewTilesMeetInClusters) {
  const ForwardPlan plan = plan_of(decode(1, 1024));
  ASSERT_EQ(plan.steps.size(), 1u);
  EXPECT_EQ(plan.steps[0].grid, 64);
  EXPECT_EQ(plan.steps[0].cluster, 8);
  EXPECT_EQ(plan.workspace.bytes(), 0u);
  const auto& spec = std::get<Sm90ForwardSpec>(plan.main);
  const int without = sm90::smem_layout(spec.traits).total;
  EXPECT_EQ(plan.steps[0].smem_bytes, without + sm90::inbox_bytes(spec.traits));
  const auto cluster_of = [](const ProblemDesc& d) { return spec_of(d).parts.cluster; };
  ProblemDesc d = decode(1, 8192);
  d.split_keys = 1280;
  EXPECT_EQ(cluster_of(d), 8) << "of seven parts";
  EXPECT_EQ(plan_of(d).steps[0].grid, 64);
  d.split_keys = 896;
  EXPECT_EQ(cluster_of(d), 1) << "ten parts";
  d.split_keys = 8192;
  EXPECT_EQ(cluster_of(d), 1) << "one part";
  d = decode(8, 8192);
  EXPECT_EQ(cluster_of(d), 2);
  d = decode(8, 2048);
  d.head_dim = 64;
  EXPECT_EQ(cluster_of(d), 2);
  d = decode(8, 8192);
  d.split_keys = 2048;
  EXPECT_EQ(cluster_of(d), 1) << "256 CTAs do not run at once";
  d = decode(2, 8192);
  d.split_keys = 1024;
  EXPECT_EQ(cluster_of(d), 1) << "16 clusters of eight: one GPC may have fewer than 16 SMs";
  d.split_keys = 2048;
  EXPECT_EQ(cluster_of(d), 4) << "16 clusters of four";
  d.head_dim = 256;
  EXPECT_EQ(cluster_of(d), 1) << "keys and values leave no room for what arrives";
}

TEST(KeyParts, AreTwoLaunchesAndAWorkspaceOfThePlanAlone) {
  ProblemDesc alone = decode(1, 8192);
  alone.split_keys = 512;
  const ForwardPlan plan = plan_of(alone);
  ASSERT_EQ(plan.steps.size(), 2u);
  EXPECT_EQ(plan.steps[0].source.display_name, "fwd_sm90_bf16_d128_m64n128_parts");
  EXPECT_EQ(plan.steps[0].grid, 128);
  EXPECT_EQ(plan.steps[0].threads, 256);
  EXPECT_EQ(plan.steps[1].source.name_expression, "fa4::combine_parts<fa4::Element::kBF16, 1>");
  EXPECT_EQ(plan.steps[1].grid, 64) << "a CTA a row";
  EXPECT_EQ(plan.workspace.find(kTileCounter), nullptr) << "nothing to be zeroed";
  EXPECT_EQ(plan.workspace.find(kPartSums)->bytes, size_t{64} * 16 * 128 * 4);
  EXPECT_EQ(plan.workspace.find(kPartStats)->bytes, size_t{64} * 16 * 8);
  ProblemDesc packed = decode(3, 8192);
  packed.layout_q = Layout::kPacked;
  packed.total_q = 3;
  packed.split_keys = 1024;
  EXPECT_EQ(plan_of(packed).workspace.find(kPartStats)->bytes, size_t{64} * 3 * 8 * 8);
  EXPECT_EQ(plan_of(packed).steps[1].grid, 24) << "of at most eight parts, a warp a row";
  packed.batch = packed.total_q = 16;
  packed.split_keys = 128;
  EXPECT_EQ(plan_of(packed).steps[1].grid, 128) << "of 1024 rows, a warp a row";
}

TEST(KeyParts, TheirKernelWritesAnotherTypeWhereTilesDoNot) {
  ProblemDesc d = dense(128);
  d.out_dtype = DType::kF32;
  const auto expect_one_part = [&] {
    EXPECT_EQ(spec_of(d).parts.keys, 4096);
    EXPECT_EQ(spec_of(d).parts.most, 1);
    EXPECT_FALSE(spec_of(d).traits.out_f32);
  };
  EXPECT_TRUE(spec_of(d).traits.out_f32);
  EXPECT_FALSE(spec_of(d).parts.are_cut());
  EXPECT_EQ(spec_of(d).shape().out_columns, 0);
  EXPECT_EQ(plan_of(d).workspace.find(kPartSums), nullptr);
  d.softcap = 30;
  expect_one_part();
  d.softcap = 0;
  d.seqlen_q = 1;  // of 8 heads
  d.num_splits = 1;
  expect_one_part();
  d.seqlen_q = 128;
  EXPECT_TRUE(spec_of(d).traits.out_f32);
  d.num_splits = 2;
  EXPECT_EQ(spec_of(d).parts.most, 2);
  EXPECT_FALSE(spec_of(d).traits.out_f32);
}

// 128 rows a tile there, and one of the two Q tiles.
TEST(KeyParts, OfBlackwell) {
  const DeviceSpec b200 = emulated_specs().back();
  const auto spec_on_b200 = [&](const ProblemDesc& d) {
    return std::get<Sm100ForwardSpec>(plan_forward(AttentionProblem::make(d), b200).main);
  };
  ProblemDesc d = decode(1, 8192);
  d.seqlen_q = 16;  // of 8 heads
  EXPECT_TRUE(spec_on_b200(d).parts.are_cut());
  EXPECT_TRUE(spec_on_b200(d).traits.parts);
  EXPECT_EQ(spec_on_b200(d).traits.q_tiles, 1);
  d.seqlen_q = 17;
  EXPECT_FALSE(spec_on_b200(d).parts.are_cut());
  EXPECT_FALSE(spec_on_b200(d).traits.parts);
  d.out_dtype = DType::kF32;
  EXPECT_TRUE(spec_on_b200(d).traits.out_f32);
  EXPECT_EQ(spec_on_b200(d).shape().out_columns, 0);
  d.out_dtype = d.dtype;
  d.split_keys = 256;
  EXPECT_EQ(spec_on_b200(d).parts.keys, 256);
  EXPECT_EQ(spec_on_b200(d).parts.most, 32);
  d.window = {100, 0};
  EXPECT_EQ(spec_on_b200(d).parts.most, 2);
  d = decode(1, 8192);
  d.head_dim = 256;
  EXPECT_TRUE(spec_on_b200(d).traits.parts);
  EXPECT_EQ(spec_on_b200(d).traits.head_dim_v, 256);
}

// Of packed q more rows may be announced than the sequences have. Their sums would take 2^67 bytes.
TEST(KeyParts, SumsOfAllRowsFitTheWorkspace) {
  ProblemDesc d = decode(1, 1 << 28);
  d.layout_q = Layout::kPacked;
  d.heads_q = d.heads_kv = 1 << 16;
  d.head_dim = 64;
  d.total_q = 1 << 29;
  d.split_keys = 1 << 14;
  EXPECT_EQ(refusal(d),
            "split_keys 16384 with batch 1, heads_q 65536, seqlen_q 1 (total_q 536870912) and "
            "seqlen_k 268435456; accepted on a GPU: below 2^31 - 2^20 rows of all heads (batch * "
            "seqlen_q * heads_q), and as many parts of tiles of 64 rows");
  d.total_q = 64;
  EXPECT_EQ(refusal(d), "");
}

TEST(KeyParts, IndicesStayBelow2To31) {
  ProblemDesc d = decode(8192, 1 << 26);
  d.seqlen_q = 8;
  EXPECT_EQ(refusal(d), "");
  d.split_keys = 128;
  EXPECT_EQ(
      refusal(d),
      "split_keys 128 with batch 8192, heads_q 64, seqlen_q 8 and seqlen_k 67108864; accepted "
      "on a GPU: below 2^31 - 2^20 rows of all heads (batch * seqlen_q * heads_q), and as many "
      "parts of tiles of 64 rows");
  d.split_keys = 4096;
  EXPECT_EQ(refusal(d), "");
  d = dense(64, 1 << 20);
  d.window = {127, 0};
  d.split_keys = 128;
  EXPECT_NE(refusal(d), "") << "few parts of each tile, but all are counted";
}

}  // namespace
}  // namespace fa4::internal
