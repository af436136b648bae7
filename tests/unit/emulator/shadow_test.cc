// The shadow of shared memory keeps what a cell for every word would.
#include "emulator/observe/shadow.h"
#include "emulator/observe/paged_records.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "emulator/observe/paged_records.h"

namespace ptxemu {
namespace {

constexpr size_t kWords = 22;  // and a block that is not whole

bool same(const Cell& a, const Cell& b) {
  const auto same_touch = [](const Touch& x, const Touch& y) {
    return x.who == y.who && x.statement == y.statement && x.bytes == y.bytes;
  };
  return same_touch(a.writer, b.writer) && a.reader_count == b.reader_count &&
         (a.reader_count == 0 || same_touch(a.readers[0], b.readers[0])) &&
         a.written == b.written && a.mbarrier == b.mbarrier;
}

TEST(SharedShadow, IsWhatACellForEveryWordWouldBe) {
  SharedShadow shadow;
  EXPECT_TRUE(shadow.empty());
  shadow.resize(kWords);
  EXPECT_GE(shadow.size(), kWords);
  std::vector<Cell> cells(kWords);
  std::mt19937 random(1);
  size_t made = 0, wanted = 0;
  for (uint32_t step = 1; step <= 5000; ++step) {
    const size_t first = random() % kWords;
    const size_t last = std::min(kWords, first + 1 + random() % 9);
    Touch now;
    now.who = Who::warp(random() % 4, step);
    now.statement = step;
    const uint32_t kind = random() % 8;
    if (kind == 0) now.bytes = 3;
    const bool writes = kind < 4;
    const auto touch = [&](Cell& cell) {
      ++made;
      if (writes) {
        cell.writer = now;
        cell.reader_count = 0;
        cell.written |= now.bytes;
      } else {
        cell.readers[0] = now;
        cell.reader_count = 1;
      }
    };
    if (kind == 7) {
      for (const size_t i : {first, last - 1}) {
        shadow.cell(i).mbarrier = cells[i].mbarrier = step % 2 != 0;
      }
      continue;
    }
    for (size_t i = first; i < last; ++i) touch(cells[i]);
    wanted += last - first;
    shadow.for_cells(first, last, writes && now.bytes == kAllBytes, touch);
    for (size_t i = 0; i < kWords; ++i) {
      ASSERT_TRUE(same(shadow.at(i), cells[i])) << "word " << i << " after step " << step;
    }
  }
  EXPECT_LT(made, 2 * wanted) << "no words shared a cell";
}

TEST(PagedRecords, AreForgottenByPagesThatNobodyNames) {
  PagedRecords<int> records;
  records.grow_to(1000);
  for (int i = 0; i < 1000; ++i) records[static_cast<uint64_t>(i)] = i;
  std::vector<bool> named(records.pages());
  named[PagedRecords<int>::page_of(200)] = true;
  records.forget(named);
  EXPECT_FALSE(records.has(0));
  EXPECT_TRUE(records.has(200));
  EXPECT_EQ(records[200], 200);
  EXPECT_TRUE(records.has(999));  // still filled
  EXPECT_FALSE(records.has(1000));
  records.grow_to(1001);
  EXPECT_TRUE(records.has(1000));
  uint64_t seen = 0;
  records.for_each([&](uint64_t, const int&) { ++seen; });
  EXPECT_LT(seen, 200u);
}

}  // namespace
}  // namespace ptxemu
