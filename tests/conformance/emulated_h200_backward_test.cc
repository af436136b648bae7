// The Hopper backward on the emulated H200: lengths about its blocks of 64 queries and 128 keys,
// every head dimension, groups, masks, layouts. An error of the checker fails a launch; formal
// findings are those of dq's sums, which are added in no fixed order.
#include <gtest/gtest.h>

#include "emulated_backward.h"
#include "plan/backward_plan.h"

namespace fa4::internal {

namespace {

// With few SMs each CTA goes from block of keys to block of keys.
std::vector<Backend> h200_of(int num_sms) {
  std::vector<Backend> backends = emulated_backends("emulated:h200");
  for (Backend& backend : backends) backend.device.spec.num_sms = num_sms;
  return backends;
}

}  // namespace

const std::vector<Backend>& tested_backends() {
  static const std::vector<Backend> kBackends = h200_of(3);
  return kBackends;
}

bool may_have_formal_findings(const AttentionProblem& p) {
  constexpr int64_t kKeys = 128;  // of a CTA
  return p.seqlen_k > kKeys && !p.deterministic;
}

namespace {

class EmulatedH200Backward : public BackendTest {};

TEST_F(EmulatedH200Backward, LengthsAboutItsBlocks) {
  expect_lengths_about_blocks({64, 96, 128, 192, 256});
}

TEST_F(EmulatedH200Backward, CausalWithFewerAsManyAndMoreKeys) { expect_causal({64, 128, 192}); }

TEST_F(EmulatedH200Backward, Windows) { expect_windows(); }

TEST_F(EmulatedH200Backward, HeadDimsRoundUp) {
  expect_head_dims_round_up({{8, 8},
                             {72, 40},
                             {40, 72},
                             {104, 128},
                             {128, 64},
                             {120, 120},
                             {192, 128},
                             {136, 200},
                             {248, 16},
                             {16, 248}});
}

TEST_F(EmulatedH200Backward, GroupsOfEverySize) { expect_groups_of_every_size(); }

TEST_F(EmulatedH200Backward, PartsOfGroups) { expect_parts_of_groups({64, 192}); }

TEST_F(EmulatedH200Backward, PackedSequencesWithRoomBehindThem) {
  expect_packed_sequences({64, 128, 256});
}

TEST_F(EmulatedH200Backward, RowsInUse) { expect_rows_in_use(); }

TEST_F(EmulatedH200Backward, SinksDlseGradientsInF32AndEveryScale) {
  expect_sinks_dlse_and_every_scale();
}

TEST_F(EmulatedH200Backward, Softcap) {
  for (const int64_t head_dim : {64, 96, 128, 192, 256}) {
    Case c = small_case(130, 200, head_dim);
    c.desc.softcap = 8;
    c.desc.causal = head_dim != 96;
    c.amplitude = 4;
    expect_right(c);
  }
}

// The last block of keys has one row, whose gradient is one dS times a row of q: nothing averages
// the roundings of P and dS out. Where no product reads P it must not be rounded at all.
TEST_F(EmulatedH200Backward, WideHeadsDoNotRoundTheProbabilitiesOfDs) {
  for (const int64_t head_dim : {192, 256}) {
    for (uint64_t seed = 0; seed < 2; ++seed) {
      Case c = small_case(129, 129, head_dim);
      c.desc.dtype = DType::kF16;
      c.desc.heads_q = c.desc.heads_kv = 32;
      c.desc.head_dim_v = 8;
      c.desc.causal = true;
      c.seed = seed;
      expect_right(c);
    }
  }
}

// Where the last step has one block of queries, of two, a turn is given on after its sums too.
TEST_F(EmulatedH200Backward, DeterministicAddsInTurn) {
  for (const int64_t head_dim : {64, 128}) {
    for (const int64_t seqlen_q : {260, 300, 520}) {
      Case c = small_case(seqlen_q, 260, head_dim);
      c.desc.deterministic = true;
      expect_right(c);
    }
  }
}

// Turns follow from the mask: each rank comes once, or the launch hangs.
TEST_F(EmulatedH200Backward, DeterministicGivesTheSameBits) {
  for (const MaskSpec window : {MaskSpec{-1, -1},
                                {-1, 0},
                                {60, 0},
                                {60, -1},
                                {-1, 150},
                                {0, 300},
                                {200, 10},
                                {-1, -40, 2},
                                {-1, -100, 2},
                                {3, -5, 2},
                                {200, -30, 2},
                                {-50, -1, 1},
                                {-20, 150, 1}}) {
    for (const auto& [q, k] : {std::pair{150, 520}, {520, 150}, {260, 260}}) {
      SCOPED_TRACE(testing::Message()
                   << window.window_left << " " << window.window_right << ", " << q << " x " << k);
      Case c = small_case(q, k, 64);
      if (q < k) c.desc.heads_q = c.desc.heads_kv = 4;  // one or two go down the queries
      c.desc.deterministic = true;
      c.desc.window = window;
      const BackwardCase given(c);
      const Backend& h200 = tested_backends()[0];
      GradientResult first = run_backward_on(h200, given.problem(), given.args());
      expect_gradients(given, first);
      EXPECT_TRUE(first == run_backward_on(h200, given.problem(), given.args()));
    }
  }
}

// Whichever CTA takes a block of keys, and whatever it had before: head dimensions of which CTAs
// have many works, and of which they have one.
TEST_F(EmulatedH200Backward, EveryGridGivesTheSameBits) {
  for (const int64_t head_dim : {64, 128, 192, 256}) {
    Case c = small_case(0, 0, head_dim);
    c.desc.heads_q = 4;
    c.desc.heads_kv = 2;
    c.desc.causal = c.desc.deterministic = true;
    pack(c, {70, 0, 1, 330, 64, 40}, {340, 30, 0, 330, 200, 600});
    const BackwardCase given(c);
    GradientResult first = run_backward_on(tested_backends()[0], given.problem(), given.args());
    expect_gradients(given, first);
    for (const int num_sms : {1, 7}) {  // beside the H200's 132
      EXPECT_TRUE(first == run_backward_on(h200_of(num_sms)[0], given.problem(), given.args()))
          << "head_dim " << head_dim << ", " << num_sms << " SMs";
    }
  }
}

// Keys of dense and packed sequences of which some are not there, under masks or none, whose L2
// cache holds one head.
std::vector<Case> many_heads(int seqlen_q, int seqlen_k, int64_t head_dim) {
  Case dense = small_case(seqlen_q, seqlen_k, head_dim);
  dense.desc.batch = 4;
  dense.desc.heads_q = 4;
  dense.desc.heads_kv = 2;
  Case causal = dense;
  causal.desc.causal = true;
  Case packed = dense, packed_causal = causal;
  for (Case* c : {&packed, &packed_causal}) {
    pack(*c, {seqlen_q / 2, 0, 1, seqlen_q, 64}, {seqlen_k / 2, 30, 0, 130, seqlen_k});
  }
  Case used = dense;
  used.desc.has_seqused_q = used.desc.has_seqused_k = true;
  used.seqused_q = {seqlen_q, 0, 65, 64};
  used.seqused_k = {129, seqlen_k, 10, 0};
  return {dense, causal, packed, packed_causal, used};
}
// On one CTA, and on three that take turns: plans whose workspace has `part`.
void expect_many_heads(const std::vector<Case>& cases, std::string_view part) {
  Backend alone = h200_of(1)[0], together = with_turns(h200_of(3)[0], 3, 5);
  alone.device.spec.l2_bytes = together.device.spec.l2_bytes = 1;
  for (const Case& c : cases) {
    const BackwardCase given(c);
    SCOPED_TRACE(testing::Message() << "head_dim " << c.desc.head_dim);
    for (const Backend& backend : {alone, together}) {
      const BackwardPlan plan = plan_backward(given.problem(), backend.device.spec);
      EXPECT_NE(plan.workspace.find(part), nullptr);
      GradientResult result = run_backward_on(backend, given.problem(), given.args());
      expect_gradients(given, result);
    }
  }
}

// The first one to add to a block of dq, whose sums begin as NaN, stores.
TEST_F(EmulatedH200Backward, TheFirstOneStores) {
  for (const int64_t head_dim : {64, 128, 192}) {
    expect_many_heads(many_heads(140, 260, head_dim), kDqCounts);
  }
}

// Where many blocks of keys add, works clear the sums of later sections, which begin as NaN: also
// those of blocks of keys that a sequence does not have.
TEST_F(EmulatedH200Backward, WorksClearTheSumsOfLaterSections) {
  for (const int64_t head_dim : {64, 192}) {
    std::vector<Case> cases = many_heads(70, 2100, head_dim);
    std::erase_if(cases, [](const Case& c) { return c.desc.causal; });  // the first one stores
    expect_many_heads(cases, kClearedCounts);
  }
}

// Works make dq of the sums of earlier sections, the postprocess of those of the last ones: with
// rows and columns past the tensor's, and of groups.
TEST_F(EmulatedH200Backward, WorksFinishDqOfEarlierSections) {
  Case full = many_heads(140, 1100, 64)[0], causal = many_heads(70, 2100, 40)[1];
  full.desc.dtype = DType::kF16;
  causal.desc.softmax_scale = -0.25f;
  expect_many_heads({full, causal}, kEndedCounts);
}

// The load warp is soon done with a work of one step, and must not be a phase of V's barrier ahead
// when it loads into V's place.
TEST_F(EmulatedH200Backward, WorksOfOneStepBehindEachOther) {
  for (const auto& [head_dim, head_dim_v] : {std::pair{192, 128}, {192, 192}, {256, 256}}) {
    Case c = small_case(1, 300, head_dim);
    c.desc.head_dim_v = head_dim_v;
    c.desc.batch = 3;
    c.desc.deterministic = true;
    expect_same_bits(c, h200_of(1)[0], {with_turns(h200_of(2)[0], 2, 10)});
  }
}

// CTAs that are there together wait for each other's turns, and take tickets as they come. A CTA
// that is alone has all works, in the order of the turns.
TEST_F(EmulatedH200Backward, CtasThatTakeTurnsGiveTheSameBits) {
  std::vector<Backend> together;
  for (const auto& [resident, seed] : {std::pair{2, 1}, {4, 2}}) {
    together.push_back(with_turns(h200_of(resident)[0], static_cast<uint32_t>(resident),
                                  static_cast<uint64_t>(seed)));
  }
  for (const int64_t head_dim : {64, 128, 192, 256}) {
    for (const bool causal : {false, true}) {
      Case c = small_case(330, 600, head_dim);
      // Two of them go down the queries, above 128 columns one.
      if (causal) c.desc.heads_q = c.desc.heads_kv = 4;
      c.desc.deterministic = true;
      c.desc.causal = causal;
      expect_same_bits(c, h200_of(1)[0], together);
    }
  }
}

}  // namespace
}  // namespace fa4::internal
