#include <gtest/gtest.h>

#include <ostream>

#include "parse_helpers.h"

namespace ptxemu {
namespace {

using Kind = Operand::Kind;

const Operand& operand(const Module& module, size_t statement, size_t place) {
  return module.functions[0].statements.at(statement).operands.at(place);
}

TEST(ParseBody, StatementsKeepWordsGuardLineAndText) {
  const auto module = parse_body(
      "\n@!%p1 cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes\n"
      "  [%r1], [%rd1, {%r2, 0}], [%r3]; // load\nret;");
  const Function& k = module->functions[0];
  ASSERT_EQ(k.statements.size(), 2u);
  const Statement& copy = k.statements[0];
  EXPECT_EQ(copy.words,
            (std::vector<std::string_view>{"cp", "async", "bulk", "tensor", "2d", "shared::cta",
                                           "global", "mbarrier::complete_tx::bytes"}));
  EXPECT_TRUE(copy.guard.present);
  EXPECT_TRUE(copy.guard.negated);
  EXPECT_EQ(k.registers[copy.guard.reg].name, "%p1");
  EXPECT_EQ(copy.line, 5u);
  EXPECT_EQ(copy.text.substr(0, 14), "@!%p1 cp.async");
  EXPECT_EQ(copy.text.substr(copy.text.size() - 5), "[%r3]");
  EXPECT_TRUE(k.statements[1].operands.empty());
}

TEST(ParseBody, BlanksMayStandBeforeQualifiers) {
  const auto module = parse_body("mov .u32 %r1 , 1 ;");
  EXPECT_EQ(module->functions[0].statements[0].words,
            (std::vector<std::string_view>{"mov", "u32"}));
}

TEST(ParseBody, OnlyRegistersThatOccurAreMade) {
  const auto module = parse_body(".reg .b32 %q<1000000000>; mov.u32 %q999999999, %q7;");
  const Function& k = module->functions[0];
  ASSERT_EQ(k.registers.size(), 2u);
  EXPECT_EQ(k.registers[0].name, "%q999999999");
  EXPECT_EQ(k.registers[1].type, Type::kB32);
}

TEST(ParseBody, OneNameIsOneRegister) {
  const auto module = parse_body("{ mov.u32 %r5, %r4; } mov.u32 %r4, %r5;");
  EXPECT_EQ(operand(*module, 0, 0).index, operand(*module, 1, 1).index);
  EXPECT_EQ(operand(*module, 0, 1).index, operand(*module, 1, 0).index);
}

TEST(ParseBody, ScopesReuseNamesOfRegistersAndLabels) {
  const auto module = parse_body(
      "{ .reg .pred p; LAB_WAIT: @p bra DONE; bra LAB_WAIT; DONE: }\n"
      "{ LAB_WAIT: .reg .b32 p; mov.b32 p, 1; bra DONE; bra LAB_WAIT; DONE: }\n");
  const Function& k = module->functions[0];
  ASSERT_EQ(k.statements.size(), 5u);
  EXPECT_EQ(operand(*module, 0, 0).index, 2u);
  EXPECT_EQ(operand(*module, 1, 0).index, 0u);
  EXPECT_EQ(operand(*module, 3, 0).index, 5u);
  EXPECT_EQ(operand(*module, 4, 0).index, 2u);
  EXPECT_EQ(k.registers[k.statements[0].guard.reg].type, Type::kPred);
  EXPECT_EQ(k.registers[operand(*module, 2, 0).index].type, Type::kB32);
  EXPECT_EQ(k.labels.size(), 4u);
}

TEST(ParseBody, InnerLabelsComeFirstAndOuterOnesAreSeenFromWithin) {
  const auto module = parse_body("{ bra L; bra M; L: trap; } L: exit; M:");
  EXPECT_EQ(operand(*module, 0, 0).index, 2u);
  EXPECT_EQ(operand(*module, 1, 0).index, 4u);  // the end
}

TEST(ParseBody, AnInnerNameHidesAnOuterRange) {
  const auto module = parse_body(
      "{ .reg .pred %r5; mov.pred %r5, 1; } mov.u32 %r5, 1; { .reg .b64 %r<9>; mov.u64 %r5, 1; }");
  const Function& k = module->functions[0];
  EXPECT_EQ(k.registers[operand(*module, 0, 0).index].type, Type::kPred);
  EXPECT_EQ(k.registers[operand(*module, 1, 0).index].type, Type::kB32);
  EXPECT_EQ(k.registers[operand(*module, 2, 0).index].type, Type::kB64);
}

TEST(ParseBody, PrefixesMayEndInDigits) {
  const auto module = parse_body(".reg .b16 a1<3>; mov.b16 a12, a10;");
  EXPECT_EQ(module->functions[0].registers[0].name, "a12");
}

TEST(ParseBody, VectorRegisters) {
  const auto module = parse_body(".reg .v4 .f32 V; mov.f32 V.w, V.r; st.v4.f32 [%rd1], V;");
  const Function& k = module->functions[0];
  EXPECT_EQ(operand(*module, 0, 0).index, operand(*module, 0, 1).index + 3);
  const Operand& whole = operand(*module, 1, 1);
  EXPECT_EQ(whole.kind, Kind::kVector);
  ASSERT_EQ(whole.list.size(), 4u);
  EXPECT_EQ(whole.list[3].index, operand(*module, 0, 0).index);
  EXPECT_EQ(k.registers[whole.list[2].index].name, "V");
}

TEST(ParseBody, Immediates) {
  const auto module = parse_body(
      "x 3, -1, 0x1FU, 017, 0b101, WARP_SZ-1, (1+2)*4, 5 % 3, 5%3;\n"
      "y 1.5, -2e-3, .5, 0f3F800000, 0D4000000000000000, 0f7F800001;");
  const uint64_t integers[] = {3, uint64_t(-1), 31, 15, 5, 31, 12, 2, 2};
  for (size_t i = 0; i < std::size(integers); ++i) {
    EXPECT_EQ(operand(*module, 0, i).kind, Kind::kInteger) << i;
    EXPECT_EQ(operand(*module, 0, i).integer, integers[i]) << i;
  }
  const double reals[] = {1.5, -2e-3, .5, 1, 2};
  for (size_t i = 0; i < std::size(reals); ++i) EXPECT_EQ(operand(*module, 1, i).real, reals[i]);
  EXPECT_FALSE(operand(*module, 1, 0).is_single);
  EXPECT_TRUE(operand(*module, 1, 3).is_single);
  EXPECT_EQ(operand(*module, 1, 3).integer, 0x3F800000u);
  EXPECT_EQ(operand(*module, 1, 5).integer, 0x7F800001u);
  EXPECT_TRUE(operand(*module, 1, 5).real != operand(*module, 1, 5).real);
}

TEST(ParseBody, Addresses) {
  const auto module = parse_body(
      ".shared .b64 s[8]; ld [%rd1], [%rd1+16], [%rd1+-16], [ %rd1 - 4 + 8 ], [s+8], [s[1]+8], "
      "[n], [0x10+4], [%dynamic_smem_size];");
  const uint64_t offsets[] = {0, 16, uint64_t(-16), 4, 8, 16, 0};
  for (size_t i = 0; i < std::size(offsets); ++i) {
    EXPECT_EQ(operand(*module, 0, i).kind, Kind::kAddress) << i;
    EXPECT_EQ(operand(*module, 0, i).integer, offsets[i]) << i;
    ASSERT_EQ(operand(*module, 0, i).list.size(), 1u);
    EXPECT_EQ(operand(*module, 0, i).list[0].integer, 0u) << i;
  }
  EXPECT_EQ(operand(*module, 0, 4).list[0].kind, Kind::kVariable);
  EXPECT_TRUE(operand(*module, 0, 4).list[0].is_local_variable);
  EXPECT_EQ(operand(*module, 0, 6).list[0].kind, Kind::kParameter);
  EXPECT_EQ(operand(*module, 0, 7).list[0].integer, 20u);
  EXPECT_EQ(operand(*module, 0, 8).list[0].kind, Kind::kSpecial);
}

TEST(ParseBody, TensorsVectorsPairsAndSinks) {
  const auto module = parse_body(
      "x [%rd1+64, {%r1, -2, _}, {%r3}], {%r1, %f2, 1.0, 7}, %r1|%p1, _|%p2, _, !%p3, !0;");
  const Operand& tensor = operand(*module, 0, 0);
  EXPECT_EQ(tensor.kind, Kind::kTensor);
  EXPECT_EQ(tensor.integer, 64u);
  ASSERT_EQ(tensor.list.size(), 3u);
  EXPECT_EQ(tensor.list[1].kind, Kind::kVector);
  EXPECT_EQ(tensor.list[1].list[1].integer, uint64_t(-2));
  EXPECT_EQ(tensor.list[2].list.size(), 1u);
  EXPECT_EQ(operand(*module, 0, 1).list[2].kind, Kind::kFloat);
  EXPECT_EQ(operand(*module, 0, 2).kind, Kind::kPair);
  EXPECT_EQ(operand(*module, 0, 3).list[0].kind, Kind::kSink);
  EXPECT_EQ(operand(*module, 0, 4).kind, Kind::kSink);
  EXPECT_TRUE(operand(*module, 0, 5).negated);
  EXPECT_EQ(operand(*module, 0, 6).integer, 1u);
  EXPECT_EQ(operand(*module, 0, 1).text, "{%r1, %f2, 1.0, 7}");
}

TEST(ParseBody, SpecialRegisters) {
  const auto module =
      parse_body("x %tid.x, %laneid, %cluster_nctaid.z, %pm3_64, %envreg31, %ctaid;");
  const char* names[] = {"tid.x", "laneid", "cluster_nctaid.z", "pm3_64", "envreg31", "ctaid"};
  for (size_t i = 0; i < std::size(names); ++i) {
    EXPECT_EQ(operand(*module, 0, i).kind, Kind::kSpecial);
    EXPECT_EQ(operand(*module, 0, i).text, names[i]);
  }
}

TEST(ParseBody, VariablesOfTheModuleAndOfTheFunction) {
  const auto module = parse_text(
      ".global .u32 x; .global .u32 g[4];\n.entry k(.param .u64 n) { .reg .b64 a; .local .b32 x;\n"
      "mov.u64 a, x; mov.u64 a, g+8; mov.b64 a, n; mov.u64 a, g[3]; }");
  EXPECT_TRUE(operand(*module, 0, 1).is_local_variable);
  EXPECT_EQ(operand(*module, 1, 1).kind, Kind::kVariable);
  EXPECT_FALSE(operand(*module, 1, 1).is_local_variable);
  EXPECT_EQ(operand(*module, 1, 1).index, 1u);
  EXPECT_EQ(operand(*module, 1, 1).integer, 8u);
  EXPECT_EQ(operand(*module, 2, 1).kind, Kind::kParameter);
  EXPECT_EQ(operand(*module, 3, 1).integer, 12u);
}

TEST(ParseBody, Calls) {
  const auto module = parse_text(
      ".func (.param .b32 r) f (.param .b32 a);\n.entry k { .reg .b64 %rd<3>; .reg .b32 %r<3>;\n"
      "{ .param .b32 param0; .param .b32 retval0;\n"
      "call.uni\n (retval0),\n f,\n (\n param0\n );\n"
      "proto : .callprototype (.param .b32 _) _ (.param .b32 _, .param .b8 _[12]) .noreturn;\n"
      "call (retval0), %rd1, (param0), proto; call later, (5, %r1); mov.u64 %rd1, later; call g; "
      "}\n"
      "list: .calltargets f, later; call %rd1, list; }\n"
      ".func later(.reg .b32 a, .reg .b32 b) { ret; }\n.func g { ret; }");
  const Function& k = module->functions[1];
  const auto at = [&](size_t s, size_t i) -> const Operand& { return k.statements[s].operands[i]; };
  EXPECT_EQ(at(0, 0).kind, Kind::kList);
  EXPECT_TRUE(at(0, 0).list[0].is_local_variable);
  EXPECT_EQ(at(0, 1).kind, Kind::kFunction);
  EXPECT_EQ(at(0, 1).text, "f");
  EXPECT_EQ(at(0, 2).list.size(), 1u);
  EXPECT_EQ(at(1, 1).kind, Kind::kRegister);
  EXPECT_EQ(at(1, 3).kind, Kind::kTargets);
  EXPECT_TRUE(k.targets[at(1, 3).index].is_prototype);
  EXPECT_EQ(at(2, 0).kind, Kind::kFunction);
  EXPECT_EQ(at(2, 1).list[0].integer, 5u);
  EXPECT_EQ(at(3, 1).text, "later");
  EXPECT_EQ(at(4, 0).kind, Kind::kFunction);
  EXPECT_EQ(k.targets[at(5, 1).index].functions, (std::vector<std::string_view>{"f", "later"}));
}

TEST(ParseBody, BranchTargets) {
  const auto module =
      parse_body("L0: L1: trap; L2: ts: .branchtargets L2, L<2>, END; @%p1 brx.idx %r1, ts; END:");
  const Function& k = module->functions[0];
  ASSERT_EQ(operand(*module, 1, 1).kind, Kind::kTargets);
  EXPECT_EQ(k.targets[operand(*module, 1, 1).index].statements,
            (std::vector<uint32_t>{1, 0, 0, 2}));
}

TEST(ParseBody, SourceLocations) {
  const auto module = parse_body(
      "trap;\n.loc 2 4237 5\ntrap;\n"
      ".loc 1 10 3, function_name .debug_str+16, inlined_at 2 4237 5\ntrap; trap;");
  const Function& k = module->functions[0];
  EXPECT_EQ(k.statements[0].source, 0u);
  const SourceLocation& outer = k.sources[k.statements[1].source];
  EXPECT_EQ(outer.file, 2u);
  EXPECT_EQ(outer.line, 4237u);
  EXPECT_EQ(outer.column, 5u);
  EXPECT_EQ(outer.inlined_at, 0u);
  EXPECT_EQ(k.sources[k.statements[3].source].inlined_at, k.statements[1].source);
}

TEST(ParseBody, NamesOf300Characters) {
  const std::string name(300, 'x');
  const auto module = parse_text(".shared .b32 " + name + ";\n.entry k" + name + " { ld [" + name +
                                 "]; bra L" + name + "; L" + name + ": }");
  EXPECT_EQ(operand(*module, 0, 0).list[0].text, name);
  EXPECT_EQ(operand(*module, 1, 0).index, 2u);
}

struct Mistake {
  const char* body;
  const char* said;
  friend void PrintTo(const Mistake& mistake, std::ostream* out) { *out << mistake.body; }
};

class BodyMistakes : public testing::TestWithParam<Mistake> {};

TEST_P(BodyMistakes, SayLineTextAndWhatIsAccepted) {
  const std::string said = body_error(GetParam().body);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, GetParam().said, said);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "PTX line 4: ", said);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "accepted", said);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, std::string("in `") + GetParam().body, said);
}

