// What the backward kernels of all GPUs share: the rules that hold for every one, the launches, and
// what of the workspace they share.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "plan/backward_order.h"
#include "plan/forward_plan.h"

namespace fa4::internal {

// The launches, in their order. One of grid 0 has nothing to do.
enum BackwardStep { kPreprocess, kBackward, kPostprocess };

// Parts of the workspace of f32 (kernels/backward/params.h).
inline constexpr std::string_view kNegLseLog2 = "neg_lse_log2";
inline constexpr std::string_view kRowDelta = "row_delta";
inline constexpr std::string_view kDqSums = "dq_sums";
inline constexpr std::string_view kDsinkParts = "dsink_parts";
inline constexpr std::string_view kGroupSums = "group_sums";
// Of three bf16 for each statistic, in the place of the first two or of the second (StatisticForm).
inline constexpr std::string_view kStatisticTerms = "statistic_parts";
// Of u32.
inline constexpr std::string_view kDqCounts = "dq_counts";
inline constexpr std::string_view kEndedCounts = "ended_counts";
inline constexpr std::string_view kTicket = "ticket";
inline constexpr std::string_view kClearedCounts = "cleared_counts";
inline constexpr std::string_view kGroupCounts = "group_counts";

// Whether a GPU takes the problem, but for head dimensions and softcap, which are a kernel's own
// affair. A block of the kernel has `keys` keys.
Support query_gpu_backward_support(const AttentionProblem& problem, int keys);

std::vector<KernelStep> gpu_backward_steps(const AttentionProblem& problem,
                                           const BackwardShape& shape);
WorkspaceLayout gpu_backward_workspace(const AttentionProblem& problem, const BackwardShape& shape,
                                       const BwdOrder& order);

// The first launch, and the last one, of a main kernel that reads statistics in `form` and whose
// sums of dq lie as `layout` says.
KernelSource preprocess_source(Element element, StatisticForm form);
KernelSource postprocess_source(Element element, DqLayout layout);

}  // namespace fa4::internal
