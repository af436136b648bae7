#include "attention/backward_params.h"

#include <gtest/gtest.h>

#include <cmath>

#include "small_problem.h"

namespace fa4::internal {
namespace {

// Blackwell's tensor core takes lse off in units of unscaled scores.
TEST(BackwardParams, FactorsOfScoresHaveAnInverse) {
  AttentionProblem problem = small_problem(DType::kBF16, false);
  for (const float scale : {0.0f, -0.0f, 1e-40f, -1e-30f, 0.09f, -2.0f, 1e30f}) {
    problem.scale = scale;
    const BwdParams params = backward_params(problem, {}, {});
    EXPECT_TRUE(std::isnormal(params.scores.scale_log2)) << scale;
    EXPECT_TRUE(std::isnormal(params.neg_lse_log2_to_score)) << scale;
    EXPECT_NEAR(params.scores.scale_log2 * params.neg_lse_log2_to_score, -1, 1e-6) << scale;
    EXPECT_EQ(params.scale, scale);
  }
}

}  // namespace
}  // namespace fa4::internal
