#include "plan/sm100_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "core/error.h"
#include "plan/gpu_plan.h"
#include "plan/sm100_tuning.h"
#include "problems.h"
#include "verify/rounding.h"

namespace fa4::internal {
namespace {

const DeviceSpec& b200() {
  static const DeviceSpec spec = emulated_specs().back();
  return spec;
}

ForwardPlan plan_of(const ProblemDesc& desc, const DeviceSpec& device = b200()) {
  return plan_forward(AttentionProblem::make(desc), device);
}

Sm100ForwardSpec spec_of(const ProblemDesc& desc, const DeviceSpec& device = b200()) {
  return std::get<Sm100ForwardSpec>(plan_of(desc, device).main);
}

std::string refusal(const ProblemDesc& desc) {
  return query_support(AttentionProblem::make(desc), b200()).reason;
}

// Every variant that is built for either architecture.
std::vector<sm100::FwdTraits> all_variants() {
  std::vector<sm100::FwdTraits> variants;
  for (const char* architecture : {"sm_100a", "sm_103a"}) {
    for (const Sm100TuningRow& row : sm100_tuning_rows()) {
      for (const Element element : {Element::kBF16, Element::kF16}) {
        for (const bool softcap : {false, true}) {
          variants.push_back(traits_of(row, architecture, element, softcap));
        }
      }
    }
    for (const Sm100PartRow& row : sm100_part_rows()) {
      for (const bool softcap : {false, true}) {
        variants.push_back(traits_of(row, architecture, Element::kBF16, softcap));
      }
    }
  }
  return variants;
}

TEST(Sm100Tuning, EveryVariantCanBeBuilt) {
  for (const sm100::FwdTraits& t : all_variants()) {
    const char* reason = sm100::why_not(t);
    EXPECT_EQ(reason, nullptr) << "head_dim " << t.head_dim << ": " << reason;
  }
  for (const Sm100TuningRow& row : sm100_tuning_rows()) EXPECT_STRNE(row.reason, "");
  for (const Sm100PartRow& row : sm100_part_rows()) EXPECT_STRNE(row.reason, "");
  for (const Sm100ExponentialRow& row : sm100_exponential_rows()) EXPECT_STRNE(row.reason, "");
}

TEST(Sm100Tuning, AVariantThatDoesNotFitIsNamed) {
  EXPECT_STREQ(sm100::why_not({.kv_stages = 4}), "shared memory exceeds 227 KiB");
  EXPECT_STREQ(sm100::why_not({.head_dim = 64}),
               "head_dim is at most 256, head_dim_v at most head_dim");
  EXPECT_STREQ(sm100::why_not({.head_dim = 256, .head_dim_v = 256}),
               "tensor memory exceeds 512 columns");
  EXPECT_STREQ(sm100::why_not({.head_dim = 64, .head_dim_v = 64, .cta_group = 2}),
               "a pair of CTAs shares V, whose columns are a multiple of 64, 128 or more");
  const auto* const not_growing = "p_parts end at multiples of 32 that grow";
  EXPECT_STREQ(sm100::why_not({.p_parts = {{48, 128}}}), not_growing);
  EXPECT_STREQ(sm100::why_not({.p_parts = {{64, 32, 128}}}), not_growing);
  EXPECT_STREQ(sm100::why_not({.p_parts = {{64, 128, 160}}}), not_growing);
  EXPECT_STREQ(sm100::why_not({.p_parts = {{64}}}), not_growing);
  EXPECT_STREQ(sm100::why_not({.p_parts = {{64, 96}}}), "the last of p_parts ends at 128");
  EXPECT_STREQ(sm100::why_not({.polynomial_pairs = 33}), "polynomial_pairs is 0 to 32");
  EXPECT_STREQ(sm100::why_not({.softmax_registers = 208}),
               "registers come in eights and leave at least 24 for the other warps");
}

TEST(Sm100Tuning, PagesThatTheKernelDoesNotLoadAreRefused) {
  for (const Pages pages : {Pages::kNone, Pages::kBoxes, Pages::kRows, Pages::kGathers}) {
    EXPECT_EQ(sm100::why_not({.pages = pages}), nullptr) << sm100::why_not({.pages = pages});
  }
  EXPECT_STREQ(sm100::why_not({.pages = Pages::kGroups}), "a box of pages is of one slab");
}

// A stale maximum lets a probability grow to 2^threshold; what why_not compares it with is no more
// than the type holds.
TEST(Sm100Tuning, AProbabilityAboveAStaleMaximumFitsTheType) {
  for (const auto& [element, dtype] :
       {std::pair{Element::kBF16, DType::kBF16}, {Element::kF16, DType::kF16}}) {
    const float largest = std::log2(format_of(dtype).largest);
    EXPECT_LE(sm100::log2_largest(element), largest);
    EXPECT_GT(sm100::log2_largest(element), largest - 0.5f);
    EXPECT_GT(largest, kRescaleThreshold);
  }
}

TEST(Sm100Tuning, NoStageOfKeysAndValuesIsLeftOut) {
  for (sm100::FwdTraits t : all_variants()) {
    ++t.kv_stages;
    EXPECT_GT(sm100::smem_layout(t).total, kMaxSmemBytes)
        << "head_dim " << t.head_dim << ", q_tiles " << t.q_tiles;
  }
}

TEST(Sm100Tuning, EveryHeadDimHasAKernelThatHoldsIt) {
  for (int64_t d = 8; d <= 256; d += 8) {
    for (int64_t dv = 8; dv <= 256; dv += 8) {
      for (const int64_t rows : {1, 128, 129, 256, 257, 1 << 20}) {
        for (const bool uniform : {false, true}) {
          const Sm100TuningRow* row = find_sm100_tuning(d, dv, rows, uniform);
          ASSERT_NE(row, nullptr) << d << " " << dv;
          EXPECT_GE(row->head_dim, d);
          EXPECT_GE(row->head_dim_v, dv);
          const bool is_large = d > 192 || dv > 128;  // whose output is half of tensor memory
          EXPECT_EQ(row->q_tiles, is_large || (rows <= 128 && d <= 128) ? 1 : 2);
          const bool pair = uniform && std::max(d, dv) > 96 && rows > (is_large ? 128 : 256);
          EXPECT_EQ(row->cta_group, pair ? 2 : 1) << d << " " << dv << " " << rows;
        }
      }
    }
  }
}

// A decode row then has the bits of the same row of a prefill.
TEST(Sm100Tuning, ThePolynomialsShareDependsOnHeadDimTypeAndArchitectureOnly) {
  for (const int64_t head_dim : {64, 96, 128, 192, 256}) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      for (const char* architecture : {"sm_100a", "sm_103a"}) {
        DeviceSpec device = b200();
        device.architecture = architecture;
        std::set<std::tuple<int, int, std::string>> shares;
        for (const int64_t seqlen_q : {1, 64, 128, 129, 5000}) {
          for (const bool causal : {false, true}) {
            for (const int64_t heads_kv : {1, 8, 16}) {
              for (const float softcap : {0.0f, 20.0f}) {
                ProblemDesc d = dense(head_dim, 5000, causal);
                if (head_dim <= 192) d.head_dim_v = std::min<int64_t>(head_dim, 128);
                d.dtype = dtype;
                d.seqlen_q = seqlen_q;
                d.heads_kv = heads_kv;
                d.softcap = softcap;
                const sm100::FwdTraits t = spec_of(d, device).traits;
                std::string columns;
                for (int pair = 0; pair < sm100::kTileN / 2; ++pair) {
                  columns += sm100::is_polynomial(t, pair) ? '1' : '0';
                }
                shares.emplace(t.polynomial_pairs, t.polynomial_degree, columns);
              }
            }
          }
        }
        EXPECT_EQ(shares.size(), 1u) << head_dim << " " << architecture;
      }
    }
  }
}

