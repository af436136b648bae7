// What the decoder refuses, and the table of instructions.
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <string>

#include "emulator/error.h"
#include "emulator/isa/code.h"
#include "emulator/isa/insn.h"

namespace ptxemu {
namespace {

std::shared_ptr<const Code> decode(const std::string& body, const std::string& before = "") {
  const std::string text =
      ".version 9.0\n.target sm_100a\n.address_size 64\n" + before +
      ".visible .entry k(.param .u32 x, .param .align 8 .b8 y[12], .param .u64 z)\n{\n" +
      ".reg .b32 %r<8>;\n.reg .b64 %rd<8>;\n.reg .f32 %f<8>;\n.reg .pred %p<8>;\n" + body +
      "\nret;\n}\n";
  std::shared_ptr<const Module> module = parse_module(text, "test.ptx");
  return decode_kernel(module, "k", {});
}

std::string refusal(const std::string& body) {
  try {
    decode(body);
  } catch (const Error& error) {
    EXPECT_EQ(error.line(), 10u) << error.what();
    return error.what();
  }
  return "";
}
void expect_refused(const std::string& body, const std::string& part) {
  const std::string message = refusal(body);
  EXPECT_NE(message.find(part), std::string::npos) << body << " gave: " << message;
  EXPECT_NE(message.find("; accepted: "), std::string::npos) << body << " gave: " << message;
}

TEST(Decoder, NamesTheQualifierThatItDoesNotKnow) {
  expect_refused("add.wrong.s32 %r1, %r2, %r3;", ".wrong");
  expect_refused("add.s32.sat.sat %r1, %r2, %r3;", ".sat");
  expect_refused("add.sat.u32 %r1, %r2, %r3;", ".sat");
  expect_refused("fma.f32 %f1, %f2, %f3, %f4;", ".rn");
  expect_refused("frobnicate.u32 %r1, %r2;", "frobnicate");
  expect_refused("min.ftz.s32 %r1, %r2, %r3;", ".ftz");
  expect_refused("setp.lo.s32 %p1, %r1, %r2;", ".lo");
  expect_refused("cvt.f16.f32 %r1, %f1;", ".rn");
  expect_refused("cvt.rn.f32.f32 %f1, %f2;", "a rounding of an exact conversion; accepted: none");
  expect_refused("cvt.rz.f64.f32 %rd1, %f2;", "a rounding of an exact conversion; accepted: none");
  expect_refused("cvt.rni.bf16.f16 %r1, %r2;", "one type");
  expect_refused("cvt.sat.s32.u16 %r1, %r2;", ".sat");
  expect_refused("cvt.rn.sat.bf16.f32 %r1, %f2;", ".sat");
  expect_refused("cvt.rn.bf16.s8 %r1, %r2;", "8 bits");
  expect_refused(".reg .b16 %h<3>; setp.lt.f16 %p1|%p2, %h1, %h2;", "one predicate");
}

TEST(Decoder, NamesTheQualifiersThatItWouldHaveTaken) {
  expect_refused("add.wrong.s32 %r1, %r2, %r3;",
                 ".wrong is no qualifier that add takes here; accepted: .cc, .sat, in `add.wrong");
  expect_refused("shf.l.wrap.b32.x %r1, %r2, %r3, %r4;", "accepted: none, in `shf.l");
  expect_refused("ld.shraed.u32 %r1, [%rd1];", ".global, .shared, ");
  expect_refused("shl.u32 %r1, %r2, %r3;", "accepted: .b16, .b32, .b64");
  // What is refused by name is not offered.
  EXPECT_EQ(refusal("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16.x {%f1}, %rd1, %rd2, 1;")
                .find(".b1,"),
            std::string::npos);
}

TEST(Decoder, NamesOperandsThatDoNotFit) {
  expect_refused("add.s32 %r1, %rd2, %r3;", "64 bits");
  expect_refused("add.s32 %r1, %r2;", "operands; accepted: 3, as add takes here");
  expect_refused("add.s32 %r1, %r2, %r3, %r4;", "operands; accepted: 3, as add takes here");
  expect_refused("add.f32 %f1, %f2, 1;", "an integer; accepted: a floating-point number");
  expect_refused("add.u32 %r1, %r2, 1.5;", "floating-point number for u32");
  expect_refused("mov.s64 %rd1, 0d3FF8000000000000;", "floating-point number for s64");
  expect_refused("mov.b64 %rd1, {%r1, %r2, %r3};", "vector");
  expect_refused("lop3.b32 %r1, %r2, %r3, %r4, 256;", "lop3 out of range; accepted: 0 to 255");
  expect_refused("bfe.u32 %r1, %r2, 256, 3;", "0 to 255");
  expect_refused("bfe.s64 %rd1, %rd2, 3, -1;", "0 to 255");
  expect_refused("bfi.b32 %r1, %r2, %r3, 3, 300;", "0 to 255");
}

TEST(Decoder, RefusesCarriesThatDoNotExist) {
  expect_refused("mad.wide.cc.u32 %rd1, %r1, %r2, %rd2;", ".cc");
  expect_refused("mad.rn.cc.f32 %f1, %f2, %f3, %f4;", ".cc");
  for (const char* type : {"u16x2", "s16x2", "b32", "f16x2"}) {
    const std::string operands = std::string(".cc.") + type + " %r1, %r2, %r3";
    expect_refused("add" + operands + ";", "accepted: .u32, .s32, .u64, .s64");
    expect_refused("sub" + operands + ";", "accepted: .u32, .s32, .u64, .s64");
    expect_refused("mad.lo" + operands + ", %r4;", "accepted: .u32, .s32, .u64, .s64");
  }
  EXPECT_NO_THROW(decode("mad.hi.cc.s32 %r1, %r2, %r3, %r4;"));
}

// ptxas 13.0 takes the first of these and moves one element (PTX ISA 9.7.9.8, 9.7.9.11).
TEST(Decoder, RefusesVectorsThatDoNotExist) {
  const std::string eight = "{%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}";
  const std::string four = "{%rd1, %rd2, %rd3, %rd4}";
  for (const char* type : {"b8", "u8", "s8", "b16", "u16", "s16"}) {
    const std::string part = std::string(".v8 of .") + type + "; accepted: .b32, .s32, .u32, .f32";
    for (const char* space : {"", ".global", ".shared", ".local", ".const", ".param"}) {
      expect_refused("ld" + std::string(space) + ".v8." + type + " " + eight + ", [%rd0];", part);
    }
    expect_refused(std::string("st.global.v8.") + type + " [%rd0], " + eight + ";", part);
    expect_refused(std::string("ld.global.nc.v8.") + type + " " + eight + ", [%rd0];", part);
  }
  for (const char* space : {".shared", ".shared::cluster", ".local", ".const", ".param"}) {
    const std::string load = "ld" + std::string(space);
    expect_refused(load + ".v8.b32 " + eight + ", [%rd0];",
                   ".v8 of .b32 in another space; accepted: .global");
    expect_refused(load + ".v4.u64 " + four + ", [%rd0];",
                   ".v4 of .u64 in another space; accepted: .global");
  }
  for (const char* space : {".shared", ".local"}) {
    expect_refused("st" + std::string(space) + ".v4.b64 [%rd0], " + four + ";",
                   "accepted: .global");
  }
  expect_refused("ldu.global.v8.b32 " + eight + ", [%rd0];", "of ldu; accepted: 16 bytes at most");
  for (const char* space : {"", ".global"}) {
    EXPECT_NO_THROW(decode("ld" + std::string(space) + ".v8.b32 " + eight + ", [%rd0];"));
    EXPECT_NO_THROW(decode("st" + std::string(space) + ".v4.b64 [%rd0], " + four + ";"));
  }
}

// ptxas 13.0 takes a restricted fence in these forms alone (PTX ISA 9.7.13.4).
TEST(Decoder, RefusesRestrictedFencesOfOtherOrdersAndScopes) {
  const std::string own = ".sync_restrict::shared::cta", all = ".sync_restrict::shared::cluster";
  for (const std::string fence : {"fence", "fence.proxy.async::generic"}) {
    EXPECT_NO_THROW(decode(fence + ".acquire" + all + ".cluster;"));
    EXPECT_NO_THROW(decode(fence + ".release" + own + ".cluster;"));
    for (const std::string& form :
         {".acquire" + all + ".cta", ".acquire" + all + ".gpu", ".acquire" + own + ".cluster",
          ".release" + own + ".cta", ".release" + all + ".cluster", all + ".cluster"}) {
      expect_refused(fence + form + ";", "another restricted fence; accepted: .acquire");
    }
  }
  expect_refused("fence.acq_rel" + all + ".cluster;",
                 "another restricted fence; accepted: .acquire");
}

TEST(Decoder, TakesQualifiersInAnyOrder) {
  EXPECT_NO_THROW(decode("fma.ftz.rn.f32 %f1, %f2, %f3, %f4;"));
  EXPECT_NO_THROW(decode("setp.s32.lt %p1, %r1, %r2;"));
}

TEST(Decoder, LaysOutParameters) {
  const auto code = decode("");
  EXPECT_EQ(code->param_offsets, (std::vector<uint32_t>{0, 8, 24}));
  EXPECT_EQ(code->param_sizes, (std::vector<uint32_t>{4, 12, 8}));
  EXPECT_EQ(code->param_bytes, 32u);
}

TEST(Decoder, LaysOutSharedMemory) {
  const auto code = decode(
      ".shared .align 16 .b8 inner[20];\nmov.u32 %r1, used;\nmov.u32 %r2, inner;\nmov.u32 %r3, "
      "all;",
      ".shared .align 4 .b8 unused[64];\n.shared .align 4 .b8 used[6];\n"
      ".extern .shared .align 2048 .b8 all[];\n");
  ASSERT_EQ(code->shared.size(), 3u);
  EXPECT_EQ(code->shared[0].name, "used");
  EXPECT_EQ(code->shared[0].offset, 0x400u);
  EXPECT_EQ(code->shared[1].name, "all");
  EXPECT_EQ(code->shared[2].name, "inner");
  EXPECT_EQ(code->shared[2].offset, 0x410u);
  EXPECT_EQ(code->static_shared_end, 0x424u);
  EXPECT_EQ(code->dynamic_shared_align, 2048u);
  EXPECT_EQ(code->dynamic_shared_begin(), 0xc00u);
  EXPECT_EQ(code->shared_end(0), 0x424u);
  EXPECT_EQ(code->shared_end(8), 0xc08u);
}

// As ptxas lays it out: alignments count from the end of the reserved 1 KiB.
TEST(Decoder, AlignsDynamicSharedMemoryBehindTheReserved) {
  const auto begin = [](const std::string& align, const std::string& fixed = "") {
    const std::string use = fixed.empty() ? "" : fixed + "\nmov.u32 %r2, fixed;\n";
    return decode(use + "mov.u32 %r1, all;", ".extern .shared " + align + " .b8 all[];\n")
        ->dynamic_shared_begin();
  };
  EXPECT_EQ(begin(".align 131072"), 0x400u);
  EXPECT_EQ(begin(".align 4"), 0x400u);
  EXPECT_EQ(begin(".align 4", ".shared .align 1 .b8 fixed[20];"), 0x420u);
  EXPECT_EQ(begin(".align 1024", ".shared .align 1 .b8 fixed[8];"), 0x800u);
  EXPECT_EQ(begin(".align 4096", ".shared .align 4096 .b8 fixed[8];"), 0x1400u);
}

TEST(Decoder, SharesConstantsAndRecordsUses) {
  const auto code = decode("add.s32 %r1, %r2, 77;\nadd.s32 %r3, %r2, 77;");
  const CodeFunction& main = *code->main;
  ASSERT_GE(main.code.size(), 4u);
  EXPECT_EQ(main.code[0].b, main.code[1].b);
  ASSERT_EQ(main.use_begin.size(), main.code.size() + 1);
  ASSERT_EQ(main.use_begin[1] - main.use_begin[0], 2u);
  EXPECT_EQ(main.uses[0].slot, main.code[0].a);
  EXPECT_FALSE(main.uses[0].written);
  EXPECT_EQ(main.uses[1].slot, main.code[0].d);
  EXPECT_TRUE(main.uses[1].written);
  EXPECT_EQ(main.uses[1].bytes, 128);
}

TEST(Decoder, RegistersThatAreNeverLiveTogetherShareASlot) {
  const auto code = decode(
      "ld.param.u32 %r1, [x];\nadd.s32 %r2, %r1, 1;\nadd.s32 %r3, %r2, 1;\nadd.s32 %r4, %r3, 1;\n"
      "st.shared.u32 [%r4], %r1;");
  const auto& main = code->main->code;
  EXPECT_EQ(main[1].d, main[3].d);  // %r2 and %r4
  EXPECT_NE(main[1].d, main[2].d);
  EXPECT_NE(main[0].d, main[3].d);  // %r1 is read at the end
}

// Small ones lie in the instruction, so that it may be copied; others are referred to.
TEST(DecodedForm, GivesBackWhatWasSet) {
  struct Small {
    uint64_t a;
    bool b;
  };
  struct Large {
    uint64_t words[3];
  };
  Insn insn;
  insn.decoded.set(Small{7, true});
  const Insn copy = insn;
  EXPECT_EQ(copy.form<Small>().a, 7u);
  EXPECT_TRUE(copy.form<Small>().b);
  EXPECT_EQ(static_cast<const void*>(&copy.form<Small>()), &copy.decoded);
  const Large large{{1, 2, 3}};
  insn.decoded.refer(&large);
  EXPECT_EQ(&insn.form<Large>(), &large);
}

#ifdef PTXEMU_CHECK_SLOTS
TEST(DecodedForm, IsNotTakenForAnother) {
  struct One {
    uint32_t value;
  };
  struct Other {
    uint32_t value;
  };
  Insn insn;
  EXPECT_THROW(insn.form<One>(), std::logic_error);
  insn.decoded.set(One{1});
  EXPECT_EQ(insn.form<One>().value, 1u);
  EXPECT_THROW(insn.form<Other>(), std::logic_error);
}
#endif

TEST(Decoder, EveryRowIsThereOnceAndCitesItsSection) {
  std::set<std::string_view> seen;
  for (const InstructionRow& row : all_rows()) {
    EXPECT_TRUE(seen.insert(row.mnemonic).second) << row.mnemonic;
    EXPECT_FALSE(row.section.empty()) << row.mnemonic;
    EXPECT_NE(row.decode, nullptr) << row.mnemonic;
  }
  EXPECT_GT(seen.size(), 60u);
}

TEST(Decoder, NeedsTheWordsThatSayWhatALaneDoes) {
  expect_refused("shfl.sync.b32 %r1, %r2, 0, 31, -1;",
                 "shfl without a mode; accepted: .up, .down, .bfly, .idx");
  expect_refused("vote.sync.pred %p1, %p2, -1;", "vote without a mode; accepted: .all");
  expect_refused("redux.add.u32 %r1, %r2, -1;", "no .sync; accepted: .sync");
  expect_refused("match.any.b32 %r1, %r2, -1;", "no .sync; accepted: .sync");
  expect_refused("elect %r1|%p1, -1;", "no .sync; accepted: .sync");
  expect_refused("match.any.sync.b32 %r1|%p1, %r2, -1;",
                 "a predicate of match.any; accepted: one register");
  expect_refused(
      "mma.sync.aligned.m16n8k16.col.row.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, "
      "{%r0, %r1, %r2, %r3}, {%r4, %r5}, {%f0, %f1, %f2, %f3};",
      ".row.col");
  expect_refused("mov.f16x2 %r1, %r2;", "no such type");
}

TEST(Decoder, ReadsSpecialRegistersByMovAndCvtAlone) {
  EXPECT_EQ(
      refusal("mov.u32 %r1, %tid.x;\ncvt.u64.u32 %rd1, %tid.y;\nmov.b64 %rd1, {%tid.x, %r1};"), "");
  expect_refused("add.u32 %r1, %tid.x, 1;",
                 "a special register, in another instruction; accepted: in mov, cvt");
  expect_refused("mov.f32 %f1, %tid.x;",
                 "a special register, in another instruction; accepted: in mov, cvt");
  expect_refused("st.global.u32 [%rd1], %laneid;", "a special register, in another instruction");
}

}  // namespace
}  // namespace ptxemu
