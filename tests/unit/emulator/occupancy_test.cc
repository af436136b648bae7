// How many CTAs share a multiprocessor, and that so many are there together.
#include "core/sanitizers.h"
#include "ptx_program.h"

namespace ptxemu {
namespace {

// A barrier of a whole grid by a counter in global memory; `directives` stand behind the kernel's
// name, `more` before its end.
std::string barrier(const std::string& directives, const std::string& more = "",
                    const std::string& target = "sm_90a") {
  return ".version 8.8\n.target " + target +
         "\n.address_size 64\n.visible .entry k(.param .u64 out) " + directives +
         "\n{\n.reg .pred %p0, %q;\n.reg .b32 %r<9>;\n.reg .b64 %d0;\nld.param.u64 %d0, [out];\n"
         "mov.u32 %r0, %tid.x;\nmov.u32 %r1, %nctaid.x;\nsetp.ne.u32 %q, %r0, 0;\n@%q bra end;\n"
         "red.release.gpu.global.add.u32 [%d0], 1;\n"
         "wait: ld.acquire.gpu.global.u32 %r2, [%d0];\nsetp.lt.u32 %p0, %r2, %r1;\n@%p0 bra "
         "wait;\n" +
         more + "end: ret;\n}\n";
}

uint32_t occupancy(const std::string& directives, uint32_t threads, uint32_t shared_bytes = 0,
                   const char* more = "") {
  const bool blackwell = *more != '\0';
  Machine machine({.device = blackwell ? "emulated:b200" : "emulated:h200"});
  const ModuleHandle module =
      machine.load(barrier(directives, more, blackwell ? "sm_100a" : "sm_90a"));
  return machine.ctas_per_multiprocessor(module, "k", threads, shared_bytes);
}

TEST(Occupancy, IsBoundByThreadsSharedMemoryAndTheArchitecture) {
  EXPECT_EQ(occupancy("", 1), 32u);
  EXPECT_EQ(occupancy("", 64), 32u);
  EXPECT_EQ(occupancy("", 65), 21u);
  EXPECT_EQ(occupancy("", 1024), 2u);
  EXPECT_EQ(occupancy("", 32, 100 << 10), 2u);
  EXPECT_EQ(occupancy("", 32, 113 << 10), 2u);
  EXPECT_EQ(occupancy("", 32, (113 << 10) + 1), 1u);
  EXPECT_EQ(occupancy("", 32, 227 << 10), 1u);
  EXPECT_EQ(occupancy("", 1024, 0, "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, 32;\n"), 2u);
  EXPECT_EQ(
      occupancy("", 128, 0, "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r2], 32;\n"),
      1u);
}

TEST(Occupancy, IsBoundByRegistersWherePtxSaysThem) {
  EXPECT_EQ(occupancy(".maxntid 256", 256), 8u);
  EXPECT_EQ(occupancy(".maxnreg 255", 32), 8u);
  EXPECT_EQ(occupancy(".maxnreg 32", 256), 8u);
  EXPECT_EQ(occupancy(".maxnreg 33", 256), 6u);  // of 40 each
  EXPECT_EQ(occupancy(".maxnreg 96", 32), 20u);  // five in each quarter
  EXPECT_EQ(occupancy(".maxnreg 168", 384), 1u);
  EXPECT_EQ(occupancy(".maxnreg 255", 1024), 1u);
  EXPECT_EQ(occupancy(".maxntid 256 .minnctapersm 3", 256), 3u);
  EXPECT_EQ(occupancy(".maxntid 256 .minnctapersm 4294967295", 256), 8u);
}

TEST(Occupancy, OfWhatIsRefusedIsNone) {
  EXPECT_EQ(occupancy("", 0), 0u);
  EXPECT_EQ(occupancy("", 1025), 0u);
  EXPECT_EQ(occupancy(".maxntid 128", 129), 0u);
  EXPECT_EQ(occupancy("", 32, (227 << 10) + 1), 0u);
}

LaunchReport meet(const std::string& directives, uint32_t ctas, uint32_t threads = 32) {
  Machine machine({.device = "emulated:h200"});
  const ModuleHandle module = machine.load(barrier(directives));
  const uint64_t out = machine.allocate(4);
  machine.fill(out, 0, 4);
  std::vector<std::byte> argument(sizeof out);
  std::memcpy(argument.data(), &out, sizeof out);
  return machine.launch(module, {.kernel = "k", .grid = {ctas, 1, 1}, .block = {threads, 1, 1}},
                        {argument});
}

TEST(Occupancy, AsManyCtasMeet) {
#if defined(FA4_ADDRESS_SANITIZER) || defined(FA4_THREAD_SANITIZER)
  GTEST_SKIP() << "polling is given up after 400 million instructions, too many here";
#endif
  // 255 registers each would leave room for 1056 of them.
  const LaunchReport most = meet("", 132 * 32);
  EXPECT_EQ(most.status, "ok") << text_of(most).substr(0, 200);
  EXPECT_EQ(meet(".maxnreg 255", 132, 1024).status, "ok");
  EXPECT_EQ(meet(".maxnreg 255", 133, 1024).status, "deadlock");
}

}  // namespace
}  // namespace ptxemu
