// The steps of a work tile against its blocks one by one.
#include "kernels/geometry/step_sequence.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace fa4 {
namespace {

using Blocks = std::array<BlockRange, 2>;

// Every pair of ranges of up to six blocks that leaves no gap between the two; one that visits
// nothing is {0, 0}, as the scheduler writes it.
std::vector<Blocks> all_blocks() {
  std::vector<BlockRange> ranges = {BlockRange{}};
  for (int begin = 0; begin < 6; ++begin) {
    for (int end = begin + 1; end <= 6; ++end) ranges.push_back({{begin, end}, 0, 0});
  }
  std::vector<Blocks> all;
  for (const BlockRange& a : ranges) {
    for (const BlockRange& b : ranges) {
      const bool touch = a.n_block_min <= b.n_block_max && b.n_block_min <= a.n_block_max;
      if (a.is_empty() || b.is_empty() || touch) all.push_back({a, b});
    }
  }
  return all;
}

template <int kQTiles>
Step step_at(const Blocks& blocks, int n) {
  Step s;
  for (size_t i = 0; i < kQTiles; ++i) {
    const bool active = n >= blocks[i].n_block_min && n < blocks[i].n_block_max;
    s.active |= static_cast<uint32_t>(active) << i;
    s.first |= static_cast<uint32_t>(active && n + 1 == blocks[i].n_block_max) << i;
    s.last |= static_cast<uint32_t>(active && n == blocks[i].n_block_min) << i;
  }
  return s;
}

// The blocks that a Q tile visits, from the last to the first.
template <int kQTiles>
std::vector<int> visited(const Blocks& blocks) {
  std::vector<int> all;
  for (int n = 5; n >= 0; --n) {
    if (step_at<kQTiles>(blocks, n).any()) all.push_back(n);
  }
  return all;
}

template <int kQTiles>
void expect_every_step() {
  for (const Blocks& blocks : all_blocks()) {
    StepSequence<kQTiles> steps(blocks.data());
    for (const int n : visited<kQTiles>(blocks)) {
      ASSERT_FALSE(steps.is_done());
      EXPECT_EQ(steps.block(), n);
      const Step step = step_at<kQTiles>(blocks, n);
      EXPECT_EQ(steps.step(), step);
      for (int i = 0; i < kQTiles; ++i) {
        const uint32_t bit = 1u << i;
        EXPECT_EQ(steps.is_active(i), (step.active & bit) != 0);
        EXPECT_EQ(steps.is_first(i), (step.first & bit) != 0);
        EXPECT_EQ(steps.is_later(i), (step.active & ~step.first & bit) != 0);
      }
      steps.advance();
    }
    EXPECT_TRUE(steps.is_done());
  }
}

TEST(StepSequence, VisitsEveryBlockOnceFromTheLastOn) {
  expect_every_step<1>();
  expect_every_step<2>();
}

// As the tensor core's thread runs: what it issues is each step with the one before it, and in a
// middle run it takes both for kMiddle.
template <int kQTiles>
int expect_pairs() {
  int middle = 0;
  for (const Blocks& blocks : all_blocks()) {
    const std::vector<int> all = visited<kQTiles>(blocks);
    StepSequence<kQTiles> steps(blocks.data());
    size_t i = 0;
    Step before{};
    const auto expect_next = [&](const Step& first, const Step& second) {
      ASSERT_LT(i, all.size());
      EXPECT_EQ(first, i == 0 ? Step{} : step_at<kQTiles>(blocks, all[i - 1])) << "step " << i;
      EXPECT_EQ(second, step_at<kQTiles>(blocks, all[i])) << "step " << i;
      ++i;
    };
    while (!steps.is_done()) {
      for (int left = steps.take_middle_run(); left > 0; --left, ++middle) {
        expect_next(StepSequence<kQTiles>::kMiddle, StepSequence<kQTiles>::kMiddle);
      }
      EXPECT_FALSE(steps.is_done()) << "the last step is in no middle run";
      expect_next(before, steps.step());
      before = steps.step();
      steps.advance();
      EXPECT_EQ(before, step_at<kQTiles>(blocks, all[i - 1]));
    }
    EXPECT_EQ(i, all.size());
  }
  return middle;
}

TEST(StepSequence, AMiddleRunHidesNoStepFromTheOneAfterIt) {
  EXPECT_GT(expect_pairs<1>(), 0);
  EXPECT_GT(expect_pairs<2>(), 0);
}

TEST(StepSequence, AMiddleRunIsAsLongAsItCanBe) {
  // The first block, the step after it, the last one: all others are in the middle.
  const Blocks alone = {{{{2, 12}, 0, 0}, {}}};
  StepSequence<1> one(alone.data());
  EXPECT_EQ(one.take_middle_run(), 0) << "the first step";
  one.advance();
  EXPECT_EQ(one.take_middle_run(), 0) << "the step after the first";
  one.advance();
  EXPECT_EQ(one.take_middle_run(), 7);
  EXPECT_EQ(one.block(), 2);
  // The figure of the header: rows 0 to 255 of a causal mask at the end of 768 keys.
  const Blocks causal = {{{{0, 5}, 0, 0}, {{0, 6}, 0, 0}}};
  StepSequence<2> two(causal.data());
  for (int n = 5; n > 2; --n) {
    EXPECT_EQ(two.take_middle_run(), 0);
    two.advance();
  }
  EXPECT_EQ(two.take_middle_run(), 2);
  EXPECT_EQ(two.block(), 0);
}

}  // namespace
}  // namespace fa4
