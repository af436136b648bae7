// Addresses that wrap, that are of another window, and that are no multiple of what is needed.
#include "checked_program.h"

namespace ptxemu {
namespace {

constexpr const char* kHead = ".shared .align 16 .b8 s[64];\n.shared .align 8 .b64 bar;\n";

LaunchReport run(const std::string& body, bool check = false) {
  MachineOptions options;
  options.check = check;
  PtxProgram p(body, options, kHead);
  return p.launch(p.buffer("out", 64), 0, 1);
}

TEST(Addresses, OfThirtyTwoBitsWrap) {
  for (const bool check : {false, true}) {
    const auto wraps =
        run("mov.u32 %r1, s;\nsub.u32 %r1, %r1, 2147483600;\nst.shared.u32 [%r1+2147483600], 5;\n"
            "red.shared.add.u32 [%r1+2147483600], 5;\nld.shared.u32 %r2, [%r1+2147483600];\n",
            check);
    EXPECT_EQ(wraps.status, "ok") << text_of(wraps);
  }
}

// With and without the checker.
TEST(Addresses, OfAnotherWindowAreNotShared) {
  for (const bool check : {false, true}) {
    for (const char* window : {"0x110000000000", "0x120000000000", "0x7f0000000000"}) {
      const auto report = run(std::string("mov.u64 %d2, s;\nadd.u64 %d2, %d2, ") + window +
                                  ";\nst.shared.u32 [%d2], 5;\n",
                              check);
      EXPECT_EQ(report.status, "trap") << window << text_of(report);
    }
    const auto generic =
        run("mov.u64 %d2, s;\ncvta.shared.u64 %d2, %d2;\nst.shared.u32 [%d2], 5;\n", check);
    EXPECT_EQ(generic.status, "ok") << text_of(generic);
  }
}

TEST(Addresses, OfTryCancelAreAligned) {
  const auto cancel = [](uint32_t response, uint32_t barrier) {
    return run(
        "mov.u32 %r1, s;\nmov.u32 %r2, bar;\nadd.u32 %r1, %r1, " + std::to_string(response) +
        ";\nadd.u32 %r3, %r2, " + std::to_string(barrier) +
        ";\nmbarrier.init.shared.b64 [%r2], 1;\n"
        "mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 16;\n"
        "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 "
        "[%r1], [%r3];\n"
        "wait: mbarrier.try_wait.parity.shared.b64 %p0, [%r2], 0;\n@!%p0 bra wait;\n");
  };
  EXPECT_EQ(cancel(16, 0).status, "ok") << text_of(cancel(16, 0));
  for (const auto& [response, barrier] : {std::pair{8u, 0u}, std::pair{0u, 4u}}) {
    const auto report = cancel(response, barrier);
    ASSERT_EQ(report.status, "trap") << response << text_of(report);
    EXPECT_EQ(report.findings[0].rule, "misaligned");
  }
}

TEST(Addresses, StBulkSaysHowMuchItClears) {
  const auto report =
      run("mov.u32 %r1, s;\nmov.u64 %d2, 16777216;\nst.bulk.weak.shared::cta [%r1], "
          "%d2, 0;\n");
  ASSERT_EQ(report.status, "trap") << text_of(report);
  EXPECT_NE(report.findings[0].message.find("at most 16777215"), std::string::npos)
      << text_of(report);
}

}  // namespace
}  // namespace ptxemu
