#include <gtest/gtest.h>

#include <ostream>

#include "parse_helpers.h"

namespace ptxemu {
namespace {

TEST(ParseModule, HeaderAndFiles) {
  const auto module = parse_module(
      "// made by hand\r\n.version 9.4\r\n.target sm_103a, debug\r\n.address_size 64\r\n"
      ".file 1 \"a b.cu\", 1339013327, 64118\r\n.file 2 \"c.h\"\r\n",
      "m.ptx");
  EXPECT_EQ(module->version, 94u);
  EXPECT_EQ(module->target, "sm_103a");
  EXPECT_EQ(module->file_name, "m.ptx");
  ASSERT_EQ(module->files.size(), 2u);
  EXPECT_EQ(module->files[0].first, 1u);
  EXPECT_EQ(module->files[0].second, "a b.cu");
}

TEST(ParseModule, Variables) {
  const auto module = parse_text(
      ".extern .shared .align 1024 .b8 smem[];\n"
      ".visible .global .align 16 .v4 .f32 a[3][5], b;\n"
      ".shared .b64 c<3>;\n"
      ".common .global .attribute(.managed) .u16 d;\n");
  ASSERT_EQ(module->variables.size(), 7u);
  const Variable& smem = module->variables[0];
  EXPECT_EQ(smem.space, Space::kShared);
  EXPECT_EQ(smem.align, 1024u);
  EXPECT_EQ(smem.bytes, 0u);
  EXPECT_TRUE(smem.is_extern);
  EXPECT_TRUE(smem.is_unsized);
  EXPECT_EQ(smem.line, 3u);
  const Variable& a = module->variables[1];
  EXPECT_EQ(a.type, Type::kF32);
  EXPECT_EQ(a.vector, 4u);
  EXPECT_EQ(a.count, 15u);
  EXPECT_EQ(a.bytes, 240u);
  EXPECT_EQ(module->variables[2].bytes, 16u);
  EXPECT_EQ(module->variables[5].name, "c2");
  EXPECT_EQ(module->variables[5].align, 8u);
  EXPECT_EQ(module->variables[6].type, Type::kU16);
}

TEST(ParseModule, ADefinitionReplacesAnExternDeclaration) {
  const auto module = parse_text(
      ".extern .global .align 32 .u32 x[4];\n.visible .global .u32 x[4] = {7};\n"
      ".extern .shared .b8 s[];\n.extern .shared .align 64 .b8 s[];\n");
  ASSERT_EQ(module->variables.size(), 2u);
  EXPECT_FALSE(module->variables[0].is_extern);
  EXPECT_EQ(module->variables[0].align, 32u);
  ASSERT_EQ(module->variables[0].init.size(), 1u);
  EXPECT_EQ(module->variables[1].align, 64u);
}

TEST(ParseModule, Initializers) {
  const auto module = parse_text(
      ".global .b32 x[3][2] = {{1, 2}, {-3}};\n"
      ".const .f32 f[] = {.05, 1.5e3, 0f3F800000, 2};\n"
      ".global .v2 .u16 v[2] = {{1, 2}, {3, 4}};\n");
  const std::vector<Initializer>& x = module->variables[0].init;
  ASSERT_EQ(x.size(), 3u);
  EXPECT_EQ(x[1].byte_offset, 4u);
  EXPECT_EQ(x[2].byte_offset, 8u);
  EXPECT_EQ(x[2].integer, uint64_t(-3));
  const Variable& f = module->variables[1];
  EXPECT_EQ(f.count, 4u);
  EXPECT_EQ(f.bytes, 16u);
  EXPECT_FALSE(f.is_unsized);
  ASSERT_EQ(f.init.size(), 4u);
  EXPECT_EQ(f.init[0].real, .05);
  EXPECT_EQ(f.init[1].real, 1500);
  EXPECT_TRUE(f.init[2].is_single);
  EXPECT_EQ(f.init[2].integer, 0x3F800000u);
  EXPECT_EQ(f.init[3].kind, Initializer::Kind::kFloat);
  EXPECT_EQ(f.init[3].real, 2);
  EXPECT_EQ(module->variables[2].init[3].byte_offset, 6u);
}

TEST(ParseModule, AddressesInInitializers) {
  const auto module = parse_text(
      ".global .b8 s[8];\n.extern .func g();\n"
      ".global .u64 p[3] = {generic(s)+4, s, g};\n"
      ".global .b8 m[4] = {0xFF(s), 0xFF00(generic(s)+1), 0xFF00(1000 + 546), 255};\n");
  const std::vector<Initializer>& p = module->variables[1].init;
  EXPECT_EQ(p[0].kind, Initializer::Kind::kAddress);
  EXPECT_TRUE(p[0].generic);
  EXPECT_EQ(p[0].integer, 4u);
  EXPECT_EQ(p[0].symbol, "s");
  EXPECT_FALSE(p[1].generic);
  EXPECT_EQ(p[2].symbol, "g");
  const std::vector<Initializer>& m = module->variables[2].init;
  EXPECT_EQ(m[0].mask, 0xFFu);
  EXPECT_EQ(m[1].mask, 0xFF00u);
  EXPECT_TRUE(m[1].generic);
  EXPECT_EQ(m[2].kind, Initializer::Kind::kInteger);
  EXPECT_EQ(m[2].integer, 1546u >> 8);
  EXPECT_EQ(m[3].byte_offset, 3u);
}

TEST(ParseModule, KernelHeader) {
  const auto module = parse_text(
      ".visible .entry k(\n\t.param .u64 .ptr .global .align 16 a,\n"
      "\t.param .align 64 .b8 map[128],\n\t.param .u64 .ptr.shared.align 4 c\n)\n"
      ".maxntid 64, 2 .minnctapersm 3 .maxnreg 168\n.explicitcluster .maxclusterrank 8\n"
      ".pragma \"nounroll\";\n{ ret; }\n"
      ".entry c .reqntid 32 .reqnctapercluster 2, 1, 1 .blocksareclusters { ret; }\n");
  const Function& k = module->functions[0];
  EXPECT_TRUE(k.is_entry);
  EXPECT_EQ(k.line, 3u);
  ASSERT_EQ(k.params.size(), 3u);
  EXPECT_EQ(k.params[1].bytes, 128u);
  EXPECT_EQ(k.params[1].align, 64u);
  EXPECT_EQ(k.params[0].space, Space::kParam);
  EXPECT_EQ(extents(k.maxntid), (std::vector<uint32_t>{64, 2, 1}));
  EXPECT_EQ(k.minnctapersm, 3u);
  EXPECT_EQ(k.maxnreg, 168u);
  EXPECT_EQ(k.maxclusterrank, 8u);
  EXPECT_TRUE(k.explicitcluster);
  const Function& c = module->functions[1];
  EXPECT_EQ(extents(c.reqntid), (std::vector<uint32_t>{32, 1, 1}));
  EXPECT_EQ(extents(c.reqnctapercluster), (std::vector<uint32_t>{2, 1, 1}));
  EXPECT_TRUE(c.blocksareclusters);
  EXPECT_FALSE(c.explicitcluster);
}

TEST(ParseModule, FunctionsDeclarationsAndAliases) {
  const auto module = parse_text(
      ".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);\n"
      ".func (.reg .b32 r) f (.reg .b32 a, .param .align 8 .b8 s[12]);\n"
      ".visible .func other (.param .b64 x) .noreturn;\n"
      ".func (.reg .b32 r) f (.reg .b32 a, .param .align 8 .b8 s[12])\n"
      "{ add.s32 r, a, 1; ret; }\n"
      ".alias other, f;\n");
  ASSERT_EQ(module->functions.size(), 3u);
  EXPECT_TRUE(module->find("vprintf")->is_declaration);
  const Function* f = module->find("f");
  ASSERT_NE(f, nullptr);
  EXPECT_FALSE(f->is_declaration);
  ASSERT_EQ(f->results.size(), 1u);
  EXPECT_EQ(f->results[0].space, Space::kReg);
  EXPECT_EQ(f->registers[f->result_registers[0]].name, "r");
  EXPECT_EQ(f->registers[f->param_registers[0]].name, "a");
  EXPECT_EQ(f->param_registers[1], kNoRegister);
  EXPECT_EQ(f->statements[0].operands[0].index, f->result_registers[0]);
  EXPECT_EQ(module->find("other"), f);
  EXPECT_EQ(module->find("nothing"), nullptr);
}

TEST(ParseModule, ANameStandsForTheFirstDefinitionElseTheLastDeclaration) {
  const auto module = parse_text(
      ".func own { ret; }\n.func first { ret; }\n.func second { ret; }\n"
      ".func declared;\n.func also_declared;\n.func b;\n.func c;\n"
      ".alias own, first;\n"
      ".alias a, declared;\n.alias a, first;\n.alias a, second;\n"
      ".alias b, declared;\n.alias b, also_declared;\n.alias c, c;\n"
      ".alias of_alias, a;\n");
  EXPECT_EQ(module->find("own")->name, "own");
  EXPECT_EQ(module->find("a")->name, "first");
  EXPECT_EQ(module->find("b")->name, "also_declared");
  EXPECT_EQ(module->find("c")->name, "c");
  EXPECT_EQ(module->find("of_alias"), nullptr);
}

TEST(ParseModule, DebugDataIsSkipped) {
  const auto module = parse_text(
      ".entry k { ret; }\n"
      ".section\t.debug_str\n{\n$L__info_string0:\n.b8 95,90 // }\n.b32 a+4\n.b8 -1\n}\n"
      "@@DWARF .section .debug_pubnames, \"\", @progbits\n"
      ".section .debug_macinfo { }\n.global .u32 after;\n");
  EXPECT_EQ(module->functions.size(), 1u);
  EXPECT_EQ(module->variables[0].name, "after");
}

TEST(ParseModule, LargeTablesTakeLinearTime) {
  std::string text = ".global .b8 t[200000] = {";
  for (int i = 0; i < 199999; ++i) text += "1, ";
  const auto module = parse_text(text + "2};\n");
  ASSERT_EQ(module->variables[0].init.size(), 200000u);
  EXPECT_EQ(module->variables[0].init.back().integer, 2u);
}

TEST(ParseModule, AnEndOfStringMayStandAtTheEnd) {
  const auto module = parse_module(std::string(".version 9.0 .target sm_90a\0\0", 29));
  EXPECT_EQ(module->target, "sm_90a");
}

struct Mistake {
  const char* text;
  const char* said;
  friend void PrintTo(const Mistake& mistake, std::ostream* out) { *out << mistake.text; }
};

class ModuleMistakes : public testing::TestWithParam<Mistake> {};

TEST_P(ModuleMistakes, SayLineTextAndWhatIsAccepted) {
  const std::string text = std::string(".version 9.0\n.target sm_100a\n") + GetParam().text;
  const std::string said = error_of(text);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, GetParam().said, said);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "PTX line 3: ", said);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "accepted: ", said);
}