INSTANTIATE_TEST_SUITE_P(
    All, BodyMistakes,
    testing::Values(
        Mistake{"mov.u32 %r1, %r100;", "`%r100` is not declared; accepted: a register"},
        Mistake{"mov.u32 %r1, %r01;", "`%r01` is not declared"},
        Mistake{"mov.u32 %r1 %r2;", "`%r2` after `mov`; accepted: ';', or ',' and an operand"},
        Mistake{"mov.u32 %r1, ;", "expected an operand, not `;`; accepted: a register"},
        Mistake{"mov.u32. %r1, 1;", "expected a qualifier after the dot; accepted: a word"},
        Mistake{"ld.u32 %r1, [x];", "`x` is not declared; accepted: a register or variable"},
        Mistake{"ld.u32 %r1, [%rd1+%r2];", "`%r2` after + in an address; accepted: a constant"},
        Mistake{"ld.u32 %r1, [];", "expected an address after [, not `]`"},
        Mistake{"ld.u32 %r1, [1.5];", "a float is no address; accepted: a register"},
        Mistake{"ld.u32 %r1, [%rd1, %r2];",
                "`%r2` after the comma of an address; accepted: coordinates"},
        Mistake{"bra L;", "`L` is not defined here; accepted: a register, variable, parameter or"},
        Mistake{"add.s32 L, 1, 2;", "`L` is not defined here"},
        Mistake{"call f;", "`f` is not defined; accepted: a register, variable or label of its"},
        Mistake{"{ L: } bra L;", "`L` is not defined here"},
        Mistake{"L: L: ret;", "the label `L` is there twice in its scope"},
        Mistake{"@%r1 ret;", "`%r1` is no predicate; accepted after @"},
        Mistake{"@%p1 { ret; }", "a predicate before a block in braces; accepted: before one"},
        Mistake{".reg .b32 %r<3>;", "`%r` is declared twice in its scope"},
        Mistake{".reg .b32 a, a;", "`a` is declared twice in its scope"},
        Mistake{".reg .b32 n;", "`n` is declared twice in its scope"},
        Mistake{".reg .b32 a<1000000001>;",
                "a number of registers of 1000000001; accepted: an integer from 0 to"},
        Mistake{".shared .b32 a<65537>;",
                "a number of variables of 65537; accepted: an integer from 0 to"},
        Mistake{".reg .align 4 .b32 a;", "unknown `.align` in a .reg declaration"},
        Mistake{".foo;", "unknown directive `.foo` in a body; accepted: .reg"},
        Mistake{".branchtargets L;", "no label before .branchtargets; accepted: NAME: .branch"},
        Mistake{"x !%r1|%p1;", "`|` after `x`; accepted: ';'"},
        Mistake{"x %p1|n;", "| beside what is no register; accepted: registers, _"},
        Mistake{"x !n;", "`!n`; accepted: ! before a predicate register"},
        Mistake{"x %r1.x;", "a component of a register that is no vector; accepted: the"},
        Mistake{"x %tid.u;", "`.u` after %tid; accepted: .x, .y, .z, .w"},
        Mistake{"x 1/0;", "a constant expression divides by zero; accepted: any other"},
        Mistake{"x 089;", "`089` is no integer of 64 bits; accepted: digits of base 8"},
        Mistake{"x 18446744073709551616;", "is no integer of 64 bits; accepted: digits of base 10"},
        Mistake{"x 0f3F80;", "`0f3F80` is no float; accepted: 0f and 8 hexadecimal digits"},
        Mistake{"x 1+1.5;", "+ of an integer and a float"},
        Mistake{".loc 1 2 3, inlined 1 2 3;", "unknown `inlined` in .loc"},
        Mistake{";", "expected a statement, not `;`; accepted: an instruction"}));

TEST(ParseBody, DepthHasALimit) {
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "braces nested deeper than 64",
                      body_error(std::string(100000, '{')));
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "nested deeper than 100",
                      body_error("x " + std::string(100000, '(')));
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "nested deeper than 100",
                      body_error("x " + std::string(100000, '-')));
  std::string chain = "x 1";
  for (int i = 0; i < 1000; ++i) chain += " ? 1 : 1";
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "nested deeper than 100", body_error(chain + ";"));
}

TEST(ParseBody, FarRegistersTakeNoTable) {
  std::string body;
  for (int i = 0; i < 2000; ++i) {
    const std::string name = "a" + std::to_string(i) + "_";
    body += ".reg .b32 " + name + "<900000000>; mov " + name + "899999999, " + name + "1;\n";
  }
  EXPECT_EQ(parse_body(body)->functions[0].registers.size(), 4000u);
}

}  // namespace
}  // namespace ptxemu
