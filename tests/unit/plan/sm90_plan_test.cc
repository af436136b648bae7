#include "plan/sm90_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <set>

#include "hopper.h"
#include "plan/sm90_tuning.h"

namespace fa4::internal {
namespace {

TEST(Sm90Tuning, EveryRowCanBeBuilt) {
  for (const Sm90TuningRow& row : sm90_tuning_rows()) {
    for (const bool softcap : {false, true}) {
      if (softcap && !row.takes_softcap) continue;
      const sm90::FwdTraits t = traits_of(row, Element::kBF16, softcap);
      const char* reason = sm90::why_not(t);
      EXPECT_EQ(reason, nullptr) << "head_dim " << row.head_dim << ": " << reason;
    }
    EXPECT_STRNE(row.reason, "");
  }
}

// A problem that `row` is for: many tiles, where it asks for that, else one.
ProblemDesc problem_of(const Sm90TuningRow& row) {
  const bool is_large = row.tile_time > 0;
  ProblemDesc d = dense(row.head_dim, 256, row.masked);
  d.head_dim_v = row.head_dim_v;
  d.batch = is_large ? 64 : 1;
  d.heads_q = d.heads_kv = is_large ? 16 : 1;
  d.seqlen_q = is_large ? 2 * row.tile_m : row.tile_m;
  d.seqlen_k = std::max<int64_t>(row.min_seqlen_k, std::min<int64_t>(row.max_keys, 256));
  if (row.window) d.window = {100, 0};
  return d;
}

TEST(Sm90Tuning, EveryRowTakesItsProblems) {
  std::set<int> tiles;
  for (const Sm90TuningRow& row : sm90_tuning_rows()) {
    ProblemDesc d = problem_of(row);
    // Other rows take fewer keys with the same tile.
    if (row.tile_m == 256 && row.max_keys > 256) d.seqlen_k = row.max_keys;
    sm90::FwdTraits traits = spec_of(d).traits;
    traits.cluster = 1;
    EXPECT_EQ(traits, traits_of(row, Element::kBF16, false)) << row.reason;
    tiles.insert(traits.tile_m);
  }
  EXPECT_EQ(tiles, (std::set<int>{128, 192, 256}));
}

// Few tiles are better small, and tiles that nobody would fill; with num_splits 1 the tile does not
// depend on the batch.
TEST(Sm90Plan, LargeTilesTakeEnoughOfThem) {
  const auto tile = [](int64_t batch, int64_t heads, int64_t seqlen, bool causal,
                       int64_t num_splits = 0) {
    ProblemDesc d = dense(64, seqlen, causal);
    d.batch = batch;
    d.heads_q = d.heads_kv = heads;
    d.num_splits = num_splits;
    return spec_of(d).traits.tile_m;
  };
  EXPECT_EQ(tile(128, 32, 256, false), 256);
  EXPECT_EQ(tile(166, 32, 197, false), 256);
  EXPECT_EQ(tile(256, 32, 128, false), 128) << "half of each tile would be empty";
  EXPECT_EQ(tile(64, 32, 512, false), 256);
  EXPECT_EQ(tile(96, 32, 384, false), 192);
  EXPECT_EQ(tile(1, 32, 1024, false), 256) << "one round of 256 rows, two of 192";
  EXPECT_EQ(tile(1, 16, 1024, false), 192);
  EXPECT_EQ(tile(4, 32, 8192, false), 192);
  EXPECT_EQ(tile(64, 32, 512, true), 256);
  EXPECT_EQ(tile(256, 32, 128, true), 128);
  EXPECT_EQ(tile(1, 32, 2048, true), 256);
  EXPECT_EQ(tile(1, 32, 1024, true), 128) << "less than a tile an SM";
  EXPECT_EQ(tile(8, 32, 4096, true), 256);
  EXPECT_EQ(tile(4, 32, 8192, true), 256);
  EXPECT_EQ(tile(2, 32, 16384, true), 192);
  for (const int64_t batch : {1, 8, 1000}) {
    EXPECT_EQ(tile(batch, 1, 512, true, 1), 256) << batch;
    EXPECT_EQ(tile(batch, 1, 384, false, 1), 192) << batch;
  }
}

// However long the sequences are, queries that see few keys take the row of such windows.
TEST(Sm90Plan, WindowsTakeTheRowOfTheirWidth) {
  const auto tile = [](int64_t head_dim, int64_t heads, int64_t left) {
    ProblemDesc d = dense(head_dim, 16384, true);
    d.batch = 2;
    d.heads_q = d.heads_kv = heads;
    d.window = {left, 0};
    const sm90::FwdTraits t = spec_of(d).traits;
    return std::pair(t.tile_m, t.tile_n);
  };
  EXPECT_EQ(tile(64, 32, 1024), std::pair(256, 64));
  EXPECT_EQ(tile(64, 32, 16000), std::pair(192, 128));
  EXPECT_EQ(tile(96, 20, 128), std::pair(192, 64));
  EXPECT_EQ(tile(96, 20, 4096), std::pair(192, 96));
  EXPECT_EQ(tile(128, 16, 1024), std::pair(192, 64));
  EXPECT_EQ(tile(128, 16, 8192), std::pair(192, 80));
}

TEST(Sm90Plan, TablesOfEveryKind) {
  ProblemDesc d = dense(128);
  d.layout_kv = Layout::kPaged;
  d.page_size = 64;
  d.num_pages = 4 * (d.pages_per_seq = 64);
  d.page_table_heads = 16;
  EXPECT_EQ(refusal(d), "");
  d.page_table_heads = 0;
  d.page_table = {100, 1, 0};
  EXPECT_EQ(refusal(d), "");
}

// Of a tensor without rows; a product that wraps round would pass for a small one.
TEST(Sm90Plan, AStrideOfAnySizeIsRefused) {
  for (const int64_t any : {INT64_MIN, INT64_MAX}) {
    ProblemDesc d = dense(128);
    d.batch = 0;
    d.out = {1 << 20, 1 << 10, any};
    EXPECT_NE(refusal(d).find("head stride"), std::string::npos);
  }
}

// Boxes must not reach from the shared keys into a sequence's own.
TEST(Sm90Plan, PrefixesThatAreNoMultipleOf8AreCopiedByRows) {
  ProblemDesc d = dense(128);
  d.layout_kv = Layout::kPaged;
  d.page_size = 64;
  d.num_pages = 4 * (d.pages_per_seq = 64) + 2;
  d.prefix_len = 104;
  EXPECT_EQ(spec_of(d).traits.pages, Pages::kGroups);
  d.prefix_len = 100;
  EXPECT_EQ(spec_of(d).traits.pages, Pages::kRows);
}

TEST(Sm90Tuning, ARowThatDoesNotFitIsNamed) {
  sm90::FwdTraits t;
  t.tile_n = 192;
  EXPECT_STREQ(sm90::why_not(t), "shared memory exceeds 227 KiB");
  t = {};
  t.tile_m = 192;
  EXPECT_STREQ(sm90::why_not(t), "scores, probabilities and output exceed the registers");
}

// The kernel would take it for boxes and read keys from wrong places.
TEST(Sm90Tuning, PagesThatTheKernelDoesNotLoadAreRefused) {
  sm90::FwdTraits t = traits_of(*find_sm90_part_row(128, 128), Element::kBF16, false);
  for (const Pages pages : {Pages::kNone, Pages::kBoxes, Pages::kGroups, Pages::kRows}) {
    t.pages = pages;
    EXPECT_EQ(sm90::why_not(t), nullptr) << sm90::why_not(t);
  }
  t.pages = Pages::kGathers;
  EXPECT_STREQ(sm90::why_not(t), "rows of pages are copied by threads, not gathered");
}

TEST(Sm90Tuning, EveryHeadDimHasAKernelThatHoldsIt) {
  for (int64_t d = 8; d <= 256; d += 8) {
    for (int64_t dv = 8; dv <= 256; dv += 8) {
      for (const bool masked : {false, true}) {
        for (const bool softcap : {false, true}) {
          const Sm90TuningRow* row =
              find_sm90_tuning({.head_dim = d,
                                .head_dim_v = dv,
                                .mask = masked ? MaskKind::kCausal : MaskKind::kFull,
                                .softcap = softcap});
          ASSERT_NE(row, nullptr) << d << " " << dv;
          EXPECT_GE(row->head_dim, d);
          EXPECT_GE(row->head_dim_v, dv);
          EXPECT_EQ(row->masked, masked);
          EXPECT_TRUE(!softcap || row->takes_softcap);
        }
      }
    }
  }
  EXPECT_EQ(find_sm90_tuning({192, 128})->head_dim_v, 128);
  EXPECT_EQ(find_sm90_tuning({192, 136})->head_dim_v, 192);
  EXPECT_EQ(find_sm90_tuning({264, 8}), nullptr);
}

TEST(Sm90Traits, SharedMemoryRegionsFollowEachOther) {
  for (const Sm90TuningRow& row : sm90_tuning_rows()) {
    const sm90::FwdTraits t = traits_of(row, Element::kF16, false);
    const sm90::SmemLayout s = sm90::smem_layout(t);
    EXPECT_EQ(s.q, 0);
    EXPECT_EQ(s.k, t.q_slots * 64 * t.head_dim * 2);
    EXPECT_EQ(s.v - s.k, t.kv_stages * t.tile_n * t.head_dim * 2);
    EXPECT_EQ(s.tiles - s.v, t.kv_stages * t.tile_n * t.head_dim_v * 2);
    EXPECT_EQ(s.k % 1024, 0) << "TMA's 128-byte swizzle repeats every 1024 bytes";
    EXPECT_EQ(s.v % 1024, 0);
    EXPECT_EQ(s.barriers % 8, 0);
    EXPECT_LE(s.total, h200_spec().smem_per_block_bytes);
  }
}

// Of two or three warpgroups: whose next rows of Q wait for another's out.
TEST(Sm90Traits, SlotsOfQ) {
  const auto late = [](int tile_m, int q_slots) {
    const sm90::FwdTraits t{
        .head_dim = 64, .head_dim_v = 64, .tile_m = tile_m, .tile_n = 64, .q_slots = q_slots};
    EXPECT_EQ(sm90::why_not(t), nullptr);
    EXPECT_TRUE(sm90::overlaps_tiles(t));
    return sm90::late_warpgroups(t);
  };
  EXPECT_EQ(late(128, 3), 1);
  EXPECT_EQ(late(128, 4), 0);
  EXPECT_EQ(late(128, 6), 0);
  EXPECT_EQ(late(192, 4), 2);
  EXPECT_EQ(late(192, 5), 1);
  EXPECT_EQ(late(192, 6), 0);
  const sm90::FwdTraits four{.head_dim = 64, .head_dim_v = 64, .tile_m = 256, .tile_n = 64};
  EXPECT_STREQ(sm90::why_not(four), "four warpgroups are independent");
  const sm90::FwdTraits three_slots{.head_dim = 64,
                                    .head_dim_v = 64,
                                    .tile_m = 128,
                                    .tile_n = 64,
                                    .q_slots = 3,
                                    .independent = true};
  EXPECT_STREQ(sm90::why_not(three_slots),
               "an independent warpgroup's Q must not wait for another's out");
  sm90::FwdTraits t{.tile_m = 128, .q_slots = 2};
  EXPECT_STREQ(sm90::why_not(t), "out lies in Q's slots: the next Q takes one more");
  t.q_slots = 7;
  EXPECT_STREQ(sm90::why_not(t), "Q has one to three slots for each consumer warpgroup");
  t = {.head_dim = 64, .head_dim_v = 64, .tile_m = 64, .tile_n = 64, .q_slots = 1, .parts = true};
  EXPECT_EQ(sm90::why_not(t), nullptr);
  EXPECT_FALSE(sm90::overlaps_tiles(t));
}

// Under a causal mask as many blocks for each warpgroup, over two tiles.
TEST(Sm90Traits, SlicesGoToWarpgroupsInTurn) {
  sm90::FwdTraits t{.head_dim = 64, .head_dim_v = 64, .tile_m = 256, .tile_n = 64};
  EXPECT_EQ(sm90::slice_of(t, 1, 1), 1);
  t.independent = true;
  for (int warpgroup = 0; warpgroup < 4; ++warpgroup) {
    EXPECT_EQ(sm90::slice_of(t, warpgroup, 0), warpgroup);
    EXPECT_EQ(sm90::slice_of(t, warpgroup, 6) + sm90::slice_of(t, warpgroup, 7), 3);
  }
}

TEST(Sm90Traits, EveryBarrierHasArriversAndWaiters) {
  for (const Sm90TuningRow& row : sm90_tuning_rows()) {
    const auto table = sm90::barriers(traits_of(row, Element::kBF16, false));
    for (const BarrierRow& barrier : table.rows) {
      EXPECT_GT(barrier.arrivals, 0) << barrier.name;
      const auto kind = &barrier - table.rows;
      const bool is_of_others =
          kind == sm90::kInboxFull || kind == sm90::kRawFull || kind == sm90::kRawEmpty;
      EXPECT_EQ(barrier.stages, is_of_others ? 0 : std::max(1, barrier.stages)) << barrier.name;
      EXPECT_STRNE(barrier.arrives, "");
      EXPECT_STRNE(barrier.waits, "");
    }
  }
}

TEST(Sm90Traits, RegistersOfAllWarpgroupsFitTheFile) {
  for (const Sm90TuningRow& row : sm90_tuning_rows()) {
    const sm90::FwdTraits t = traits_of(row, Element::kBF16, false);
    const sm90::RegisterSplit split = sm90::register_split(t);
    EXPECT_LE(split.producer + sm90::consumer_warpgroups(t) * split.consumer, 512);
    EXPECT_EQ(split.producer % 8, 0);
    EXPECT_EQ(split.consumer % 8, 0);
  }
}

TEST(Sm90Tuning, EveryRowOfBytesCanBeBuilt) {
  for (const Sm90BytesRow& row : sm90_bytes_rows()) {
    for (const Pages pages : {Pages::kNone, Pages::kBoxes}) {
      sm90::FwdTraits t = traits_of(row, Element::kBF16, true);
      t.pages = pages;
      EXPECT_EQ(sm90::why_not(t), nullptr) << sm90::why_not(t);
    }
  }
  sm90::FwdTraits t = traits_of(*find_sm90_bytes_row(64, 64), Element::kBF16, false);
  t.pages = Pages::kRows;
  EXPECT_NE(sm90::why_not(t), nullptr);
  t = traits_of(*find_sm90_bytes_row(128, 128), Element::kBF16, false);
  t.q_slots = 6;
  EXPECT_STREQ(sm90::why_not(t), "there are two places for bytes or more");
}

// Prompts over bytes; what that kernel does not take, the one of few rows does.
TEST(Sm90Plan, ManyRowsOverBytesAreMadeOnce) {
  const auto is_taken = [](auto change) {
    ProblemDesc d = dense(128, 1024, true);
    d.kv_dtype = DType::kE4M3;
    change(d);
    const AttentionProblem p = AttentionProblem::make(d);
    const ForwardPlan plan = plan_forward(p, h200_spec());
    const auto* spec = std::get_if<Sm90ForwardSpec>(&plan.main);
    EXPECT_EQ(takes_bytes(p, h200_spec()), spec != nullptr);
    return spec != nullptr && spec->traits.bytes;
  };
  const auto put_in_pages = [](ProblemDesc& d, int64_t page_size) {
    d.layout_kv = Layout::kPaged;
    d.page_size = page_size;
    d.pages_per_seq = (d.seqlen_k + page_size - 1) / page_size;
    d.num_pages = d.batch * d.pages_per_seq;
  };
  EXPECT_TRUE(is_taken([](ProblemDesc&) {}));
  EXPECT_TRUE(is_taken([](ProblemDesc& d) { d.has_descales = true; }));
  EXPECT_TRUE(is_taken([](ProblemDesc& d) { d.head_dim = 80, d.head_dim_v = 48; }));
  EXPECT_TRUE(is_taken([](ProblemDesc& d) { d.softcap = 5; }));
  EXPECT_TRUE(is_taken([&](ProblemDesc& d) { put_in_pages(d, 16); }));
  EXPECT_FALSE(is_taken([&](ProblemDesc& d) { put_in_pages(d, 1); }));
  EXPECT_FALSE(is_taken([](ProblemDesc& d) { d.seqlen_q = 64; }));
  EXPECT_FALSE(is_taken([](ProblemDesc& d) { d.head_dim = d.head_dim_v = 192; }));
  EXPECT_FALSE(is_taken([](ProblemDesc& d) { d.has_descales = true, d.descale_block = 128; }));
  EXPECT_FALSE(is_taken([](ProblemDesc& d) { d.split_keys = 256; }));
  EXPECT_FALSE(is_taken([](ProblemDesc& d) { d.out_dtype = DType::kF32; })) << "goes by parts";
}

TEST(KernelSpec, PrintsAsItsOwnName) {
  const KernelSource source = spec_of(dense(128, 4096, true)).source();
  EXPECT_EQ(source.display_name, "fwd_sm90_bf16_d128_m128n128");
  EXPECT_EQ(source.name_expression,
            "fa4::fwd_sm90<fa4::sm90::FwdTraits{.element=fa4::Element::kBF16, .head_dim=128, "
            ".head_dim_v=128, .tile_m=128, .tile_n=128, .q_slots=6, .kv_stages=2, "
            ".softcap=false, .pages=fa4::Pages::kNone, .parts=false, "
            ".cluster=1, .out_f32=false, .bytes=false, .independent=false}>");
}

TEST(Sm90Plan, TilesThatSeeTheSameKeysShareTheirLoads) {
  const auto cluster = [](const ProblemDesc& d) { return spec_of(d).traits.cluster; };
  const ProblemDesc full = dense(128, 4096, false);
  EXPECT_EQ(cluster(full), 2);
  EXPECT_EQ(spec_of(full).source().display_name, "fwd_sm90_bf16_d128_m128n160_pair");
  EXPECT_EQ(spec_of(full).schedule.grid, h200_spec().num_sms);
  EXPECT_EQ(cluster(dense(128, 4096, true)), 1) << "causal tiles see different keys";
  ProblemDesc d = full;
  d.seqlen_q = 31 * 128;
  EXPECT_EQ(cluster(d), 1) << "one CTA in 32 would have no rows";
  d.seqlen_q = 101 * 128;
  EXPECT_EQ(cluster(d), 2);
  d = full;
  d.has_seqused_k = true;
  EXPECT_EQ(cluster(d), 1) << "device memory says what a tile sees";
  d = full;
  d.softcap = 30;
  EXPECT_EQ(cluster(d), 1) << "with softcap no such kernel is prebuilt";
}

TEST(KernelSpec, KeysInPagesTakeTheTileOfTheSameKeysWithoutThem) {
  for (const int64_t page_size : {1, 3, 8, 16, 24, 57, 272, 4096}) {
    ProblemDesc desc = dense(128, 4096, true);
    desc.layout_kv = Layout::kPaged;
    desc.page_size = page_size;
    desc.num_pages = 1000;
    desc.pages_per_seq = 4096;
    const sm90::FwdTraits t = spec_of(desc).traits;
    EXPECT_EQ(t.pages, page_size % 8 == 0 ? Pages::kGroups : Pages::kRows) << page_size;
    EXPECT_EQ(spec_of(desc).source().display_name, page_size % 8 == 0
                                                       ? "fwd_sm90_bf16_d128_m128n128_page_groups"
                                                       : "fwd_sm90_bf16_d128_m128n128_page_rows");
    EXPECT_EQ(t.tile_n, spec_of(dense(128, 4096, true)).traits.tile_n);
  }
}

// A box of all slabs needs groups of rows at equal distances in all pages, and heads that fill
// their slabs: else it would bring the next head's columns.
TEST(KernelSpec, PagesComeInGroupsWhereTheyLieInThem) {
  const auto pages_of = [](int64_t head_dim, auto change) {
    ProblemDesc desc = dense(head_dim, 4096, true);
    desc.layout_kv = Layout::kPaged;
    desc.page_size = 16;
    desc.num_pages = 1000;
    desc.pages_per_seq = 256;
    change(desc);
    return spec_of(desc).traits.pages;
  };
  const auto as_it_is = [](ProblemDesc&) {};
  for (const int64_t head_dim : {96, 128, 192, 256}) {
    EXPECT_EQ(pages_of(head_dim, as_it_is), Pages::kGroups) << head_dim;
  }
  EXPECT_EQ(pages_of(64, as_it_is), Pages::kBoxes) << "one slab";
  EXPECT_EQ(pages_of(120, as_it_is), Pages::kBoxes);
  // Heads before rows; K and V in one tensor of (pages, 2, heads, rows, columns).
  EXPECT_EQ(pages_of(128,
                     [](ProblemDesc& d) {
                       d.k = d.v = {16 * 16 * 128, 128, 16 * 128};
                     }),
            Pages::kGroups);
  EXPECT_EQ(pages_of(128,
                     [](ProblemDesc& d) {
                       d.k = d.v = {2 * 16 * 16 * 128, 128, 16 * 128};
                     }),
            Pages::kGroups);
  // Pages that are no multiple of eight rows apart, or overlap.
  EXPECT_EQ(pages_of(128,
                     [](ProblemDesc& d) {
                       d.v = {17 * 16 * 128, 16 * 128, 128};
                     }),
            Pages::kBoxes);
  EXPECT_EQ(pages_of(128,
                     [](ProblemDesc& d) {
                       d.k = {8 * 16 * 128, 16 * 128, 128};
                     }),
            Pages::kBoxes);
}

TEST(Pages, BoxesStayInsideOfAPageAndOfABlock) {
  for (const Sm90TuningRow& row : sm90_tuning_rows()) {
    for (int page_size = 8; page_size <= 4096; page_size += 8) {
      for (const int prefix_len : {0, 8, 64, 104}) {
        const int rows = page_box_rows(page_size, prefix_len, row.tile_n);
        EXPECT_EQ(page_size % rows + prefix_len % rows + row.tile_n % rows + rows % 8, 0)
            << page_size << " " << prefix_len;
        EXPECT_LE(row.tile_n / rows, 32) << "a lane each";
      }
    }
  }
}

TEST(Pages, AMultiplicationDividesByEverySize) {
  constexpr uint32_t kMost = 0x7fffffff;
  std::vector<int32_t> sizes;
  for (int32_t size = 1; size <= 1000; ++size) sizes.push_back(size);
  for (int bit = 10; bit < 31; ++bit) {
    for (const int32_t more : {-1, 0, 1}) sizes.push_back((1 << bit) + more);
  }
  sizes.push_back(0x7fffffff);
  for (const int32_t size : sizes) {
    const PageDivision by = page_division(size);
    const auto divisor = static_cast<uint32_t>(size);
    for (const uint32_t multiple : {0u, 1u, 2u, 77u, kMost / divisor / 2, kMost / divisor}) {
      for (const int64_t more : {-1, 0, 1}) {
        const int64_t n = int64_t{multiple} * divisor + more;
        if (n < 0 || n > int64_t{kMost}) continue;
        const auto high = static_cast<uint32_t>(static_cast<uint64_t>(2 * n) * by.multiplier >> 32);
        EXPECT_EQ(high >> by.shift, static_cast<uint32_t>(n) / divisor) << n << " / " << size;
      }
    }
  }
}

TEST(KernelSpec, PrebuiltKernelsHoldEveryPlannedOneOnce) {
  std::set<std::string> prebuilt;
  std::set<std::string> names;  // two variants under one name would lose one
  for (const Sm90TuningRow& row : sm90_tuning_rows()) {
    const KernelSource k = Sm90ForwardSpec{traits_of(row, Element::kBF16, false), {}, {}}.source();
    names.insert(k.display_name);
    prebuilt.insert(k.name_expression);
  }
  EXPECT_EQ(names.size(), prebuilt.size());
  prebuilt.clear();
  for (const PrebuiltKernel& k : prebuilt_kernels("sm_90a")) {
    EXPECT_TRUE(prebuilt.insert(k.source.display_name).second) << k.source.display_name;
  }
  for (int64_t d = 8; d <= 256; d += 8) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      for (const float softcap : {0.0f, 30.0f}) {
        for (const int64_t seqlen : {512, 4096, 32768}) {
          ProblemDesc desc = dense(d, seqlen, true);
          desc.dtype = dtype;
          desc.softcap = softcap;
          std::string name = spec_of(desc).source().display_name;
          EXPECT_TRUE(prebuilt.contains(name)) << name;
          desc.causal = false;
          name = spec_of(desc).source().display_name;
          EXPECT_TRUE(prebuilt.contains(name)) << name;
        }
      }
    }
  }
  EXPECT_TRUE(prebuilt_kernels("sm_80").empty());
}

