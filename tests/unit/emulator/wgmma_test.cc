// The four warps of a warpgroup and the products that they share.
#include "checked_program.h"

namespace ptxemu {
namespace {

// A product over zeros, which warps issue; %p0: of warp 0, %p3: of warp 3.
LaunchReport run_product(const std::string& product, const char* policy = "eager",
                         uint32_t threads = 128) {
  const std::string body =
      "setp.lt.u32 %p0, %r0, 32;\nsetp.ge.u32 %p3, %r0, 96;\n"
      "mov.u32 %r10, a;\nshl.b32 %r13, %r0, 2;\nadd.u32 %r13, %r13, %r10;\nmov.u32 %r12, 0;\n"
      "mov.u32 %r14, %r13;\nfill: st.shared.u32 [%r14], 0;\nadd.u32 %r14, %r14, 512;\n"
      "add.u32 %r12, %r12, 1;\nsetp.lt.u32 %p2, %r12, 8;\n@%p2 bra fill;\n"
      "fence.proxy.async.shared::cta;\nbar.sync 0;\n"
      "shr.u32 %r18, %r10, 4;\ncvt.u64.u32 %d4, %r18;\nor.b64 %d4, %d4, 0x0000001000080000;\n"
      "mov.f32 %f0, 0f00000000;\nmov.f32 %f1, %f0;\nmov.f32 %f2, %f0;\nmov.f32 %f3, %f0;\n"
      "wgmma.fence.sync.aligned;\n" +
      product + "mad.wide.u32 %d2, %r0, 4, %d0;\nst.global.f32 [%d2], %f0;\n";
  PtxProgram p(body, checked(policy, "emulated:h200"), ".shared .align 1024 .b8 a[5120];\n",
               "sm_90a");
  return p.launch(p.buffer("out", 512), 0, threads);
}

const std::string kProduct =
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %d4, %d4, 1, 1, 1, "
    "0, 0;\n";
const std::string kCommit = "wgmma.commit_group.sync.aligned;\n";
const std::string kWait = "wgmma.wait_group.sync.aligned 0;\n";

// Each warp of the warpgroup stores into the rows that all four multiply.
TEST(WarpgroupProducts, OperandsAreNotWrittenOverBeforeTheWait) {
  const std::string store = "st.shared.u32 [%r13], 7;\nfence.proxy.async.shared::cta;\n";
  const std::string only_first = "@!%p0 bra past;\n" + store + "past:\n";
  for (const char* policy : {"eager", "late", "random", "split"}) {
    for (const std::string& stores : {store, only_first}) {
      const auto early = run_product(kProduct + kCommit + stores + kWait, policy);
      EXPECT_EQ(severity(early, "shared-race"), "error") << policy << text_of(early);
      EXPECT_EQ(severity(early, "missing-proxy-fence"), "") << policy << text_of(early);
    }
    const auto waited = run_product(kProduct + kCommit + kWait + "bar.sync 0;\n" + store, policy);
    EXPECT_TRUE(waited.findings.empty()) << policy << text_of(waited);
    const auto elsewhere =
        run_product(kProduct + "st.shared.u32 [%r13+4096], 7;\n" + kCommit + kWait, policy);
    EXPECT_TRUE(elsewhere.findings.empty()) << policy << text_of(elsewhere);
  }
}

TEST(WarpgroupProducts, AreExecutedByAllFourWarps) {
  const auto rule = "wgmma-warpgroup";
  const std::string around = "@%p3 bra past;\n" + kProduct + "past:\n";
  const std::string end = kCommit + kWait;
  for (const char* policy : {"eager", "late", "random"}) {
    const auto good = run_product(kProduct + kProduct + end, policy);
    EXPECT_EQ(severity(good, rule), "") << policy << text_of(good);
    const auto without = run_product(around + end, policy);
    EXPECT_EQ(severity(without, rule), "error") << policy << text_of(without);
    const auto unwaited = run_product(around, policy);
    EXPECT_EQ(severity(unwaited, rule), "error") << policy << text_of(unwaited);
    const auto exited = run_product("@%p3 exit;\n" + kProduct + end, policy);
    EXPECT_EQ(severity(exited, rule), "error") << policy << text_of(exited);
    const auto another = run_product(
        "@%p3 bra other;\n" + kProduct + "bra past;\nother: " + kProduct + "past:\n" + end, policy);
    EXPECT_EQ(severity(another, rule), "error") << policy << text_of(another);
    const auto small = run_product(kProduct + end, policy, 64);
    EXPECT_EQ(severity(small, rule), "error") << policy << text_of(small);
  }
}

}  // namespace
}  // namespace ptxemu