TEST(Sm100Tuning, AnExponentialUnitThatKeepsUpNeedsNoPolynomial) {
  for (const Sm100ExponentialRow& row : sm100_exponential_rows()) {
    const bool keeps_up = std::string(row.architecture) == "sm_103a" || row.head_dim == 256;
    EXPECT_EQ(row.polynomial_pairs == 0, keeps_up) << row.architecture << " " << row.head_dim;
  }
}

TEST(Sm100Traits, FitSharedMemoryTensorMemoryAndRegisters) {
  for (const sm100::FwdTraits& t : all_variants()) {
    EXPECT_LE(sm100::smem_layout(t).total, static_cast<int>(b200().smem_per_block_bytes));
    EXPECT_LE(sm100::tmem_layout(t).total, 512);
    const sm100::RegisterSplit r = sm100::register_split(t);
    EXPECT_LE(128 * (2 * r.softmax + r.correction + r.other), 65536);
    for (const int registers : {r.softmax, r.correction, r.other}) {
      EXPECT_EQ(registers % 8, 0);
      EXPECT_GE(registers, 24);
      EXPECT_LE(registers, 256);
    }
  }
}

TEST(Sm100Traits, RegionsFollowEachOtherAndAreAligned) {
  for (const sm100::FwdTraits& t : all_variants()) {
    const sm100::SmemLayout s = sm100::smem_layout(t);
    EXPECT_EQ(s.q, 0);
    const bool shared = sm100::out_takes_q(t);
    EXPECT_EQ(s.out, shared ? 0 : t.q_tiles * 128 * t.head_dim * 2);
    const int out_width = shared ? t.head_dim : t.head_dim_v;
    EXPECT_EQ(s.kv - s.out, t.parts ? 0 : t.q_tiles * 128 * out_width * 2);
    EXPECT_EQ(s.factors - s.kv, sm100::kv_bytes(t));
    EXPECT_EQ(s.out % 1024, 0) << "TMA's 128-byte swizzle repeats every 1024 bytes";
    EXPECT_EQ(s.kv % 1024, 0);
    EXPECT_EQ(s.barriers % 8, 0);
    EXPECT_EQ(s.tmem % 4, 0);
    EXPECT_EQ(s.tmem - s.barriers, 8 * sm100::barriers(t).count());
    const sm100::TmemLayout m = sm100::tmem_layout(t);
    std::vector<std::pair<int, int>> regions;  // first column, one past the last
    for (int i = 0; i < t.q_tiles; ++i) {
      regions.emplace_back(m.s[i], m.s[i] + 128);
      EXPECT_EQ(m.p[i], m.s[i] + (t.p_apart ? 128 : 0));
      if (t.p_apart) regions.emplace_back(m.p[i], m.p[i] + 64);
      regions.emplace_back(m.o[i], m.o[i] + t.head_dim_v);
    }
    std::sort(regions.begin(), regions.end());
    for (size_t i = 1; i < regions.size(); ++i) {
      EXPECT_LE(regions[i - 1].second, regions[i].first);
    }
  }
}

