#include "with_option.h"

#include <gtest/gtest.h>

namespace fa4::cli {
namespace {

// A command of one problem, and one of files, with what was given to them.
struct Given {
  std::optional<std::string> batch, seqlen_q, seqlen_k, head_dim, head_dim_v, page_size;
  std::vector<std::string> window;
  Options options;
  Given() {
    options.add_option("--batch", batch);
    options.add_option("--seqlen-q", seqlen_q);
    options.add_option("--seqlen-k", seqlen_k);
    options.add_option("--head-dim", head_dim);
    options.add_option("--head-dim-v", head_dim_v);
    options.add_option("--page-size", page_size);
    options.add_option("--window", window);
  }
};

struct GivenFiles {
  std::string q = "q.npy", k = "k.npy", v = "v.npy";
  Options options;
  GivenFiles() {
    options.add_option("--q", q);
    options.add_option("--k", k);
    options.add_option("--v", v);
  }
};

TEST(WithOption, TakesTheArgumentsPlaceWhereTheUserTypedItsValue) {
  Given given;
  EXPECT_EQ(with_option("seqlen_q 5; accepted: 4", given.options),
            "--seqlen-q: seqlen_q 5; accepted: 4");
  given.seqlen_q = "5";
  EXPECT_EQ(with_option("seqlen_q 5; accepted: 4", given.options), "--seqlen-q 5; accepted: 4");
  given.seqlen_q = "4,5";
  EXPECT_EQ(with_option("seqlen_q 5; accepted: 4", given.options),
            "--seqlen-q 4,5: seqlen_q 5; accepted: 4");
  given.window = {"-2", "0"};
  EXPECT_EQ(with_option("window_left -2; accepted: -1", given.options),
            "--window -2 0: window_left -2; accepted: -1");
  EXPECT_EQ(with_option("softcap -1; accepted: 0", given.options), "softcap -1; accepted: 0");
  EXPECT_EQ(with_option("batchwise", given.options), "batchwise");
}

TEST(WithOption, ASizeThatWasNotGivenIsItsPartners) {
  Given given;
  given.seqlen_q = "7";
  EXPECT_EQ(with_option("seqlen_k 7; accepted: 4", given.options), "--seqlen-q 7; accepted: 4");
  given.seqlen_k = "8";
  EXPECT_EQ(with_option("seqlen_k 8; accepted: 4", given.options), "--seqlen-k 8; accepted: 4");
  EXPECT_EQ(with_option("seqlen_k 8; accepted: 4", GivenFiles().options),
            "--k k.npy: seqlen_k 8; accepted: 4");
}

TEST(WithOption, StridesAreOfTheSizeThatMakesThem) {
  Given given;
  const GivenFiles files;
  given.batch = "2", given.seqlen_q = "9", given.head_dim = "24";
  for (const char* stride : {"batch stride 408", "seqlen stride 24", "head stride 24"}) {
    const std::string message = std::string(stride) + " of k is 24 bytes; accepted: 16";
    EXPECT_EQ(with_option(message, given.options), "--head-dim 24: " + message);
    EXPECT_EQ(with_option(message, files.options), "--k k.npy: " + message);
  }
  const std::string of_v = "head stride 40 of v is 40 bytes; accepted: 16";
  EXPECT_EQ(with_option(of_v, given.options), "--head-dim 24: " + of_v);
  given.head_dim_v = "40";
  EXPECT_EQ(with_option(of_v, given.options), "--head-dim-v 40: " + of_v);
  EXPECT_EQ(with_option(of_v, files.options), "--v v.npy: " + of_v);
  const std::string of_out = "head stride 40 of out is 40 bytes; accepted: 16";
  EXPECT_EQ(with_option(of_out, given.options), "--head-dim-v 40: " + of_out);
  const std::string too_long =
      "batch stride 549755813888 of k is 1099511627776 bytes; accepted: 16";
  EXPECT_EQ(with_option(too_long, given.options), "--seqlen-q 9: " + too_long);
  given.page_size = "64";
  EXPECT_EQ(with_option(too_long, given.options), "--page-size 64: " + too_long);
  const std::string of_dq = "batch stride 549755813888 of dq is 1099511627776 bytes; accepted: 16";
  EXPECT_EQ(with_option(of_dq, given.options), "--seqlen-q 9: " + of_dq);
  EXPECT_EQ(with_option(of_dq, files.options), "--q q.npy: " + of_dq);
}

TEST(WithOption, ATensorIsTooLargeForItsSequences) {
  Given given;
  given.batch = "3";
  const std::string message = "dk of 3 x 4 x 5 x 6 elements is too large; accepted: 2";
  EXPECT_EQ(with_option(message, given.options), "--batch 3: " + message);
}

}  // namespace
}  // namespace fa4::cli
