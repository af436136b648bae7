// The Hopper kernels on the emulated H200: the table, and CTAs that go through many short tiles. An
// error of the checker fails a launch; formal findings are not counted, since a CTA's last product
// reads what nobody looks at (switch_tiles_overlapped in kernels/sm90/forward/consumer.cuh).
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/sm90_tuning.h"
#include "table.h"

namespace fa4::internal {

const std::vector<Backend>& tested_backends() {
  static const std::vector<Backend> kBackends = emulated_backends("emulated:h200");
  return kBackends;
}

namespace {

class EmulatedH200 : public BackendTest {};

TEST_F(EmulatedH200, MatchesTheOracle) { EXPECT_GE(expect_all_answers(tested_backends()), 60); }

// 560 tiles of one or two blocks are four for each of the 132 CTAs: every ring goes round, with
// tiles by stride and from the counter.
TEST_F(EmulatedH200, ManyTilesOfFewBlocksACta) {
  for (const int64_t head_dim : {64, 128}) {
    for (const bool causal : {false, true}) {
      const Row row{"280 heads of 256", [&](Case& c) {
                      c.desc.batch = 1;
                      c.desc.heads_q = 280;
                      c.desc.heads_kv = 1;
                      c.desc.seqlen_q = c.desc.seqlen_k = 256;
                      c.desc.head_dim = head_dim;
                      c.desc.causal = causal;
                    }};
      EXPECT_EQ(expect_answers(row, DType::kBF16, tested_backends()), 1);
    }
  }
}

// Each row of the tuning table: three or four tiles a CTA, of two or three blocks at least, so that
// every slot of Q is given back, taken again and waited for.
TEST_F(EmulatedH200, EveryShapeOfTileGoesThroughSeveral) {
  std::vector<Backend> backends;
  for (const Backend& backend : tested_backends()) backends.push_back(with_sms(backend, 4));
  for (const Sm90TuningRow& of : sm90_tuning_rows()) {
    const Row row{of.reason, [&](Case& c) {
                    c.desc.batch = 1;
                    c.desc.heads_q = c.desc.heads_kv = 6;
                    c.desc.seqlen_q = 2 * of.tile_m - 20;
                    c.desc.seqlen_k = std::max<int64_t>(
                        of.min_seqlen_k, std::min<int64_t>(of.max_keys, c.desc.seqlen_q));
                    if (of.window) c.desc.window = {100, 0};
                    c.desc.head_dim = of.head_dim;
                    c.desc.head_dim_v = of.head_dim_v;
                    c.desc.causal = of.masked;
                    c.desc.num_splits = 1;
                  }};
    EXPECT_EQ(expect_answers(row, DType::kBF16, backends), 1);
  }
}

// The table's problems of up to 64 columns once more, in tiles whose warpgroups visit blocks of
// their own: num_splits 1 asks for those, however few they are.
TEST_F(EmulatedH200, IndependentWarpgroupsMatchTheOracle) {
  int ran = 0;
  for (const Row& of : conformance_rows()) {
    const Row row{of.name, [&](Case& c) {
                    of.change(c);
                    c.desc.num_splits = 1;
                  }};
    const Case c = make_row(row, DType::kBF16);
    if (c.desc.head_dim > 64 || c.desc.split_keys > 0) continue;
    const AttentionProblem p = AttentionProblem::make(c.desc);
    const Backend& backend = tested_backends().front();
    if (!unsupported(backend, p).empty()) continue;
    const ForwardPlan plan = plan_forward(p, backend.device.spec);
    const auto* spec = std::get_if<Sm90ForwardSpec>(&plan.main);
    if (spec == nullptr || !spec->traits.independent) continue;
    ran += expect_answers(row, DType::kBF16, tested_backends());
  }
  EXPECT_GE(ran, 15);
}

// Six tiles on three to five SMs: a CTA's second tile comes from the end.
TEST_F(EmulatedH200, TwoRoundsOfMaskedTilesHaveTheBitsOfOne) {
  for (const Backend& backend : tested_backends()) {
    Case c;
    c.desc.batch = 1;
    c.desc.heads_q = c.desc.heads_kv = 2;
    c.desc.seqlen_q = c.desc.seqlen_k = 300;
    c.desc.head_dim = 128;
    c.desc.causal = true;
    c.desc.num_splits = 1;
    const CaseTensors tensors(c);
    const auto run = [&](int num_sms, TileSource source) {
      const ForwardPlan plan =
          plan_forward(tensors.problem(), with_sms(backend, num_sms).device.spec);
      EXPECT_EQ(std::get<Sm90ForwardSpec>(plan.main).schedule.source, source) << num_sms;
      return run_plan(backend, plan, tensors.args()).out;
    };
    const auto one = run(132, TileSource::kStride);
    for (const int num_sms : {3, 4, 5}) {
      EXPECT_EQ(run(num_sms, TileSource::kThereAndBack), one) << num_sms << " SMs";
    }
    EXPECT_EQ(run(2, TileSource::kCounter), one);
  }
}

}  // namespace
}  // namespace fa4::internal