// K and V alternate through the ring: a block never lies over one that may still be there.
TEST(Sm100Traits, BlocksOfTheRingDoNotOverlap) {
  for (const sm100::FwdTraits& t : all_variants()) {
    for (int block = 0; block < 4 * t.kv_stages; ++block) {
      const auto range = [&](int index) {
        const bool holds_k = index % 2 == 0;
        const int at = sm100::kv_offset(t, index % t.kv_stages, holds_k);
        return std::pair(at, at + (holds_k ? sm100::k_bytes(t) : sm100::v_bytes(t)));
      };
      EXPECT_EQ(range(block).first % 1024, 0);
      EXPECT_LE(range(block).second, sm100::kv_bytes(t));
      // K at the first of three uneven stages waits for one block more.
      const int freed = sm100::is_uneven(t) && block % 6 == 0 ? 2 : 1;
      for (int before = std::max(0, block - t.kv_stages + freed); before < block; ++before) {
        const bool apart = range(before).second <= range(block).first ||
                           range(block).second <= range(before).first;
        EXPECT_TRUE(apart) << "blocks " << before << " and " << block << " of " << t.kv_stages;
      }
    }
  }
}

TEST(Sm100Traits, EveryBarrierHasArriversAndWaiters) {
  for (const sm100::FwdTraits& t : all_variants()) {
    for (const BarrierRow& barrier : sm100::barriers(t).rows) {
      EXPECT_STRNE(barrier.name, "");
      EXPECT_GT(barrier.arrivals, 0) << barrier.name;
      const bool of_p_apart = std::set<std::string>{"s_free", "p_free"}.contains(barrier.name);
      const bool of_three_parts = std::string(barrier.name) == "p_next";
      const bool of_out = std::set<std::string>{"out_full", "out_empty"}.contains(barrier.name);
      const bool is_used = of_p_apart       ? t.p_apart
                           : of_three_parts ? t.p_parts.count() == 3
                                            : !of_out || !t.parts;
      EXPECT_EQ(barrier.stages > 0, is_used) << barrier.name;
      EXPECT_STRNE(barrier.arrives, "") << barrier.name;
      EXPECT_STRNE(barrier.waits, "") << barrier.name;
    }
  }
}

