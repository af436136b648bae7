// The Blackwell backward on the emulated B200: lengths about its blocks of 128 queries and of 128
// or 256 keys, every head dimension, groups, masks, softcap, layouts. An error of the checker fails
// a launch; formal findings are those of dq's sums alone, which are added in no fixed order: none
// where a CTA, or a pair, holds all keys, or where deterministic.
#include <gtest/gtest.h>

#include "emulated_backward.h"
#include "plan/sm100_backward_tuning.h"

namespace fa4::internal {

const std::vector<Backend>& tested_backends() {
  static const std::vector<Backend> kBackends = emulated_backends("emulated:b200");
  return kBackends;
}

bool may_have_formal_findings(const AttentionProblem& p) {
  const Sm100BackwardRow* row = find_sm100_backward(p.head_dim, p.head_dim_v, p.seqlen_k);
  return p.seqlen_k > int64_t{sm100::bwd::kKeys} * row->cta_group && !p.deterministic;
}

namespace {

class EmulatedB200Backward : public BackendTest {};

TEST_F(EmulatedB200Backward, LengthsAboutItsBlocks) { expect_lengths_about_blocks({64, 96, 128}); }

TEST_F(EmulatedB200Backward, CausalWithFewerAsManyAndMoreKeys) { expect_causal({64, 128}); }

TEST_F(EmulatedB200Backward, Windows) { expect_windows(); }

TEST_F(EmulatedB200Backward, DeterministicUnderEveryMask) {
  for (const int64_t head_dim : {64, 128}) {
    for (const MaskSpec window : {MaskSpec{-1, -1},
                                  {-1, 0},
                                  {150, 40},
                                  {-1, 130},
                                  {10, -1},
                                  {-1, -40, 2},
                                  {200, -30, 2},
                                  {-50, -1, 1},
                                  {-20, 150, 1}}) {
      Case c = small_case(200, 400, head_dim);
      c.desc.heads_q = c.desc.heads_kv = 4;  // of which one or two go down the queries
      c.desc.window = window;
      c.desc.deterministic = true;
      expect_right(c);
    }
  }
  Case c = small_case(0, 0, 64);
  c.desc.heads_q = 2;
  c.desc.causal = c.desc.deterministic = true;
  pack(c, {300, 0, 1, 130}, {520, 30, 0, 300});
  expect_right(c);
  const BackwardCase given(c);
  const GradientResult once = run_backward_on(tested_backends()[0], given.problem(), given.args());
  EXPECT_TRUE(once == run_backward_on(tested_backends()[0], given.problem(), given.args()));
}

// Pairs of CTAs that are there together wait for each other's turns. A pair that is alone ends
// before the next one starts.
TEST_F(EmulatedB200Backward, ClustersThatTakeTurnsGiveTheSameBits) {
  const Backend& alone = tested_backends()[0];
  std::vector<Backend> together;
  for (const uint32_t resident : {2, 3, 4}) {
    together.push_back(with_turns(alone, resident, resident - 1));
  }
  for (const int64_t head_dim : {64, 128, 256}) {
    for (const bool causal : {false, true}) {
      Case c = small_case(330, 600, head_dim);
      c.desc.heads_q = c.desc.heads_kv = 2;  // one goes down the queries
      c.desc.deterministic = true;
      c.desc.causal = causal;
      expect_same_bits(c, alone, together);
    }
  }
}

TEST_F(EmulatedB200Backward, Softcap) {
  for (const int64_t head_dim : {64, 128}) {
    for (const int64_t keys : {100, 300}) {  // one CTA, pairs
      Case c = small_case(150, keys, head_dim);
      c.desc.softcap = 3;
      c.desc.causal = true;
      c.amplitude = 4;
      expect_right(c);
    }
  }
}

// dS is then below the least normal float in part: to flush it would be many times the bound.
TEST_F(EmulatedB200Backward, SmallGradientsKeepTheirBits) {
  for (const int64_t keys : {100, 300}) {  // one CTA, pairs
    const Case c = small_case(33, keys, 64);
    const BackwardCase given(c, [&](const BackwardArgs& args) {
      auto* const dout = static_cast<uint16_t*>(const_cast<void*>(args.dout));
      for (int i = 0; i < 33 * 64; ++i) {
        store_from_float(DType::kBF16, dout, i, 0x1p-120f * load_as_float(DType::kBF16, dout, i));
      }
    });
    expect_gradients(given);
  }
}

TEST_F(EmulatedB200Backward, HeadDimsRoundUp) {
  expect_head_dims_round_up({{8, 8}, {72, 40}, {40, 72}, {104, 128}, {128, 64}, {120, 120}});
}

TEST_F(EmulatedB200Backward, GroupsOfEverySize) { expect_groups_of_every_size(); }

TEST_F(EmulatedB200Backward, PartsOfGroups) { expect_parts_of_groups({128, 256}); }

TEST_F(EmulatedB200Backward, PackedSequencesWithRoomBehindThem) {
  expect_packed_sequences({64, 128, 256});
}

TEST_F(EmulatedB200Backward, RowsInUse) { expect_rows_in_use(); }

TEST_F(EmulatedB200Backward, SinksDlseGradientsInF32AndEveryScale) {
  expect_sinks_dlse_and_every_scale();
}

}  // namespace
}  // namespace fa4::internal
