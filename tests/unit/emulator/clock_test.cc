// What is known already costs nothing to learn again.
#include "emulator/observe/clock.h"

#include <gtest/gtest.h>

namespace ptxemu {
namespace {

ForeignClocks clocks_of(uint64_t first, uint64_t last, uint32_t epoch) {
  ForeignClocks clocks;
  for (uint64_t cluster = first; cluster <= last; ++cluster) {
    clocks[cluster].generic.set(0, epoch);
  }
  return clocks;
}

TEST(ForeignClocks, AreCopiedOnlyWhereSomethingIsNew) {
  Knowledge knows;
  join(knows.foreign, ForeignClocks{});
  EXPECT_EQ(knows.foreign, nullptr);
  join(knows.foreign, clocks_of(1, 5, 2));
  const std::shared_ptr<const ForeignClocks> known = knows.foreign;
  join(knows.foreign, clocks_of(1, 5, 2));
  join(knows.foreign, clocks_of(2, 4, 1));
  Knowledge less;
  join(less.foreign, clocks_of(3, 3, 2));
  knows.join(less);
  EXPECT_EQ(knows.foreign, known);

  for (const ForeignClocks& news : {clocks_of(6, 6, 1), clocks_of(5, 5, 3)}) {
    const std::shared_ptr<const ForeignClocks> before = knows.foreign;
    join(knows.foreign, news);
    EXPECT_NE(knows.foreign, before);
    EXPECT_TRUE(covers(*knows.foreign, *before));
    EXPECT_TRUE(covers(*knows.foreign, news));
    EXPECT_FALSE(covers(*before, news));
  }
  EXPECT_EQ(known->size(), 5u) << "what others share has changed";
}

TEST(ForeignClocks, AreShownToTheAsynchronousProxyOnce) {
  Knowledge knows;
  join(knows.foreign, clocks_of(1, 3, 4));
  knows.show_foreign_to_async();
  EXPECT_EQ(knows.foreign->at(2).async_global.at(0), 4u);
  const std::shared_ptr<const ForeignClocks> shown = knows.foreign;
  knows.show_foreign_to_async();
  EXPECT_EQ(knows.foreign, shown);
}

TEST(ForeignClocks, AreSharedWhereOneKnowsAll) {
  Knowledge all, some, more;
  join(all.foreign, clocks_of(1, 5, 2));
  join(some.foreign, clocks_of(2, 3, 1));
  join(more.foreign, clocks_of(2, 2, 3));
  some.join(all);
  EXPECT_EQ(some.foreign, all.foreign);
  more.join(all);
  EXPECT_NE(more.foreign, all.foreign);
  EXPECT_TRUE(covers(*more.foreign, *all.foreign));
  EXPECT_EQ(more.foreign->at(2).generic.at(0), 3u);
  EXPECT_EQ(all.foreign->at(2).generic.at(0), 2u);
}

TEST(Heard, AWordIsNewsOncePerRelease) {
  Heard heard, later;
  EXPECT_FALSE(heard.knows(64, 1));
  heard.note(64, 1);
  EXPECT_TRUE(heard.knows(64, 1));
  EXPECT_FALSE(heard.knows(68, 1));
  EXPECT_FALSE(heard.knows(64, 2));
  heard.note_own(64, 2);
  EXPECT_TRUE(heard.knows(64, 2));
  heard.note_own(64, 4);  // somebody else made the third
  EXPECT_FALSE(heard.knows(64, 4));
  heard.note_own(68, 2);
  EXPECT_FALSE(heard.knows(68, 2));
  later.note(64, 4);
  heard.take(later);
  EXPECT_TRUE(heard.knows(64, 4));
}

TEST(Told, IsSharedUntilTwoTellOfDifferentThings) {
  const auto some = std::make_shared<const ForeignClocks>(clocks_of(1, 3, 2));
  const auto more = std::make_shared<const ForeignClocks>(clocks_of(1, 4, 2));
  const auto other = std::make_shared<const ForeignClocks>(clocks_of(7, 7, 1));
  Told<ForeignClocks> told;
  EXPECT_TRUE(told.none());
  told.add(some);
  EXPECT_EQ(&told.all(), some.get());
  told.add(more);
  EXPECT_EQ(&told.all(), more.get());
  told.add(other);
  EXPECT_FALSE(told.is_shared());
  told.add(some);
  EXPECT_TRUE(covers(told.all(), *more) && covers(told.all(), *other));
  EXPECT_FALSE(covers(*more, *other)) << "what others share has changed";
  told.clear();
  EXPECT_TRUE(told.none());
}

TEST(Told, OfWhatAWarpKnowsLosesNothing) {
  const auto one = std::make_shared<Knowledge>(), two = std::make_shared<Knowledge>();
  one->generic.set(0, 3);
  two->generic.set(0, 3);
  two->async_shared.set(0, 1);
  Told<Knowledge> told;
  told.add(two);
  told.add(one);  // tells less
  EXPECT_FALSE(told.is_shared());
  EXPECT_EQ(told.all().async_shared.at(0), 1u);
  EXPECT_TRUE(covers(told.all(), *one) && covers(told.all(), *two));
}

}  // namespace
}  // namespace ptxemu