// What an engine asks of a cache of pages; those of less than eight keys are compiled on first use.
TEST(KernelSpec, PrebuiltKernelsReadPages) {
  std::set<std::string> prebuilt;
  for (const PrebuiltKernel& k : prebuilt_kernels("sm_90a")) {
    prebuilt.insert(k.source.name_expression);
  }
  for (int64_t d = 8; d <= 256; d += 8) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      for (const int64_t seqlen_q : {1, 4, 2048}) {
        ProblemDesc desc = dense(d, 4096, true);
        desc.dtype = dtype;
        desc.seqlen_q = seqlen_q;
        desc.layout_kv = Layout::kPaged;
        desc.has_seqused_k = true;
        desc.pages_per_seq = 4096;
        desc.num_pages = 4096;
        for (const int64_t page_size : {16, 1}) {
          desc.page_size = page_size;
          const KernelSource source = spec_of(desc).source();
          EXPECT_EQ(prebuilt.contains(source.name_expression), page_size == 16)
              << source.display_name;
        }
      }
    }
  }
}

TEST(Sm90Plan, AStepThatOnlyGrowsKeepsItsKernel) {
  const auto traits_at = [](int64_t seqlen) {
    sm90::FwdTraits traits = spec_of(dense(128, seqlen)).traits;
    traits.cluster = 1;  // pairs, where there is an even number of tiles, have the same bits
    return traits;
  };
  const sm90::FwdTraits traits = traits_at(2048);
  for (const int64_t seqlen : {2049, 4096, 100000}) EXPECT_EQ(traits_at(seqlen), traits) << seqlen;
  EXPECT_NE(traits_at(2047), traits) << "short rows";
}

