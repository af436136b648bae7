// Hopper: the three launches of a backward, and what of the workspace they share.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/device_spec.h"
#include "kernels/sm90/backward/traits.h"
#include "plan/explain.h"
#include "plan/kernel_spec.h"
#include "plan/steps.h"

namespace fa4::internal {

struct Sm90BackwardSpec {
  sm90::BwdTraits traits;
  int sections = 1;  // of key heads whose queries and dq share the L2 cache
  bool last_keys_first = false;
  KernelSource source() const;
};

// The launches, in their order. One of grid 0 has nothing to do.
enum BackwardStep { kPreprocess, kBackward, kPostprocess };

// Parts of the workspace, all f32 (kernels/backward/params.h).
inline constexpr std::string_view kNegLseLog2 = "neg_lse_log2";
inline constexpr std::string_view kRowDelta = "row_delta";
inline constexpr std::string_view kDqSums = "dq_sums";
inline constexpr std::string_view kDsinkParts = "dsink_parts";
// Likewise, u32.
inline constexpr std::string_view kDqTurns = "dq_turns";
inline constexpr std::string_view kTicket = "ticket";

// Blocks of query rows: of the longest sequence; of a head of packed sequences.
int64_t query_blocks(const AttentionProblem& problem);
int64_t packed_head_blocks(const AttentionProblem& problem);

Support query_sm90_backward_support(const AttentionProblem& problem);

// For a problem that it takes.
Sm90BackwardSpec plan_sm90_backward(const AttentionProblem& problem, const DeviceSpec& device);

std::vector<KernelStep> sm90_backward_steps(const AttentionProblem& problem,
                                            const Sm90BackwardSpec& spec);
WorkspaceLayout sm90_backward_workspace(const AttentionProblem& problem,
                                        const Sm90BackwardSpec& spec);

// Every kernel of the backward that the build compiles ahead of time.
std::vector<PrebuiltKernel> sm90_backward_kernels();

void explain_sm90_backward(const AttentionProblem& problem, const Sm90BackwardSpec& spec,
                           std::vector<PlanStep>* steps);

}  // namespace fa4::internal
