// Every path's gradients, of random cases, within the contract's bounds.
#include "cpu_backward_run.h"

namespace fa4::internal {
namespace {

class CpuBackwardAccuracy : public CpuBackwardTest {};
INSTANTIATE_TEST_SUITE_P(Paths, CpuBackwardAccuracy, testing::ValuesIn(kAllPaths), path_name);

TEST_P(CpuBackwardAccuracy, RandomCases) {
  int ran = 0;
  for (const Case& c : make_backward_suite(Suite::kQuick, 11)) {
    if (!isa_supports_backward(GetParam(), c.desc.dtype)) continue;
    if (c.desc.seqlen_q * c.desc.seqlen_k > 200 * 300) continue;
    const BackwardCase given(c);
    CpuGradients result = run_cpu_backward(given.problem(), given.args(), GetParam());
    SCOPED_TRACE(testing::Message() << name_of(c.desc.dtype) << ", case of seed " << c.seed);
    expect_accurate(given, result);
    ++ran;
  }
  EXPECT_GT(ran, 20);
}

}  // namespace
}  // namespace fa4::internal