TEST(Sm100Traits, PHasColumnsOfItsOwnWhereTensorMemoryHoldsThem) {
  sm100::FwdTraits t{.head_dim = 64, .head_dim_v = 64, .kv_stages = 10, .p_apart = true};
  EXPECT_EQ(sm100::why_not(t), nullptr);
  EXPECT_EQ(sm100::tmem_layout(t).total, 512);
  t.head_dim = t.head_dim_v = 96;
  t.kv_stages = 5;
  EXPECT_STREQ(sm100::why_not(t), "tensor memory exceeds 512 columns");
  t = {.head_dim = 256, .head_dim_v = 256, .q_tiles = 1, .kv_stages = 2, .p_apart = true};
  EXPECT_EQ(sm100::why_not(t), nullptr);
  EXPECT_EQ(sm100::tmem_layout(t).total, 448);
  EXPECT_TRUE(sm100::out_takes_q(t));
}

TEST(Sm100Spec, PrintsEveryMemberOfItsTraits) {
  const KernelSource source = spec_of(dense(128, 4096, true)).source();
  EXPECT_EQ(source.main_file, "sm100/forward/kernel.cuh");
  EXPECT_EQ(source.display_name, "fwd_sm100_bf16_d128_q2_poly20");
  EXPECT_TRUE(source.name_expression.starts_with(
      "fa4::fwd_sm100<fa4::sm100::FwdTraits{.element=fa4::Element::kBF16, .head_dim=128, "
      ".head_dim_v=128, .q_tiles=2, "))
      << source.name_expression;
  EXPECT_TRUE(source.name_expression.ends_with(
      ", .softcap=false, .pages=fa4::Pages::kNone, .parts=false, .out_f32=false}>"))
      << source.name_expression;
}

TEST(Sm100Spec, PrebuiltKernelsHoldEveryPlannedOneOnce) {
  for (const char* architecture : {"sm_100a", "sm_103a"}) {
    DeviceSpec device = b200();
    device.architecture = architecture;
    std::set<std::string> names, expressions, forward, planned;
    for (const PrebuiltKernel& k : prebuilt_kernels(architecture)) {
      EXPECT_TRUE(names.insert(k.source.display_name).second) << k.source.display_name;
      EXPECT_TRUE(expressions.insert(k.source.name_expression).second) << k.source.display_name;
      if (k.source.main_file == "sm100/forward/kernel.cuh") {
        forward.insert(k.source.name_expression);
      }
    }
    for (int64_t head_dim = 8; head_dim <= 256; head_dim += 8) {
      for (const DType dtype : {DType::kBF16, DType::kF16}) {
        for (const float softcap : {0.0f, 30.0f}) {
          for (const int64_t seqlen : {1, 512, 32768}) {
            for (const bool causal : {false, true}) {
              ProblemDesc d = dense(head_dim, seqlen, causal);
              if (head_dim <= 192) d.head_dim_v = std::min<int64_t>(head_dim, 128);
              d.dtype = dtype;
              d.softcap = softcap;
              for (const DType out_dtype : {dtype, DType::kF32}) {
                for (const int num_splits : {1, 2}) {
                  // Compiled on first use.
                  if (softcap > 0 && (num_splits > 1 || out_dtype != dtype)) continue;
                  d.out_dtype = out_dtype;
                  d.num_splits = num_splits;
                  planned.insert(spec_of(d, device).source().name_expression);
                  if (softcap > 0 || spec_of(d, device).traits.out_f32) continue;
                  planned.insert(spec_of(in_pages(d), device).source().name_expression);
                }
              }
            }
          }
        }
      }
    }
    EXPECT_EQ(planned, forward) << architecture;
  }
}

TEST(Sm100Plan, ShortQueriesUseOneTile) {
  ProblemDesc decode = dense(128);
  decode.seqlen_q = 1;
  decode.heads_q = 64;
  decode.heads_kv = 8;
  Sm100ForwardSpec spec = spec_of(decode);
  EXPECT_EQ(spec.traits.q_tiles, 1);
  EXPECT_EQ(spec.schedule.group, 8);
  EXPECT_TRUE(spec.parts.are_cut());
  decode.num_splits = 1;
  spec = spec_of(decode);
  EXPECT_EQ(spec.traits.q_tiles, 1);
  EXPECT_EQ(spec.schedule.group, 8);
  EXPECT_EQ(spec.schedule.grid, 4 * 8);
  decode.seqlen_q = 16;
  EXPECT_EQ(spec_of(decode).traits.q_tiles, 1) << "128 rows with the packed heads";
  decode.seqlen_q = 17;
  spec = spec_of(decode);
  EXPECT_EQ(spec.traits.q_tiles, 2);
  EXPECT_EQ(spec.schedule.group, 8) << "fewer tiles than head by head";
  decode.seqlen_q = 4096;
  EXPECT_EQ(spec_of(decode).schedule.group, 1) << "full tiles gain nothing";
}

