// Waits that take turns at barriers, on a model of them.
#include "kernels/tile/phases.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>

#include "kernels/sm100/forward/traits.h"
#include "kernels/sm90/forward/traits.h"

namespace fa4 {
namespace {

constexpr int kKinds = 4, kStages = 3;
constexpr int kFull = 1, kEmpty = 2, kOther = 3;
constexpr uint32_t kStartFree = 1u << kEmpty;

// A wait for a parity passes when the phase of that parity is not the one under way (PTX ISA,
// "mbarrier.try_wait"), and the device would wait for ever here.
struct Barriers {
  std::array<std::array<uint32_t, kStages>, kKinds> completed{};  // phases
  mutable bool passed = false;

  void wait(int kind, int stage, uint32_t parity) const {
    EXPECT_LE(parity, 1u);
    passed = parity != (completed.at(kind).at(stage) & 1);
  }
};

template <class Waits>
bool passes(Waits& waits, const Barriers& barriers, int kind, int stage) {
  waits.wait(barriers, kind, stage);
  return barriers.passed;
}

TEST(Phases, EveryWaitIsForThePhaseAfterTheLast) {
  Phases<kStartFree, kStages, kFull, kEmpty> waits;
  Barriers barriers;
  for (int turn = 0; turn < 5; ++turn) {
    for (int stage = 0; stage < kStages; ++stage) {
      EXPECT_TRUE(passes(waits, barriers, kEmpty, stage)) << turn;
      ++barriers.completed[kFull][stage];
      EXPECT_TRUE(passes(waits, barriers, kFull, stage)) << turn;
      ++barriers.completed[kEmpty][stage];
    }
  }
}

TEST(Phases, AWaitForAPhaseThatIsNotCompleteDoesNotPass) {
  for (int stage = 0; stage < kStages; ++stage) {
    Phases<kStartFree, kStages, kFull, kEmpty> waits;
    Barriers barriers;
    EXPECT_FALSE(passes(waits, barriers, kFull, stage)) << "nothing has arrived";
    EXPECT_TRUE(passes(waits, barriers, kEmpty, stage)) << "free from the start";
    EXPECT_FALSE(passes(waits, barriers, kEmpty, stage)) << "free only once";
  }
}

TEST(Phases, StagesAndKindsTakeTurnsByThemselves) {
  Phases<kStartFree, kStages, kFull, kEmpty, kOther> waits;
  Barriers barriers;
  for (int turn = 0; turn < 3; ++turn) {
    ++barriers.completed[kFull][1];
    EXPECT_TRUE(passes(waits, barriers, kFull, 1));
  }
  ++barriers.completed[kFull][2];
  EXPECT_TRUE(passes(waits, barriers, kFull, 2));
  ++barriers.completed[kOther][1];
  EXPECT_TRUE(passes(waits, barriers, kOther, 1));
  EXPECT_TRUE(passes(waits, barriers, kEmpty, 1));
}

// As a softmax warpgroup has it: one Q tile's barriers, whose number is known when it runs.
TEST(Phases, OneStageIsAnyStage) {
  Phases<kStartFree, kOneStage, kFull, kEmpty> waits;
  Barriers barriers;
  for (int turn = 0; turn < 4; ++turn) {
    EXPECT_TRUE(passes(waits, barriers, kEmpty, 2)) << turn;
    ++barriers.completed[kFull][2];
    EXPECT_TRUE(passes(waits, barriers, kFull, 2)) << turn;
    ++barriers.completed[kEmpty][2];
  }
}

TEST(Phases, ABarrierThatFollowsAnotherSharesItsTurns) {
  Phases<kStartFree, kStages, kFull> waits;
  Barriers barriers;
  for (int turn = 0; turn < 4; ++turn) {
    ++barriers.completed[kFull][0];
    const auto phase = waits.next(kFull, 0);
    phase.wait(barriers, kFull, 0);
    EXPECT_TRUE(barriers.passed) << turn;
    phase.wait(barriers, kEmpty, 0);
    EXPECT_TRUE(barriers.passed) << turn << ": starts free, unlike the one that it follows";
    ++barriers.completed[kEmpty][0];
    ++barriers.completed[kOther][0];
    phase.wait(barriers, kOther, 0);
    EXPECT_TRUE(barriers.passed) << turn;
  }
}

// What is empty, free or wanted before anything has come is free from the start. Of the statistics
// the same words carry the factors of a tile's blocks first: they are handed back once a tile.
template <class Table>
void expect_what_starts_free(const Table& table) {
  const std::set<std::string> taken = {"stats_empty"};
  int kind = 0;
  for (const BarrierRow& row : table.rows) {
    const std::string name = row.name;
    const bool is_free =
        (name.ends_with("_empty") || name.ends_with("_free") || name.ends_with("_wanted")) &&
        !taken.contains(name);
    EXPECT_EQ(row.start == Start::kFree, is_free) << name;
    EXPECT_EQ(table.start_free() >> kind++ & 1, is_free ? 1u : 0u) << name;
  }
}

TEST(BarrierTables, SayWhatStartsFree) {
  expect_what_starts_free(sm90::barriers(sm90::FwdTraits{}));
  expect_what_starts_free(sm100::barriers(sm100::FwdTraits{}));
}

}  // namespace
}  // namespace fa4