INSTANTIATE_TEST_SUITE_P(
    All, ModuleMistakes,
    testing::Values(
        Mistake{".globl .u32 x;", "unknown directive `.globl` in a module; accepted: .visible"},
        Mistake{".global .u23 x;", "unknown `.u23` in a declaration; accepted: .align"},
        Mistake{".global .align 3 .b8 x;", "an alignment of 3; accepted: a power of two"},
        Mistake{".global .pred x;", "a .pred outside .reg; accepted: a type of 8 bits or more"},
        Mistake{".global .b8 x[1099511627775][2];",
                "`x` is larger than 1099511627776 bytes; accepted: at most"},
        Mistake{".global .b32 x[4294967296][4294967296];", "`x` is larger than"},
        Mistake{".global .b8 x[];", "the array `x` has no size"},
        Mistake{".global .b8 x[4][];", "a dimension after the first is left out or 0"},
        Mistake{".global .b8 x[2] = {1, 2, 3};", "more than 2 values for `x`"},
        Mistake{".global .b8 x[2] = 1;", "`1` after the = of an array; accepted: '{'"},
        Mistake{".global .f16 x = 1.0;", "a value of `x`, which is .f16; accepted: .f32, .f64"},
        Mistake{".const .bf16x2 x[1] = {0};", "a value of `x`, which is .bf16x2; accepted"},
        Mistake{".shared .b8 x = 1;",
                "a value for `x`; accepted: for .global and .const variables"},
        Mistake{".global .u64 x = y;", "`y` is not defined; accepted: a variable or function"},
        Mistake{".global .u8 x; .global .u8 y = x;", "an address in a .u8; accepted: a type of 32"},
        Mistake{".global .u8 x; .global .u8 y = 0xFF0(x);", "the mask 0xFF0; accepted: one whole"},
        Mistake{".global .u32 x; .global .u32 x;", "`x` is defined twice, first in line 3"},
        Mistake{".global .texref t;", "textures and surfaces (.texref) are not supported"},
        Mistake{".const[2] .u32 x;", "banks of constant memory are not supported"},
        Mistake{".address_size 32", "an address size other than 64; accepted: .address_size 64"},
        Mistake{".entry k { ret; } .entry k { ret; }", "`k` is defined twice, first in line 3"},
        Mistake{".entry k .maxthreads 3 { }", "unknown directive `.maxthreads` of a function"},
        Mistake{".entry k .maxntid 1,2,3,4 { }",
                "a fourth number after .maxntid; accepted: one to three"},
        Mistake{".entry k .maxntid 0 { }",
                "an extent of .maxntid of 0; accepted: an integer from 1 to 4294967295"},
        Mistake{".entry k .maxntid -1 { }",
                "an extent of .maxntid of -1; accepted: an integer from 1 to 4294967295"},
        Mistake{".entry k(.reg .b32 a) { }", "expected a parameter; accepted: .param"},
        Mistake{".entry k(.param .b32 a, .param .b32 a) { }", "`a` is declared twice"},
        Mistake{".extern .func f { ret; }", "a body of an .extern function; accepted: ';'"},
        Mistake{".entry k { ret;", "the body of `k` has no closing }"},
        Mistake{".section .debug_str { .b8 1", "a .section has no closing }"},
        Mistake{".alias a, b;", "`b` is not defined; accepted: "},
        Mistake{".file 1 \"a\n\"", "a string has no closing quote; accepted: one in its line"},
        Mistake{"/* ", "a comment /* has no end; accepted: */ after it"},
        Mistake{"\x01", "a byte 0x01; accepted: printable ASCII, in `?`"},
        Mistake{"ld.global", "expected a directive, not `ld`; accepted: .visible"}));

TEST(ParseModule, MistakesInTheHeader) {
  EXPECT_PRED_FORMAT2(testing::IsSubstring,
                      "PTX line 1: no .version; accepted: a first line such as", error_of(""));
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "`9` after .version; accepted: a version such as 9.0",
                      error_of(".version 9"));
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "no .target directive; accepted: one after .version",
                      error_of(".version 9.0"));
  EXPECT_PRED_FORMAT2(testing::IsSubstring,
                      "PTX line 2: a directive before .target; accepted: .target",
                      error_of(".version 9.0\n.entry k { }"));
}

TEST(ParseModule, ARefusedDirectiveIsAnUnknownForm) {
  try {
    parse_text(".global .surfref s;");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnknownForm);
    EXPECT_EQ(error.line(), 3u);
  }
}

}  // namespace
}  // namespace ptxemu
