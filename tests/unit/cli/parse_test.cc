#include "parse.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "failure.h"
#include "io/csv.h"

namespace fa4::cli {
namespace {

using namespace fa4::internal;

TEST(Parse, WholeNumbers) {
  EXPECT_EQ(parse_int("--n", "-1", -1, 5), -1);
  for (const char* text : {"", "x", "1x", " 1", "+1", "6", "-2", "1.0", "99999999999999999999"}) {
    EXPECT_THROW(parse_int("--n", text, -1, 5), Failure) << text;
  }
}

TEST(Parse, Numbers) {
  EXPECT_EQ(parse_float("--x", "-2.5e-3"), -2.5e-3f);
  for (const char* text : {"", "nan", "inf", "1,5", "0x10", "1e999", "1e39", "1e-60"}) {
    EXPECT_THROW(parse_float("--x", text), Failure) << text;
  }
}

TEST(Parse, Sizes) {
  EXPECT_EQ(parse_head_dim("--d", "8"), 8);
  EXPECT_EQ(parse_head_dim("--d", "256"), 256);
  for (const char* text : {"", "0", "-8", "4", "12", "264", "8x"}) {
    EXPECT_THROW(parse_head_dim("--d", text), Failure) << text;
  }
  ProblemDesc desc;
  desc.dtype = DType::kBF16;
  desc.head_dim = 8;
  desc.heads_q = desc.heads_kv = fa4::internal::kMaxHeads;
  EXPECT_NO_THROW(AttentionProblem::make(desc));
  desc.heads_q = desc.heads_kv = fa4::internal::kMaxHeads + 1;
  EXPECT_THROW(AttentionProblem::make(desc), Error);
}

TEST(Parse, Lists) {
  EXPECT_EQ(parse_int_list("--n", "1,20,3", 0, 100), (std::vector<int64_t>{1, 20, 3}));
  for (const char* text : {"", ",", "1,", ",1", "1,,2", "1,101"}) {
    EXPECT_THROW(parse_int_list("--n", text, 0, 100), Failure) << text;
  }
}

TEST(Parse, AMessageNamesOptionValueAndWhatIsAccepted) {
  try {
    parse_int("--batch", "many", 0, 7);
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_STREQ(failure.what(), "--batch many; accepted: a whole number from 0 to 7");
    EXPECT_EQ(failure.code(), kBadInput);
  }
}

TEST(Parse, OneLine) {
  EXPECT_EQ(one_line("a\nb\n\nc\n"), "a; b; c");
  EXPECT_EQ(one_line(""), "");
  EXPECT_EQ(one_line("a\tb \x1b[1m\x7f \xc3\xa9"), "a b \\x1b[1m\\x7f \xc3\xa9");
  EXPECT_EQ(one_line("\xe2\x82\xac \xf0\x9f\x98\x80"), "\xe2\x82\xac \xf0\x9f\x98\x80");
  EXPECT_EQ(one_line("read '\xc3'"), "read '\\xc3'");  // what an excerpt has cut
  EXPECT_EQ(one_line("\xff\xe2\x82 \xc0\xaf"), "\\xff\\xe2\\x82 \\xc0\\xaf");
  EXPECT_EQ(one_line("\xed\xa0\x80"), "\\xed\\xa0\\x80");
  EXPECT_TRUE(is_utf8("") && is_utf8("a\t\xe2\x82\xac"));
  EXPECT_FALSE(is_utf8("x\xff") || is_utf8("x\xe2\x82") || is_utf8("\xed\xa0\x80"));
}

TEST(Failure, SaysAllOfATextWithAByteZero) {
  using namespace std::string_literals;
  const std::string text = "has dtype <f4\0; accepted: f4"s;
  EXPECT_STREQ(bad_input(text).what(), "has dtype <f4\\x00; accepted: f4");
}

TEST(Csv, QuotesWhatNeedsIt) {
  std::string text;
  append_csv(text, {"plain", "a,b", "say \"x\"", ""});
  EXPECT_EQ(text, "plain,\"a,b\",\"say \"\"x\"\"\",\n");
}

}  // namespace
}  // namespace fa4::cli
