// In which order the works of a GPU's backward come: how many heads at a time, and which way each
// goes through its queries.
#pragma once

#include <vector>

#include "core/device_spec.h"
#include "plan/backward_shape.h"
#include "plan/explain.h"

namespace fa4::internal {

// The mask as it was asked for: to a query alone no mask is one.
MaskSpec mask_as_asked(const AttentionProblem& problem);

// How many heads a deterministic backward of an architecture has in flight. A CTA adds to a block
// after the CTA before it, a step and the time in which that one's sums reach memory later.
struct TurnRow {
  double l2_share;  // under a mask: of the L2 cache for the queries of the heads in flight
  double l2_share_of_short_heads;  // the same of heads with few works
  int columns;                     // that time: as long as a product of so many columns takes
  int columns_last_first;  // the same where the last keys come first; 0: nobody begins later for it
  int pair_works;  // of pairs of heads in flight, works an SM that go up, and as many that go down
};

BwdOrder choose_backward_order(const AttentionProblem& problem, const DeviceSpec& device,
                               const BackwardShape& shape, const TurnRow& turns);

void explain_backward_order(const AttentionProblem& problem, int subgroups, const BwdOrder& order,
                            std::vector<PlanStep>* steps);

}  // namespace fa4::internal