TEST(Sm90Plan, PacksHeadsOfShortQueriesOnly) {
  ProblemDesc decode = dense(128, 4096);
  decode.seqlen_q = 1;
  decode.heads_q = 64;
  decode.heads_kv = 8;
  EXPECT_EQ(spec_of(decode).schedule.group, 8);
  decode.seqlen_q = 4096;
  EXPECT_EQ(spec_of(decode).schedule.group, 1) << "full tiles gain nothing";
  decode.seqlen_q = 1;
  decode.heads_kv = 64;
  EXPECT_EQ(spec_of(decode).schedule.group, 1);
  decode.heads_q = 48;
  decode.heads_kv = 16;
  EXPECT_EQ(spec_of(decode).schedule.group, 3) << "with a row of zeros";
}

// What an engine sends at a step: a prompt, and many sequences of one query.
TEST(Sm90Plan, PacksHeadsOfPromptsThatHaveDecodingBesideThem) {
  ProblemDesc step = dense(128, 8192, true);
  step.layout_q = Layout::kPacked;
  step.has_seqused_k = true;
  step.heads_q = 64;
  step.heads_kv = 8;
  step.seqlen_q = 2048;
  step.batch = 65;
  step.total_q = 2048 + 64;
  EXPECT_EQ(spec_of(step).schedule.group, 8) << "1576 tiles, not 5248";
  step.batch = 4;
  step.total_q = 4 * 2048;
  EXPECT_EQ(spec_of(step).schedule.group, 1) << "prompts alone fill their tiles";
}

