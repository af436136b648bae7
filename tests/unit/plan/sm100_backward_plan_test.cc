#include "plan/sm100_backward_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "kernels/sm100/backward/layout.h"
#include "plan/backward_plan.h"
#include "plan/sm100_backward_tuning.h"
#include "problems.h"

namespace fa4::internal {
namespace {

using sm100::BwdTraits;
namespace bwd = sm100::bwd;

std::vector<BwdTraits> all_variants() {
  std::vector<BwdTraits> variants;
  for (const Sm100BackwardRow& row : sm100_backward_rows()) {
    for (const Element element : {Element::kBF16, Element::kF16}) {
      for (const bool softcap : {false, true}) {
        variants.push_back(traits_of(row, element, softcap));
      }
    }
  }
  return variants;
}

std::string refusal(const ProblemDesc& desc) {
  return query_backward_support(AttentionProblem::make(desc), emulated_specs().back()).reason;
}

struct Range {
  const char* name;
  int begin;
  int size;
};
// Not one of the ranges reaches into another one, or past `end`.
void expect_apart(std::vector<Range> ranges, int end) {
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  for (size_t i = 0; i < ranges.size(); ++i) {
    const int next = i + 1 < ranges.size() ? ranges[i + 1].begin : end;
    EXPECT_LE(ranges[i].begin + ranges[i].size, next) << ranges[i].name;
  }
}

TEST(Sm100Backward, EveryRowCanBeBuilt) {
  for (const BwdTraits& t : all_variants()) {
    const char* reason = bwd::why_not(t);
    EXPECT_EQ(reason, nullptr) << "head_dim " << t.head_dim << ": " << reason;
  }
  for (const Sm100BackwardRow& row : sm100_backward_rows()) EXPECT_STRNE(row.reason, "");
}

TEST(Sm100Backward, AVariantThatDoesNotFitIsNamed) {
  EXPECT_STREQ(bwd::why_not({.q_stages = 3}), "shared memory exceeds 227 KiB");
  EXPECT_STREQ(bwd::why_not({.apart = true}), "tensor memory exceeds 512 columns");
  EXPECT_STREQ(bwd::why_not({.head_dim = 72}), "head dims are multiples of 32 from 64 to 256");
  EXPECT_STREQ(bwd::why_not({.head_dim = 192}),
               "one CTA takes head dims that are multiples of 64 and fit tensor memory together");
  EXPECT_STREQ(bwd::why_not({.head_dim = 96, .head_dim_v = 96}),
               "one CTA takes head dims that are multiples of 64 and fit tensor memory together");
  EXPECT_STREQ(bwd::why_not({.head_dim = 192, .cta_group = 2}),
               "Q that is loaded twice into one place has one stage");
  EXPECT_STREQ(bwd::why_not({.cta_group = 3}), "cta_group is 1 or 2");
  EXPECT_STREQ(bwd::why_not({.dv_stages = 2}), "no works for dv alone");
  EXPECT_STREQ(bwd::why_not({.q_stages = 1}),
               "S of the next block is multiplied before dK of this one");
  EXPECT_STREQ(bwd::why_not({.dout_stages = 0}), "Q and dO need a stage");
  EXPECT_STREQ(bwd::why_not({.compute_registers = 176}),
               "registers come in eights and leave at least 24 for the other warps");
}

TEST(Sm100Backward, WorksThatAreSplitSayWhatDoesNotFit) {
  const BwdTraits fits{.head_dim = 256,
                       .head_dim_v = 256,
                       .q_stages = 1,
                       .dv_stages = 2,
                       .apart = true,
                       .split = true};
  EXPECT_EQ(bwd::why_not(fits), nullptr);
  const auto why_not = [&](auto change) {
    BwdTraits t = fits;
    change(t);
    return std::string(bwd::why_not(t));
  };
  const std::string where = "where dk and dv are split, ";
  EXPECT_EQ(why_not([](BwdTraits& t) { t.cta_group = 2; }), where + "one CTA, P and dQ apart");
  EXPECT_EQ(why_not([](BwdTraits& t) { t.apart = false; }), where + "one CTA, P and dQ apart");
  EXPECT_EQ(why_not([](BwdTraits& t) { t.head_dim = 192; }), where + "head_dim a multiple of 128");
  for (const auto& stages : {&BwdTraits::q_stages, &BwdTraits::dout_stages}) {
    EXPECT_EQ(why_not([&](BwdTraits& t) { t.*stages = 2; }),
              where + "Q and dO have one stage, and two or more in works for dv");
  }
  EXPECT_EQ(why_not([](BwdTraits& t) { t.dv_stages = 3; }),
            "the stages of works for dv do not fit");
}

TEST(Sm100Backward, EveryHeadDimHasAKernelThatHoldsIt) {
  for (int64_t d = 8; d <= 256; d += 8) {
    for (int64_t dv = 8; dv <= 256; dv += 8) {
      for (const int64_t keys : {0, 128, 129, 5000}) {
        const Sm100BackwardRow* row = find_sm100_backward(d, dv, keys);
        ASSERT_NE(row, nullptr) << d << " " << dv;
        EXPECT_GE(row->head_dim, d);
        EXPECT_GE(row->head_dim_v, dv);
        const bool is_split = d > 192 || dv > 128;
        EXPECT_EQ(row->dv_stages > 0, is_split);
        EXPECT_EQ(row->cta_group, !is_split && (keys > 128 || d > 128) ? 2 : 1);
      }
    }
  }
  EXPECT_EQ(find_sm100_backward(96, 96, 1000)->head_dim, 96);
}

TEST(Sm100Backward, PlacesInSharedMemoryAreApartAndAligned) {
  for (const BwdTraits& t : all_variants()) {
    const bwd::SmemLayout s = bwd::smem_layout(t);
    std::vector<Range> ranges = {{"k", s.k, bwd::k_bytes(t)},
                                 {"v", s.v, bwd::v_bytes(t)},
                                 {"q", s.q, t.q_stages * bwd::q_bytes(t)},
                                 {"dout", s.dout, t.dout_stages * bwd::dout_bytes(t)},
                                 {"ds", s.ds, bwd::ds_bytes(t)},
                                 {"minus_ones", s.minus_ones, bwd::kMinusOnesBytes},
                                 {"delta", s.delta, bwd::terms_bytes(t)},
                                 {"stats", s.stats, 2 * bwd::kStatStages * bwd::stat_bytes(t)},
                                 {"work", s.work, bwd::kWorkBytes},
                                 {"barriers", s.barriers, 8 * bwd::barriers(t).count()},
                                 {"tmem", s.tmem, 4}};
    for (const int tile : {s.k, s.v, s.q, s.dout, s.ds, s.k_sum, s.q_sum, s.dout_sum}) {
      EXPECT_EQ(tile % 1024, 0);
    }
    if (!t.softcap) ranges.push_back({"lse", s.lse, bwd::terms_bytes(t)});
    if (t.cta_group > 1) {
      ranges.push_back({"k_sum", s.k_sum, bwd::k_sum_bytes(t)});
      ranges.push_back({"dout_sum", s.dout_sum, t.sum_stages * bwd::dout_sum_bytes(t)});
      if (bwd::q_twice(t)) {
        EXPECT_EQ(s.q_sum, s.q);
        EXPECT_LE(bwd::q_sum_bytes(t), bwd::q_bytes(t));
      } else {
        ranges.push_back({"q_sum", s.q_sum, t.sum_stages * bwd::q_sum_bytes(t)});
      }
    }
    expect_apart(ranges, s.total);
    EXPECT_EQ(s.barriers % 8, 0);
  }
}

// What works for dv alone have, and what lies in one place in all works of a kernel.
TEST(Sm100Backward, PlacesOfWorksForDvAlone) {
  int kernels = 0;
  for (const BwdTraits& t : all_variants()) {
    if (!t.split) continue;
    ++kernels;
    const bwd::SmemLayout dv = bwd::smem_layout(t, WorkKind::kDv), dk = bwd::smem_layout(t);
    expect_apart({{"k", dv.k, bwd::k_bytes(t)},
                  {"q", dv.q, t.dv_stages * bwd::q_bytes(t)},
                  {"dout", dv.dout, t.dv_stages * bwd::dout_bytes(t)}},
                 dv.minus_ones);
    for (const int tile : {dv.q, dv.dout}) EXPECT_EQ(tile % 1024, 0);
    EXPECT_EQ(dv.minus_ones, dk.minus_ones);
    EXPECT_EQ(dv.lse, dk.lse);
    EXPECT_EQ(dv.stats, dk.stats);
    EXPECT_EQ(dv.work, dk.work);
    EXPECT_EQ(dv.barriers, dk.barriers);
    EXPECT_EQ(dv.total, dk.total);
    EXPECT_EQ(dv.dout_sum, dv.dout);
    EXPECT_EQ(dk.q_sum, dk.q);
    EXPECT_GE(bwd::barriers(t).rows[bwd::kQFull].stages, t.dv_stages);
  }
  EXPECT_GT(kernels, 0);
}

// What may not share columns at any time; P lies over S, dS over dP, and dQ over one of them where
// it is not apart.
TEST(Sm100Backward, ColumnsOfTensorMemory) {
  for (const BwdTraits& t : all_variants()) {
    const bwd::TmemLayout m = bwd::tmem_layout(t);
    const int rows = bwd::block_rows(t), own = bwd::own_rows(t);
    std::vector<Range> ranges = {{"dk", m.dk, t.head_dim}, {"dp", m.dp, rows}};
    ranges.push_back({"s", m.s, bwd::in_turn(t) ? own : rows});
    if (!t.split) ranges.push_back({"dv", m.dv, t.head_dim_v});
    const int p_end = m.p + m.p_stride + own / 2;
    if (t.split) {
      ranges.push_back({"dq", m.dq, bwd::dq_products(t) * rows});
      expect_apart({{"s", m.s, rows}, {"p", m.p, p_end - m.p}, {"dv", m.dv, t.head_dim_v}},
                   m.total);
    } else if (bwd::in_turn(t)) {
      EXPECT_EQ(p_end, m.dp);
      EXPECT_GE(m.dq, m.s);
      EXPECT_EQ(m.dq + bwd::dk_columns(t), m.dv);
    } else if (t.apart) {
      ranges.push_back({"dq", m.dq, bwd::dk_columns(t)});
      ranges.push_back({"p", m.p, p_end - m.p});
    } else if (bwd::dq_over_s(t)) {
      EXPECT_GE(m.dq, p_end);
      EXPECT_LE(m.dq + bwd::dk_columns(t), m.s + rows);
    } else {
      EXPECT_EQ(m.dq, m.dp);
      EXPECT_LE(bwd::dk_columns(t), rows);
      EXPECT_LE(p_end, m.s + rows);
    }
    expect_apart(ranges, m.total);
    EXPECT_LE(m.total, bwd::kTmemColumns);
  }
}

TEST(Sm100Backward, EveryBarrierHasWhoArrivesAndWhoWaits) {
  for (const BwdTraits& t : all_variants()) {
    const std::set<std::string> of_pairs = {"k_sum_full",    "q_sum_full",     "q_sum_empty",
                                            "dout_sum_full", "dout_sum_empty", "ds_peer",
                                            "ds_relayed"};
    for (const BarrierRow& barrier : bwd::barriers(t).rows) {
      const std::string name = barrier.name;
      const bool is_used = of_pairs.contains(name) ? t.cta_group > 1
                           : name == "lse_full"    ? bwd::takes_lse_off(t)
                           : name == "p_free"      ? t.apart
                           : name == "ds_free"     ? bwd::dq_over_s(t)
                           : name == "s_free"      ? t.apart || bwd::splits_s(t)
                                                   : true;
      EXPECT_EQ(barrier.stages > 0, is_used) << name;
      EXPECT_GT(barrier.arrivals, 0) << name;
      EXPECT_STRNE(barrier.arrives, "") << name;
      EXPECT_STRNE(barrier.waits, "") << name;
    }
  }
}

TEST(Sm100Backward, IsThreeLaunchesWithoutAFill) {
  ProblemDesc desc = dense(128, 1000, true);
  desc.batch = 16;
  desc.heads_kv = 8;
  const BackwardPlan plan = plan_backward(AttentionProblem::make(desc), emulated_specs().back());
  ASSERT_EQ(plan.steps.size(), 3u);
  EXPECT_EQ(plan.steps[kPreprocess].grid, 16 * 16 * 16);
  EXPECT_EQ(plan.steps[kBackward].grid, 16 * 8 * 4 * 2);
  EXPECT_EQ(plan.steps[kBackward].cluster, 2);
  EXPECT_EQ(plan.steps[kBackward].source.display_name, "bwd_sm100_bf16_d128_pair");
  EXPECT_EQ(plan.steps[kBackward].source.name_expression,
            "fa4::bwd_sm100<fa4::sm100::BwdTraits{.element=fa4::Element::kBF16, .head_dim=128, "
            ".head_dim_v=128, .cta_group=2, .q_stages=2, .dout_stages=1, .dv_stages=0, "
            ".sum_stages=1, .reduce_registers=152, .compute_registers=136, .apart=false, "
            ".split=false, .softcap=false}>");
  for (const WorkspacePart& part : plan.workspace.parts()) EXPECT_FALSE(part.zeroed) << part.name;
}

TEST(Sm100Backward, PrebuiltKernelsHoldEveryPlannedOne) {
  for (const char* architecture : {"sm_100a", "sm_103a"}) {
    std::set<std::string> prebuilt;
    for (const PrebuiltKernel& k : prebuilt_kernels(architecture)) {
      prebuilt.insert(k.source.name_expression);
    }
    DeviceSpec device = emulated_specs().back();
    device.architecture = architecture;
    for (int64_t d = 8; d <= 256; d += 8) {
      for (const int64_t seqlen : {100, 1000}) {
        ProblemDesc desc = dense(d, seqlen);
        if (d > 128 && d <= 192) desc.head_dim_v = 128;
        if (d % 24 == 0) desc.softcap = 20;
        desc.dtype = d % 16 == 0 ? DType::kBF16 : DType::kF16;
        for (const KernelStep& step : plan_backward(AttentionProblem::make(desc), device).steps) {
          EXPECT_TRUE(prebuilt.contains(step.source.name_expression)) << step.source.display_name;
        }
      }
    }
  }
}

TEST(Sm100Backward, TakesEveryHeadDimAndFeature) {
  for (const int64_t head_dim : {8, 128, 136, 256}) {
    ProblemDesc desc = dense(head_dim);
    desc.softcap = 20;
    desc.deterministic = true;
    EXPECT_EQ(refusal(desc), "") << head_dim;
  }
}

TEST(Sm100Backward, WorksThatAreSplitAreTwiceAsMany) {
  const BackwardPlan plan =
      plan_backward(AttentionProblem::make(dense(256, 1000)), emulated_specs().back());
  EXPECT_EQ(plan.steps[kBackward].source.display_name, "bwd_sm100_bf16_d256");
  EXPECT_EQ(plan.steps[kBackward].grid, 2 * 4 * 16 * 8);
  EXPECT_EQ(plan.steps[kBackward].cluster, 1);
}

TEST(Sm100Backward, ADeterministicOneCountsTurnsInTheWorkspace) {
  ProblemDesc desc = dense(128, 1000);
  const auto parts = [&] {
    return plan_backward(AttentionProblem::make(desc), emulated_specs().back()).workspace;
  };
  EXPECT_EQ(parts().find(kDqCounts), nullptr);
  EXPECT_EQ(parts().find(kTicket), nullptr);
  desc.deterministic = true;
  ASSERT_NE(parts().find(kDqCounts), nullptr);
  EXPECT_EQ(parts().find(kDqCounts)->bytes, 4u * 16 * 16 * 4);
  EXPECT_EQ(parts().find(kTicket)->bytes, 4u);
}

// The CTAs that see fewest rows begin, and each comes to a block after those before it.
TEST(Sm100Backward, ADeterministicOneUnderACausalMaskBeginsWithTheLastKeys) {
  ProblemDesc desc = dense(128, 1000);
  const auto begins_with_last = [&] {
    const BackwardPlan plan = plan_backward(AttentionProblem::make(desc), emulated_specs().back());
    return std::get<Sm100BackwardSpec>(plan.main).order.last_keys_first != 0;
  };
  EXPECT_FALSE(begins_with_last());
  desc.causal = true;
  EXPECT_FALSE(begins_with_last());
  desc.deterministic = true;
  EXPECT_TRUE(begins_with_last());
  desc.causal = false;
  EXPECT_FALSE(begins_with_last());
}

// A turn takes several steps: three works up for each SM in a section of pairs, and one where a
// part has several query heads.
TEST(Sm100Backward, PairsOfHeadsFillTheSms) {
  const auto pairs = [](int64_t heads_kv) {
    ProblemDesc desc = dense(128, 8192);
    desc.batch = 8;
    desc.heads_kv = heads_kv;
    desc.causal = desc.deterministic = true;
    const BackwardPlan plan = plan_backward(AttentionProblem::make(desc), emulated_specs().back());
    const BwdOrder& order = std::get<Sm100BackwardSpec>(plan.main).order;
    return 8 * order.heads_down / order.pair_sections;
  };
  EXPECT_EQ(pairs(16), 7);  // 148 SMs, 64 works a head
  EXPECT_EQ(pairs(8), 2) << "parts of two heads";
}

}  // namespace
}  // namespace fa4::internal
