// What the host must know of a GPU's main backward kernel, and how many blocks and works a problem
// has for it.
#pragma once

#include <cstdint>

#include "kernels/backward/traits.h"
#include "plan/kernel_spec.h"
#include "problem/attention_problem.h"

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
  StatisticForm statistics = StatisticForm::kParts;
  int threads = 0;
  int smem_bytes = 0;
  int cluster = 1;
  int works_per_block = 1;  // CTAs for the same keys, each with some of the products
  // CTAs that go from block of keys to block of keys in the order of a ticket; 0: one a block.
  int persistent_ctas = 0;
  // Deterministic or not, the first to add to a block of dq may store, and works clear dq's sums of
  // later sections of heads.
  bool first_stores = false;
  bool finishes = false;  // works may make dq of earlier sections' sums
  int subgroups = 1;      // into which a key head's query heads are cut: works of their own
};

// Blocks of query rows: of the longest sequence; of a head, of one sequence or packed of all.
int64_t query_blocks(const AttentionProblem& problem);
int64_t head_blocks(const AttentionProblem& problem);
// Where groups are cut into subgroups: blocks of keys of a key head in all sequences, and the sums
// of one of them.
int64_t subgroup_key_blocks(const AttentionProblem& problem);
int64_t subgroup_floats(const BackwardShape& shape);

// Blocks of query rows of all heads: the CTAs before and after the main kernel.
int64_t query_ctas(const AttentionProblem& problem);
// Rows of the workspace: whole blocks.
int64_t workspace_rows(const AttentionProblem& problem);

// Blocks of `keys` keys of all key heads and sequences; where they do not fit, the largest number.
int64_t key_blocks(const AttentionProblem& problem, int keys);
// Key heads of a sequence, or subgroups of theirs.
int64_t key_heads(const AttentionProblem& problem, const BackwardShape& shape);
// CTAs of a key head, and of all sequences.
int64_t works_of_head(const AttentionProblem& problem, const BackwardShape& shape);
int64_t all_works(const AttentionProblem& problem, const BackwardShape& shape);

}  // namespace fa4::internal