// Where heads have a few tiles and there are many rounds of them, long and short ones are mixed.
TEST(Sm90Plan, HeadsOfFewTilesComeInSmallSections) {
  const auto sections = [](int64_t batch, int64_t seqlen) {
    ProblemDesc d = dense(128, seqlen, true);
    d.batch = batch;
    return spec_of(d).schedule.sections;
  };
  EXPECT_EQ(sections(128, 256), 63) << "2048 heads, 33 at a time: one for every four SMs";
  EXPECT_EQ(sections(64, 512), 32) << "1024 heads, 33 at a time or one less";
  EXPECT_EQ(sections(32, 640), 10) << "512 heads of five tiles, 53 at a time: 264 tiles";
  EXPECT_EQ(sections(32, 256), 4) << "8 rounds at least: 1024 tiles are fewer";
}

TEST(Sm90Plan, MaskedTilesGoLongestFirstAndByACounter) {
  const ForwardPlan causal =
      plan_forward(AttentionProblem::make(dense(128, 8192, true)), h200_spec());
  const TileSchedule& s = std::get<Sm90ForwardSpec>(causal.main).schedule;
  EXPECT_TRUE(s.longest_first);
  EXPECT_EQ(s.source, TileSource::kCounter);
  EXPECT_EQ(s.grid, 132);
  EXPECT_EQ(s.sections, 10) << "64 heads, seven at a time: 301 tiles for 132 SMs";
  EXPECT_EQ(causal.workspace.bytes(), 256u);
  const ForwardPlan full = plan_forward(AttentionProblem::make(dense(128, 8192)), h200_spec());
  EXPECT_EQ(std::get<Sm90ForwardSpec>(full.main).schedule.source, TileSource::kStride);
  EXPECT_EQ(full.workspace.bytes(), 0u);
}

