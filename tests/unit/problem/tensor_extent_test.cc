#include "problem/tensor_extent.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <set>
#include <vector>

namespace fa4::internal {
namespace {

std::vector<int64_t> offsets_of(const TensorExtent& extent, const Strides& strides) {
  std::vector<int64_t> offsets;
  for (int64_t b = 0; b < extent.outer; ++b)
    for (int64_t m = 0; m < extent.rows; ++m)
      for (int64_t h = 0; h < extent.heads; ++h)
        for (int64_t d = 0; d < extent.dim; ++d)
          offsets.push_back(b * strides.batch + m * strides.seqlen + h * strides.head + d);
  return offsets;
}

const TensorExtent kSmall{2, 3, 2, 2};

TEST(TensorExtent, InjectiveStridesNeverRepeatAnElement) {
  int accepted = 0;
  for (int64_t batch = -14; batch <= 14; ++batch) {
    for (int64_t seqlen = -6; seqlen <= 6; ++seqlen) {
      for (int64_t head = -3; head <= 12; ++head) {
        const Strides strides{batch, seqlen, head};
        if (!is_injective(kSmall, strides)) continue;
        ++accepted;
        const std::vector<int64_t> offsets = offsets_of(kSmall, strides);
        const std::set<int64_t> distinct(offsets.begin(), offsets.end());
        ASSERT_EQ(distinct.size(), offsets.size()) << batch << " " << seqlen << " " << head;
      }
    }
  }
  EXPECT_GT(accepted, 30);
  EXPECT_TRUE(is_injective(kSmall, {12, 4, 2}));   // contiguous
  EXPECT_TRUE(is_injective(kSmall, {12, 2, 6}));   // heads before rows
  EXPECT_TRUE(is_injective(kSmall, {12, -4, 2}));  // backwards
  EXPECT_FALSE(is_injective(kSmall, {0, 4, 2}));   // broadcast
}

TEST(TensorExtent, SpansAreExact) {
  for (const Strides& strides : {Strides{12, 4, 2}, {-12, 4, 2}, {100, -7, 31}, {0, 0, 0}}) {
    const std::vector<int64_t> offsets = offsets_of(kSmall, strides);
    const ElementSpan span = span_of(kSmall, strides, 2).value();
    EXPECT_EQ(span.begin, *std::min_element(offsets.begin(), offsets.end()));
    EXPECT_EQ(span.end, *std::max_element(offsets.begin(), offsets.end()) + 1);
  }
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_FALSE(span_of(kSmall, {most, 4, 2}, 2).has_value());
  EXPECT_FALSE(span_of(kSmall, {12, most, 2}, 2).has_value());
  EXPECT_FALSE(span_of(kSmall, {most / 4 + 1, 4, 2}, 2).has_value());
  EXPECT_TRUE(span_of({0, 3, 2, 2}, {most, 4, 2}, 2).has_value());  // empty
}

TEST(TensorExtent, OverlapsAreNeverMissed) {
  alignas(16) static const char memory[512] = {};
  const auto region = [](int64_t at, const Strides& strides) {
    return MemoryRegion{"", memory + 2 * at, kSmall, strides, 2};
  };
  int apart = 0;
  for (const Strides& a : {Strides{12, 4, 2},
                           {48, 16, 4},
                           {48, 16, 2},
                           {24, 2, 6},
                           {42, 14, 6},
                           {42, -13, 5},
                           {0, 9, 4}}) {
    for (const Strides& b : {Strides{12, 4, 2},
                             {48, 16, 4},
                             {24, 8, 4},
                             {24, 2, 6},
                             {42, 14, 6},
                             {-42, 14, 6},
                             {42, 13, 5}}) {
      for (int64_t at = 0; at <= 100; ++at) {
        std::set<int64_t> first;
        for (int64_t offset : offsets_of(kSmall, a)) first.insert(offset);
        bool overlap = false;
        for (int64_t offset : offsets_of(kSmall, b)) overlap |= first.count(at + offset) != 0;
        const bool reported = may_overlap(region(0, a), region(at, b));
        if (overlap) {
          ASSERT_TRUE(reported) << at;
        }
        if (!reported) ++apart;
      }
    }
  }
  EXPECT_GT(apart, 1000);
}

TEST(TensorExtent, SlicesOfOneBufferAreApart) {
  static const char memory[4096] = {};
  // (batch 2, seqlen 3, [q k v out], heads 2, dim 2): runs of 4 elements every 16.
  const Strides rows{48, 16, 2};
  // (batch 2, seqlen 3, heads 2, [q k v out], dim 2): runs of 2 elements every 8.
  const Strides heads{48, 16, 8};
  for (int64_t slice = 1; slice < 4; ++slice) {
    EXPECT_FALSE(
        may_overlap({"", memory, kSmall, rows, 2}, {"", memory + slice * 8, kSmall, rows, 2}));
    EXPECT_FALSE(
        may_overlap({"", memory, kSmall, heads, 2}, {"", memory + slice * 4, kSmall, heads, 2}));
  }
  // (batch 2, seqlen 3, heads 2, [q k v], dim 2) and 2 elements that pad each row: the divisor of
  // 14 and 6 says nothing.
  const Strides padded{42, 14, 6};
  for (int64_t slice = 1; slice < 3; ++slice) {
    const MemoryRegion first{"", memory, kSmall, padded, 2};
    EXPECT_FALSE(may_overlap(first, {"", memory + slice * 4, kSmall, padded, 2}));
    EXPECT_TRUE(may_overlap(first, {"", memory + slice * 4 + 2, kSmall, padded, 2}) == (slice == 2))
        << "the next head's first element";
  }
  // Pages (2, [k v], heads 2, rows 3, dim 2): runs of 12 elements every 24.
  const Strides heads_first{24, 2, 6};
  EXPECT_FALSE(
      may_overlap({"", memory, kSmall, heads_first, 2}, {"", memory + 24, kSmall, heads_first, 2}));
  EXPECT_TRUE(
      may_overlap({"", memory, kSmall, heads_first, 2}, {"", memory + 22, kSmall, heads_first, 2}));
  // Rows of (heads 2, [q out], dim 2) and a key; q and out are the last row alone.
  const TensorExtent key{1, 4, 1, 2}, query{1, 1, 2, 2};
  for (const int64_t at : {0, 2}) {
    const MemoryRegion keys{"", memory + 16, key, {0, 10, 0}, 2};
    const MemoryRegion last{"", memory + 2 * (3 * 10 + at), query, {0, 10, 4}, 2};
    EXPECT_FALSE(may_overlap(last, keys));
    EXPECT_FALSE(may_overlap(keys, last));
    const MemoryRegion further{"", memory + 2 * (3 * 10 + at + 2), query, {0, 10, 4}, 2};
    EXPECT_EQ(may_overlap(further, keys), at == 2);
  }
  EXPECT_TRUE(may_overlap({"", memory, kSmall, rows, 2}, {"", memory + 6, kSmall, rows, 2}));
  EXPECT_TRUE(may_overlap({"", memory, kSmall, rows, 2}, {"", memory, kSmall, rows, 2}));
}

}  // namespace
}  // namespace fa4::internal
