// A warp and the asynchronous operations that it issued itself: what it does after the issue comes
// after them only once it has waited for them.
#include "checked_program.h"

namespace ptxemu {
namespace {

constexpr const char* kBox = ".shared .align 8 .b64 bar;\n.shared .align 128 .b8 box[128];\n";
constexpr const char* kSetup =
    "mov.u32 %r1, box;\nmov.u32 %r2, bar;\nmbarrier.init.shared.b64 [%r2], 1;\n"
    "st.shared.v4.u32 [%r1], {%r0, %r0, %r0, %r0};\nfence.proxy.async;\n";

// `issue`, then `access`, which breaks a rule unless it comes behind `wait`.
struct Case {
  const char *issue, *wait, *access, *rule;
};

LaunchReport run(const std::string& body) {
  PtxProgram p(kSetup + body, checked(), kBox);
  return p.launch(p.buffer("out", std::vector<uint32_t>(64)),
                  p.buffer("in", std::vector<uint32_t>(64)), 1);
}

constexpr const char* kLoad =
    "mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 16;\n"
    "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%d1], 16, [%r2];\n";
constexpr const char* kLoaded =
    "wait: mbarrier.try_wait.parity.shared.b64 %p0, [%r2], 0;\n@!%p0 bra wait;\n";
constexpr const char* kStore =
    "cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r1], 16;\ncp.async.bulk.commit_group;\n";
constexpr const char* kStored = "cp.async.bulk.wait_group 0;\n";
constexpr const char* kCopy = "cp.async.cg.shared.global [%r1], [%d1], 16;\n";
constexpr const char* kCopied = "cp.async.wait_all;\n";

TEST(OwnOperations, AreOverOnlyAfterTheirWait) {
  for (const Case& c : {Case{kLoad, kLoaded, "ld.shared.u32 %r3, [%r1];\n", "shared-race"},
                        Case{kLoad, kLoaded, "st.shared.u32 [%r1], %r0;\n", "shared-race"},
                        Case{kCopy, kCopied, "ld.shared.u32 %r3, [%r1];\n", "shared-race"},
                        Case{kStore, kStored, "st.shared.u32 [%r1], %r0;\n", "shared-race"},
                        Case{kStore, kStored, "ld.global.u32 %r3, [%d0];\n", "global-race"}}) {
    const std::string issue = c.issue, wait = c.wait, access = c.access;
    const auto waited = run(issue + wait + access);
    EXPECT_EQ(waited.status, "ok") << issue << access << text_of(waited);
    const auto early = run(issue + access + wait);
    EXPECT_EQ(severity(early, c.rule), "error") << issue << access << text_of(early);
  }
}

// What the warp did before the issue the operation comes after, in the same epoch too.
TEST(OwnOperations, ComeAfterWhatTheirWarpDidBefore) {
  const auto report = run(std::string("ld.shared.u32 %r3, [%r1];\n") + kLoad + kLoaded +
                          "ld.shared.u32 %r3, [%r1];\n");
  EXPECT_EQ(report.status, "ok") << text_of(report);
}

// So many operations that those which nobody names any more are forgotten: not one that has yet to
// be waited for, and not one whose bytes still lie there.
TEST(OwnOperations, AreRememberedWhileTheyMatter) {
  const auto with = [](const char* before, const char* after) {
    return run(std::string(before) +
               "mov.u32 %r4, 0;\nadd.u32 %r6, %r1, 64;\n"
               "again: cp.async.ca.shared.global [%r6], [%d1], 4;\ncp.async.wait_all;\n"
               "add.u32 %r4, %r4, 1;\nsetp.lt.u32 %p2, %r4, 70000;\n@%p2 bra again;\n" +
               after + "ld.shared.u32 %r3, [%r1];\n");
  };
  const auto waited = with(kLoad, kLoaded);
  EXPECT_EQ(waited.status, "ok") << text_of(waited);
  const auto early = with(kLoad, "");
  EXPECT_EQ(severity(early, "shared-race"), "error") << text_of(early);
}

// A store over what the warp's own product has yet to read.
TEST(OwnOperations, ReadTheirMultiplicandsUntilTheCommitIsAwaited) {
  const auto with = [](const char* before, const char* after) {
    PtxProgram p(
        std::string("mov.u32 %r1, tmem;\nmov.u32 %r11, bar;\nmov.u32 %r10, a;\nmov.u32 %r15, b;\n"
                    "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 32;\n"
                    "ld.shared.u32 %r2, [%r1];\nsetp.ne.u32 %p1, %r0, 0;\n@%p1 bra join;\n"
                    "mbarrier.init.shared.b64 [%r11], 1;\nmov.u32 %r12, 0;\n"
                    "fill: add.u32 %r13, %r10, %r12;\nst.shared.u32 [%r13], 0;\n"
                    "add.u32 %r12, %r12, 4;\nsetp.lt.u32 %p2, %r12, 4608;\n@%p2 bra fill;\n"
                    "fence.proxy.async;\nsetp.ne.u32 %p4, 0, 0;\n"
                    "shr.u32 %r18, %r10, 4;\ncvt.u64.u32 %d4, %r18;\n"
                    "or.b64 %d4, %d4, 0x0000401000080000;\nshr.u32 %r18, %r15, 4;\n"
                    "cvt.u64.u32 %d5, %r18;\nor.b64 %d5, %d5, 0x0000401000080000;\n"
                    "tcgen05.mma.cta_group::1.kind::f16 [%r2], %d4, %d5, 0x08040490, %p4;\n"
                    "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 "
                    "[%r11];\n") +
            before +
            "wait: mbarrier.try_wait.parity.shared.b64 %p5, [%r11], 0;\n@!%p5 bra wait;\n" + after +
            "join: bar.warp.sync -1;\n"
            "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, 32;\n",
        checked(),
        ".shared .align 8 .u32 tmem;\n.shared .align 8 .b64 bar;\n"
        ".shared .align 1024 .b8 a[4096];\n.shared .align 512 .b8 b[512];\n");
    return p.launch(p.buffer("out", 16), 0, 32);
  };
  const char* store = "st.shared.u32 [%r10], 1;\n";
  const auto waited = with("", store);
  EXPECT_EQ(severity(waited, "shared-race"), "") << text_of(waited);
  const auto early = with(store, "");
  EXPECT_NE(severity(early, "shared-race"), "") << text_of(early);
}

}  // namespace
}  // namespace ptxemu
