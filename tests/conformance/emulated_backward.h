// What the backward of an emulated GPU is tested with, about the blocks of its kernels. A program
// of such tests says what its GPU is by tested_backends() and may_have_formal_findings(), and gives
// the head dimensions that its kernels have.
#pragma once

#include <initializer_list>
#include <utility>

#include "backward_run.h"
#include "table.h"

namespace fa4::internal {

// Whether CTAs add to dq in no fixed order, which the checker reports as formal. Where not, a
// formal finding fails a test, as an error always does.
bool may_have_formal_findings(const AttentionProblem& problem);

using HeadDims = std::initializer_list<int64_t>;

// bf16, one head of one sequence.
Case small_case(int64_t seqlen_q, int64_t seqlen_k, int64_t head_dim);

// Expects that the GPU takes the problem, the oracle's gradients, and no finding that may not be.
void expect_right(const Case& c);

void expect_lengths_about_blocks(HeadDims head_dims);
void expect_causal(HeadDims head_dims);
void expect_windows();
// Pairs of head_dim and head_dim_v.
void expect_head_dims_round_up(std::initializer_list<std::pair<int64_t, int64_t>> head_dims);
void expect_groups_of_every_size();
// Groups that are cut into parts, and whole ones: on a GPU of one SM and of many. Every layout,
// mask and kind of gradient that parts pass through.
void expect_parts_of_groups(HeadDims head_dims);
// Some of them empty, with rows behind the last.
void expect_packed_sequences(HeadDims head_dims);
void expect_rows_in_use();
// With gradients in f32.
void expect_sinks_dlse_and_every_scale();

// The same GPU as configured, but for clusters of a launch that take turns, `resident` at a time,
// as the seed draws.
Backend with_turns(const Backend& backend, uint32_t resident, uint64_t seed);
// Of a deterministic backward: the bits of `alone` from each of `together`, whose checkers find
// nothing.
void expect_same_bits(const Case& c, const Backend& alone, const std::vector<Backend>& together);

}  // namespace fa4::internal
