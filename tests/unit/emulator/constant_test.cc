#include "emulator/parse/constant.h"

#include <gtest/gtest.h>

#include <ostream>
#include <string>

namespace ptxemu::parse {
namespace {

Constant value_of(const std::string& text) {
  Lexer lexer(text);
  const Constant value = parse_constant(lexer);
  EXPECT_EQ(lexer.peek().kind, TokenKind::kEnd) << text;
  return value;
}

struct Row {
  const char* text;
  uint64_t value;
  bool is_unsigned;
  friend void PrintTo(const Row& row, std::ostream* out) { *out << row.text; }
};

class Integers : public testing::TestWithParam<Row> {};

TEST_P(Integers, AreThoseOfTheManual) {
  const Constant value = value_of(GetParam().text);
  EXPECT_FALSE(value.is_float) << GetParam().text;
  EXPECT_EQ(value.integer, GetParam().value) << GetParam().text;
  EXPECT_EQ(value.is_unsigned, GetParam().is_unsigned) << GetParam().text;
}

// "Integer Constants", "Integer Constant Expression Evaluation"; PTX ISA 4.5.1, 4.5.5.
INSTANTIATE_TEST_SUITE_P(
    All, Integers,
    testing::Values(Row{"42", 42, false}, Row{"0x1234", 0x1234, false}, Row{"0123", 83, false},
                    Row{"0xfabc123400000000", 0xfabc123400000000, true}, Row{"42U", 42, true},
                    Row{"0x1234U", 0x1234, true}, Row{"0b1101", 13, false}, Row{"0", 0, false},
                    Row{"+123", 123, false}, Row{"-(-42)", 42, false}, Row{"-1U", ~0ull, true},
                    Row{"!5", 0, false}, Row{"!0U", 1, false}, Row{"~0", ~0ull, true},
                    Row{"2+3*4", 14, false}, Row{"(2+3)*4", 20, false}, Row{"10-4-3", 3, false},
                    Row{"-7/2", uint64_t(-3), false}, Row{"-7/2U", (0ull - 7) / 2, true},
                    Row{"7%4", 3, false}, Row{"-1 % 16", 15, false},
                    Row{"-8>>1", uint64_t(-4), false}, Row{"(.u64)-8>>60", 15, true},
                    Row{"(.s64)0x8000000000000000 >> 63", ~0ull, false}, Row{"1<<64", 0, false},
                    Row{"-1>>99", ~0ull, false}, Row{"-1 < 0", 1, false}, Row{"-1 < 0U", 0, false},
                    Row{"3 >= 3", 1, false}, Row{"3 <= 2", 0, false}, Row{"4 > 3", 1, false},
                    Row{"3 > 3", 0, false}, Row{"3 == 3U", 1, false}, Row{"3 != 3", 0, false},
                    Row{"6 & 3", 2, true}, Row{"6 | 3", 7, true}, Row{"6 ^ 3", 5, true},
                    Row{"1 | 2 ^ 3 & 2", 1, true}, Row{"2 && 0", 0, false}, Row{"2 || 0", 1, false},
                    Row{"1 ? 2 : 3", 2, false}, Row{"0 ? 1 : 0 ? 2 : 3U", 3, true},
                    Row{"-0x8000000000000000 / -1", 0, true},
                    Row{"(-9223372036854775807 - 1) / -1", 0x8000000000000000, false},
                    Row{"1.5 < 2.5", 1, false}, Row{"WARP_SZ*2", 64, false}));

TEST(Constants, Floats) {
  EXPECT_EQ(value_of("1.5+.5*3.0").real, 3);
  EXPECT_EQ(value_of("-1.25e2").real, -125);
  EXPECT_EQ(value_of("1 ? 0.5 : 2.0").real, .5);
  EXPECT_EQ(value_of("0d4000000000000000").real, 2);
  EXPECT_EQ(value_of("0d4000000000000000").integer, 0x4000000000000000u);
  EXPECT_TRUE(value_of("0F3f800000").is_single);
  EXPECT_FALSE(value_of("0f3F800000+1.0").is_single);
  EXPECT_EQ(value_of("-0f3F800000").real, -1);
}

TEST(Constants, Mistakes) {
  for (const char* text : {"", "x", "1 +", "(1", "1 ? 2", "1.5 & 1.5", "!1.5", "1 ? 2 : 1.5",
                           "5 % 0", "1.5 ? 1 : 2", "0x", "0b2", "1e999", "12ab", "(.u32) 1"}) {
    Lexer lexer(text);
    EXPECT_THROW(parse_constant(lexer), Error) << text;
  }
}

TEST(Constants, ATermEndsAtASum) {
  Lexer lexer("2*3+4");
  EXPECT_EQ(parse_term(lexer).integer, 6u);
  EXPECT_TRUE(lexer.peek().is('+'));
}

}  // namespace
}  // namespace ptxemu::parse
