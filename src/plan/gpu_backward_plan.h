// What the backward kernels of all GPUs share: the rules that hold for every one, the launches, and
// what of the workspace they share.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/device_spec.h"
#include "kernels/backward/traits.h"
#include "plan/forward_plan.h"
#include "plan/kernel_spec.h"
#include "plan/steps.h"

namespace fa4::internal {

// What the host must know of a main kernel to launch it and to describe its tensors to TMA.
struct BackwardShape {
  KernelSource source;
  int keys = 0;    // of a CTA, or of the CTAs of a cluster together
  int q_rows = 0;  // of q and dout that TMA moves at a time
  int k_rows = 0;  // of k and v
  int qk_slab = 0;
  int v_slab = 0;
  int head_dim = 0;  // of the kernel: columns of dq's sums
  int head_dim_v = 0;
  DqLayout dq_layout = DqLayout::kFragments;
  StatisticForm statistics = StatisticForm::kFragments;
  int threads = 0;
  int smem_bytes = 0;
  int cluster = 1;
  int parts = 1;  // CTAs for the same keys, each with some of the products
  // CTAs that go from block of keys to block of keys in the order of a ticket; 0: one a block.
  int persistent_ctas = 0;
  // Deterministic or not, the first to add to a block of dq may store, and works clear dq's sums of
  // later sections of heads.
  bool first_stores = false;
  bool finishes = false;  // works may make dq of earlier sections' sums
  int group_parts = 1;    // into which a key head's query heads are cut: works of their own
};

// The launches, in their order. One of grid 0 has nothing to do.
enum BackwardStep { kPreprocess, kBackward, kPostprocess };

// Parts of the workspace, all f32 (kernels/backward/params.h).
inline constexpr std::string_view kNegLseLog2 = "neg_lse_log2";
inline constexpr std::string_view kRowDelta = "row_delta";
inline constexpr std::string_view kDqSums = "dq_sums";
inline constexpr std::string_view kDsinkParts = "dsink_parts";
// StatisticParts, in the place of the first two.
inline constexpr std::string_view kStatisticParts = "statistic_parts";
inline constexpr std::string_view kGroupSums = "group_sums";
// u32.
inline constexpr std::string_view kDqCounts = "dq_counts";
inline constexpr std::string_view kEndedCounts = "ended_counts";
inline constexpr std::string_view kTicket = "ticket";
inline constexpr std::string_view kClearedCounts = "cleared_counts";
inline constexpr std::string_view kGroupCounts = "group_counts";

// Blocks of query rows: of the longest sequence; of a head, of one sequence or packed of all.
int64_t query_blocks(const AttentionProblem& problem);
int64_t head_blocks(const AttentionProblem& problem);
// Where groups are cut into parts: blocks of keys of a key head in all sequences, and the sums of
// one of them.
int64_t part_key_blocks(const AttentionProblem& problem);
int64_t part_floats(const BackwardShape& shape);

// Everything but head dimensions and softcap, which are a kernel's own affair. `keys`: of its
// block.
Support query_gpu_backward_support(const AttentionProblem& problem, int keys);

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

std::vector<KernelStep> gpu_backward_steps(const AttentionProblem& problem,
                                           const BackwardShape& shape);
WorkspaceLayout gpu_backward_workspace(const AttentionProblem& problem, const BackwardShape& shape,
                                       const BwdOrder& order);

// The first launch, and the last one, of a main kernel that reads statistics in `form` and whose
// sums of dq lie as `layout` says.
KernelSource preprocess_source(Element element, StatisticForm form);
KernelSource postprocess_source(Element element, DqLayout layout);

void explain_backward_order(const AttentionProblem& problem, int group_parts, const BwdOrder& order,
                            std::vector<PlanStep>* steps);

}  // namespace fa4::internal