TEST(Sm100Plan, PairsOfCtasTakeUniformProblems) {
  Sm100ForwardSpec spec = spec_of(dense(128, 4096));
  EXPECT_EQ(spec.traits.cta_group, 2);
  EXPECT_EQ(spec.shape().cluster, 2);
  EXPECT_EQ(spec.shape().tile_m, 512);
  EXPECT_EQ(spec.shape().k_rows, 64);
  EXPECT_EQ(spec.shape().v_columns, 64);
  EXPECT_EQ(spec.schedule.grid, 148);
  EXPECT_EQ(spec.source().display_name, "fwd_sm100_bf16_d128_q2_pair_poly20");
  DeviceSpec odd = b200();
  odd.num_sms = 147;
  EXPECT_EQ(spec_of(dense(128, 4096), odd).schedule.grid, 146);
  ProblemDesc small = dense(128, 600);
  small.batch = small.heads_q = small.heads_kv = 1;
  EXPECT_EQ(spec_of(small).schedule.grid, 4) << "two tiles of 512 rows";
  EXPECT_EQ(spec_of(dense(128, 256)).traits.cta_group, 1) << "the second CTA would have no rows";
  EXPECT_EQ(spec_of(dense(128, 4096, true)).traits.cta_group, 1) << "tiles differ in length";
  ProblemDesc used = dense(128, 4096);
  used.has_seqused_k = true;
  EXPECT_EQ(spec_of(used).traits.cta_group, 1);
}

TEST(Sm100Plan, PacksGroupsOfUpTo128Heads) {
  ProblemDesc d = dense(64);
  d.seqlen_q = 1;
  d.heads_kv = 1;
  for (const int64_t heads : {2, 3, 7, 16, 48, 64, 96, 128}) {
    d.heads_q = heads;
    EXPECT_EQ(spec_of(d).schedule.group, heads);
  }
  for (const int64_t heads : {129, 256}) {
    d.heads_q = heads;
    EXPECT_EQ(spec_of(d).schedule.group, 1) << heads;
  }
}

TEST(Sm100Plan, MaskedTilesGoLongestFirstAndByLaunchControl) {
  const ForwardPlan causal = plan_of(dense(128, 8192, true));
  const TileSchedule& s = std::get<Sm100ForwardSpec>(causal.main).schedule;
  EXPECT_TRUE(s.longest_first);
  EXPECT_EQ(s.source, TileSource::kLaunchControl);
  EXPECT_EQ(s.grid, 4 * 16 * 32) << "a block for each tile of 256 rows";
  EXPECT_EQ(s.sections, 7) << "64 heads, ten at a time: 320 tiles for 148 SMs";
  EXPECT_EQ(causal.workspace.bytes(), 0u);
  ProblemDesc few = dense(128, 1024, true);
  few.batch = 1;
  EXPECT_EQ(spec_of(few).schedule.source, TileSource::kStride) << "one round";
}

TEST(Sm100Plan, PackedSequencesGoByACounter) {
  ProblemDesc d = dense(128, 8192);
  d.layout_q = d.layout_kv = Layout::kPacked;
  d.total_q = d.total_k = 4 * 8192;
  const ForwardPlan plan = plan_of(d);
  EXPECT_EQ(std::get<Sm100ForwardSpec>(plan.main).schedule.source, TileSource::kCounter);
  EXPECT_EQ(plan.workspace.bytes(), 256u);
}