// 2048 causal rows of 16 heads are 256 tiles for 132 SMs.
TEST(Sm90Plan, TwoRoundsOfMaskedTilesNeedNoCounter) {
  ProblemDesc d = dense(128, 2048, true);
  d.batch = 1;
  const ForwardPlan two = plan_forward(AttentionProblem::make(d), h200_spec());
  EXPECT_EQ(std::get<Sm90ForwardSpec>(two.main).schedule.source, TileSource::kThereAndBack);
  EXPECT_EQ(two.workspace.bytes(), 0u);
  d.heads_q = d.heads_kv = 17;
  EXPECT_EQ(spec_of(d).schedule.source, TileSource::kCounter) << "272 tiles";
  d.heads_q = d.heads_kv = 16;
  d.has_seqused_k = true;
  EXPECT_EQ(spec_of(d).schedule.source, TileSource::kCounter) << "the device knows the lengths";
}

ProblemDesc decode(int64_t batch) {
  ProblemDesc d = dense(128, 1024);
  d.batch = batch;  // 8 tiles each
  d.seqlen_q = 1;
  d.heads_q = 64;
  d.heads_kv = 8;
  d.has_seqused_k = true;
  return d;
}

// Whatever lengths the device finds: a memset would cost more than an uneven second round, and so
// would ranking where keys are few.
TEST(Sm90Plan, FewRowsNeedNoCounter) {
  for (const int64_t batch : {24, 25, 33, 34, 128}) {
    const Sm90ForwardSpec spec = spec_of(decode(batch));
    EXPECT_TRUE(sm90::reads_keys_once(spec.traits) && !spec.parts.are_cut()) << batch;
    EXPECT_EQ(spec.schedule.source, TileSource::kByLength) << batch << " sequences";
  }
  for (const int64_t keys : {511, 512}) {
    ProblemDesc few = decode(24);
    few.seqlen_k = keys;
    EXPECT_EQ(spec_of(few).schedule.source,
              keys < 512 ? TileSource::kStride : TileSource::kByLength)
        << keys << " keys";
  }
  ProblemDesc d = decode(34);
  d.has_seqused_k = false;
  d.causal = true;
  d.seqlen_q = 4;
  EXPECT_EQ(spec_of(d).schedule.source, TileSource::kStride) << "all have as many keys";
  EXPECT_EQ(spec_of(decode(129)).schedule.source, TileSource::kCounter) << "too many to rank";
  d = decode(34);
  d.window = {200, 0};
  EXPECT_EQ(spec_of(d).schedule.source, TileSource::kCounter) << "keys begin behind the first";
  d = decode(34);
  d.seqlen_q = 16;
  EXPECT_EQ(spec_of(d).schedule.source, TileSource::kCounter) << "two tiles of a head";
}

