// The Hopper kernels on the emulated H200: the table, and CTAs that go through many short tiles. An
// error of the checker fails a launch; formal findings are not counted, since a CTA's last product
// reads what nobody looks at (switch_tiles_overlapped in kernels/sm90/forward/consumer.cuh).
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace fa4::internal
