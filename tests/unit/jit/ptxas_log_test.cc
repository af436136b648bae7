#include <gtest/gtest.h>

#include "jit/nvrtc_compiler.h"

namespace fa4::internal {
namespace {

TEST(PtxasLog, ReadsWhatPtxasPrints) {
  const KernelResources r = parse_ptxas_log(
      "ptxas info    : 735 bytes gmem\n"
      "ptxas info    : Compiling entry function '_Z3fwd' for 'sm_90a'\n"
      "ptxas info    : Function properties for _Z3fwd\n"
      "ptxas         .     16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads\n"
      "ptxas info    : Used 168 registers, used 16 barriers, 1024 bytes smem, 16 bytes cmem[2]\n");
  EXPECT_EQ(r.registers, 168);
  EXPECT_EQ(r.spill_bytes, 20);
  EXPECT_EQ(r.stack_bytes, 16);
  EXPECT_EQ(r.static_smem_bytes, 1024);
}

TEST(PtxasLog, CountsTheSpillsOfEveryFunction) {
  const KernelResources r = parse_ptxas_log(
      "    0 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads\n"
      "    32 bytes stack frame, 1 bytes spill stores, 2 bytes spill loads\n"
      "ptxas info    : Used 32 registers");
  EXPECT_EQ(r.spill_bytes, 11);
  EXPECT_EQ(r.stack_bytes, 32);
  EXPECT_EQ(r.registers, 32);
}

TEST(PtxasLog, SaysNothingOfAnEmptyLog) {
  const KernelResources r = parse_ptxas_log("");
  EXPECT_EQ(r.registers + r.spill_bytes + r.stack_bytes + r.static_smem_bytes, 0);
}

}  // namespace
}  // namespace fa4::internal