TEST(Sm90Plan, PartsOfManyRoundsOrKeysGoByLength) {
  const auto source_of = [](int64_t batch, int64_t split_keys, auto change) {
    ProblemDesc d = decode(batch);
    d.split_keys = split_keys;
    change(&d);
    const Sm90ForwardSpec spec = spec_of(d);
    EXPECT_TRUE(spec.parts.are_cut());
    return spec.schedule.source;
  };
  ProblemDesc ranked = decode(17);
  ranked.split_keys = 512;
  const std::vector<PlanStep> steps =
      explain(plan_forward(AttentionProblem::make(ranked), h200_spec()));
  EXPECT_TRUE(std::any_of(steps.begin(), steps.end(), [](const PlanStep& step) {
    return step.choice == "132 CTAs, parts there and back, longest first";
  }));
  const auto as_it_is = [](ProblemDesc*) {};
  EXPECT_EQ(source_of(16, 512, as_it_is), TileSource::kByLength) << "256 parts of 512 keys";
  EXPECT_EQ(source_of(8, 256, as_it_is), TileSource::kStride) << "256 parts of 256 keys";
  EXPECT_EQ(source_of(17, 512, as_it_is), TileSource::kByLength);
  EXPECT_EQ(source_of(17, 512, [](ProblemDesc* d) { d->has_seqused_k = false; }),
            TileSource::kStride)
      << "all have as many keys";
  EXPECT_EQ(source_of(17, 512,
                      [](ProblemDesc* d) {
                        d->window = {200, 0};
                      }),
            TileSource::kStride)
      << "keys begin behind the first";
  EXPECT_EQ(source_of(17, 512, [](ProblemDesc* d) { d->seqlen_q = 16; }), TileSource::kStride)
      << "two tiles of a head";
}

TEST(Sm90Plan, SmallProblemsLaunchAsManyBlocksAsTiles) {
  ProblemDesc d = dense(128, 100);
  d.batch = 1;
  EXPECT_EQ(spec_of(d).schedule.grid, 16);
  EXPECT_EQ(spec_of(d).schedule.source, TileSource::kStride);
}

}  // namespace
}  // namespace fa4::internal