// Rows of pages of any size are gathered where all begin at multiples of a distance that is no less
// than a row.
TEST(Sm100Plan, RowsOfPagesAreGatheredWhereTheyAreRowsOfAMatrix) {
  constexpr int64_t kPage = 5, kRow = 16 * 128, kPages = 1000;
  const auto spec = [&](const Strides& strides) {
    ProblemDesc d = dense(128);
    d.layout_kv = Layout::kPaged;
    d.page_size = kPage;
    d.num_pages = kPages;
    d.pages_per_seq = d.seqlen_k;
    d.has_seqused_k = true;
    d.k = d.v = strides;
    return d;
  };
  const struct {
    const char* what;
    Strides strides;
    Pages pages;
    int64_t unit, count;
  } cases[] = {
      {"rows before heads", {kPage * kRow, kRow, 128}, Pages::kGathers, 128, kPages * kPage * 16},
      {"heads before rows",
       {kPage * kRow, 128, kPage * 128},
       Pages::kGathers,
       128,
       kPages * kPage * 16},
      {"K and V in one",
       {2 * kPage * kRow, kRow, 128},
       Pages::kGathers,
       128,
       (2 * (kPages - 1) + 1) * kPage * 16},
      {"columns between heads",
       {kPage * 16 * 192, 16 * 192, 192},
       Pages::kGathers,
       192,
       kPages * kPage * 16},
      {"all heads the same", {kPage * 256, 256, 0}, Pages::kGathers, 256, kPages * kPage},
      {"pages a little apart", {kPage * kRow + 8, kRow, 128}, Pages::kRows, 0, 0},
      {"more than TMA counts", {int64_t{1} << 30, kRow, 128}, Pages::kRows, 0, 0},
  };
  for (const auto& [what, strides, pages, unit, count] : cases) {
    const AttentionProblem p = AttentionProblem::make(spec(strides));
    EXPECT_EQ(spec_of(p).traits.pages, pages) << what;
    const std::optional<GatheredRows> rows = gathered_rows(p, p.k, p.head_dim);
    EXPECT_EQ(rows.has_value(), pages == Pages::kGathers) << what;
    if (!rows) continue;
    EXPECT_EQ(rows->unit, unit) << what;
    EXPECT_EQ(rows->count, count) << what;
  }
  ProblemDesc d = spec({});
  d.page_size = 16;
  EXPECT_EQ(spec_of(d).traits.pages, Pages::kBoxes);
}

TEST(Sm100Plan, ATileSourceIsForcedWhereItCanBe) {
  const auto source = [](const ProblemDesc& d, TileSource forced) {
    const ForwardPlan plan =
        plan_forward(AttentionProblem::make(d), b200(), {.tile_source = forced});
    return std::get<Sm100ForwardSpec>(plan.main).schedule.source;
  };
  ProblemDesc packed = dense(64, 300, true);
  packed.layout_q = packed.layout_kv = Layout::kPacked;
  packed.total_q = packed.total_k = 4 * 300;
  for (const TileSource s :
       {TileSource::kStride, TileSource::kCounter, TileSource::kLaunchControl}) {
    EXPECT_EQ(source(dense(64, 300, true), s), s);
    EXPECT_EQ(source(dense(128, 4096), s), TileSource::kStride) << "a pair of CTAs";
    const bool can = s != TileSource::kLaunchControl;
    EXPECT_EQ(source(packed, s), can ? s : TileSource::kStride);
  }
}

TEST(Sm100Plan, ExplainsEachDecision) {
  std::set<std::string> what;
  for (const PlanStep& step : explain(plan_of(dense(96, 1000, true)))) {
    what.insert(step.what);
    EXPECT_NE(step.choice, "") << step.what;
    EXPECT_NE(step.why, "") << step.what;
  }
  for (const char* step :
       {"kernel", "head_dim", "tile", "cta_group", "exponentials", "warps", "shared memory",
        "tensor memory", "pack_gqa", "order", "schedule", "workspace"}) {
    EXPECT_TRUE(what.contains(step)) << step;
  }
}

TEST(Sm100Support, NamesWhatIsWrong) {
  ProblemDesc d = dense(128);
  d.dtype = DType::kF32;
  EXPECT_EQ(refusal(d), "dtype f32; accepted on a GPU: bf16, f16");
  d = dense(128);
  d.layout_kv = Layout::kPaged;
  d.page_size = 128;
  d.pages_per_seq = 32;
  d.num_pages = 128;
  d.has_seqused_k = true;
  EXPECT_TRUE(refusal(d).empty());
  d = dense(128);
  d.v = {.batch = 4096 * 16 * 132, .seqlen = 16 * 132, .head = 132};
  EXPECT_EQ(refusal(d),
            "head stride 132 of v is 264 bytes; accepted on a GPU: multiples of 16 bytes from 0 "
            "to 2^40");
  EXPECT_THROW(plan_of(d), Error);
  EXPECT_TRUE(refusal(dense(128)).empty());
}

TEST(Sm100Support, TakesEveryHeadDim) {
  for (int64_t head_dim = 8; head_dim <= 256; head_dim += 8) {
    for (const int64_t head_dim_v : {8, 64, 128, 136, 256}) {
      ProblemDesc d = dense(head_dim);
      d.head_dim_v = head_dim_v;
      EXPECT_TRUE(refusal(d).empty()) << head_dim << ", " << head_dim_v;
    }
  }
}

}  // namespace
}  // namespace fa4::internal
