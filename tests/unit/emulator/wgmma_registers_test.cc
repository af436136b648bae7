// Registers of wgmma before their wait_group.
#include "checked_program.h"

namespace ptxemu {
namespace {

// Products over zeros, in registers %f0 to %f7; each of them may name another.
LaunchReport run_products(const std::string& products) {
  const std::string body =
      "mov.u32 %r10, a;\nshl.b32 %r13, %r0, 2;\nadd.u32 %r13, %r13, %r10;\nmov.u32 %r12, 0;\n"
      "fill: st.shared.u32 [%r13], 0;\nadd.u32 %r13, %r13, 512;\n"
      "add.u32 %r12, %r12, 1;\nsetp.lt.u32 %p2, %r12, 16;\n@%p2 bra fill;\n"
      "fence.proxy.async.shared::cta;\nbar.sync 0;\n"
      "shr.u32 %r18, %r10, 4;\ncvt.u64.u32 %d4, %r18;\nor.b64 %d4, %d4, 0x0000001000080000;\n"
      "mov.b32 %r20, 0;\nmov.b32 %r21, 0;\nmov.b32 %r22, 0;\nmov.b32 %r23, 0;\n"
      "wgmma.fence.sync.aligned;\n" +
      products + "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n";
  PtxProgram p(body, checked("eager", "emulated:h200"), ".shared .align 1024 .b8 a[8192];\n",
               "sm_90a");
  return p.launch(p.buffer("out", 16), 0, 128);
}

std::string product(const char* d, const char* a, const char* shape = "m64n8k16.f32.bf16.bf16") {
  const bool registers = a[0] == '{';
  return std::string("wgmma.mma_async.sync.aligned.") + shape + " " + d + ", " + a +
         ", %d4, 0, 1, 1" + (registers ? ", 0" : ", 0, 0") + ";\n";
}

constexpr const char* kD = "{%r30, %r31, %r32, %r33}";
constexpr const char* kE = "{%r34, %r35, %r36, %r37}";
constexpr const char* kA = "{%r20, %r21, %r22, %r23}";
constexpr const char* kWait =
    "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n"
    "wgmma.fence.sync.aligned;\n";

TEST(WgmmaRegisters, ProductsOfOneShapeFollowOnTheSameAccumulators) {
  const auto chain = run_products(product(kD, "%d4") + product(kD, "%d4"));
  EXPECT_EQ(severity(chain, "register-in-flight"), "") << text_of(chain);
  // Two products read one A.
  const auto shared = run_products(product(kD, kA) + product(kE, kA));
  EXPECT_EQ(severity(shared, "register-in-flight"), "") << text_of(shared);
}

TEST(WgmmaRegisters, AnAccumulatorIsNoMultiplicandBeforeItsWait) {
  const auto early = run_products(product(kD, "%d4") + product(kE, kD));
  EXPECT_EQ(severity(early, "register-in-flight"), "error") << text_of(early);
  EXPECT_NE(text_of(early).find("a register of the wgmma"), std::string::npos) << text_of(early);
  const auto waited = run_products(product(kD, "%d4") + kWait + product(kE, kD));
  EXPECT_EQ(severity(waited, "register-in-flight"), "") << text_of(waited);
}

TEST(WgmmaRegisters, AMultiplicandIsNoAccumulatorBeforeItsWait) {
  const auto early = run_products(product(kD, kA) + product(kA, "%d4"));
  EXPECT_EQ(severity(early, "register-in-flight"), "error") << text_of(early);
}

TEST(WgmmaRegisters, AnotherShapeNeedsAWaitBetween) {
  const char* wide = "{%r30, %r31, %r32, %r33, %r34, %r35, %r36, %r37}";
  const char* shape = "m64n16k16.f32.bf16.bf16";
  const auto early = run_products(product(kD, "%d4") + product(wide, "%d4", shape));
  EXPECT_EQ(severity(early, "register-in-flight"), "error") << text_of(early);
  const auto waited = run_products(product(kD, "%d4") + kWait + product(wide, "%d4", shape));
  EXPECT_EQ(severity(waited, "register-in-flight"), "") << text_of(waited);
}

// A wait that leaves a group pending has left its registers in use: no other register may lie where
// they do.
TEST(WgmmaRegisters, StayTheirOwnBeyondAWaitForOlderGroups) {
  std::string text = product(kD, "%d4") + "wgmma.commit_group.sync.aligned;\n" + product(kE, kA) +
                     "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 1;\n";
  for (int i = 0; i < 8; ++i) {
    const std::string r = "%r" + std::to_string(40 + i);
    text += "mov.b32 " + r + ", 1;\nst.shared.u32 [a], " + r + ";\n";
  }
  const auto report = run_products(text);
  EXPECT_EQ(severity(report, "register-in-flight"), "") << text_of(report);
}

}  // namespace
}  // namespace ptxemu
