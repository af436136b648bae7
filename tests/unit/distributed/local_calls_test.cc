#include "distributed/local_calls.h"

#include <gtest/gtest.h>

namespace fa4::internal {
namespace {

AttentionProblem problem_of(int64_t seqlen, std::optional<int64_t> left,
                            std::optional<int64_t> right) {
  ProblemDesc desc;
  desc.batch = 2;
  desc.seqlen_q = desc.seqlen_k = seqlen;
  desc.heads_q = 4;
  desc.heads_kv = 2;
  desc.head_dim = 16;
  desc.window.window_bounds = (left ? 1 : 0) | (right ? 2 : 0);
  desc.window.window_left = left.value_or(-1);
  desc.window.window_right = right.value_or(-1);
  return AttentionProblem::make(desc);
}

// What a query sees through the calls is what it sees in the whole.
void check_parts(const AttentionProblem& whole, const SequencePartition& partition) {
  const int64_t seqlen = whole.seqlen_q;
  for (int rank = 0; rank < partition.ranks(); ++rank) {
    std::vector<int> seen(static_cast<size_t>(partition.local_seqlen()), 0);
    for (const LocalCall& local : local_calls_of(whole.mask, partition.chunks(rank), seqlen)) {
      const AttentionProblem call = problem_of(whole, local,
                                               {.heads_q = whole.heads_q,
                                                .heads_kv = whole.heads_kv,
                                                .local_seqlen = partition.local_seqlen(),
                                                .dq_heads = whole.heads_q,
                                                .key_rows = seqlen});
      for (int64_t i = 0; i < local.queries; ++i) {
        const int64_t slot = local.first_query + i;
        ++seen[static_cast<size_t>(slot)];
        const KeyRange wanted =
            visible_keys(partition.position(rank, slot), seqlen, seqlen, whole.mask);
        const KeyRange got = visible_keys(i, local.queries, local.keys, call.mask);
        const bool nothing = got.begin >= got.end;
        ASSERT_EQ(nothing, wanted.begin >= wanted.end) << "slot " << slot << " of rank " << rank;
        if (nothing) continue;
        ASSERT_EQ(got.begin + local.first_key, wanted.begin) << "slot " << slot;
        ASSERT_EQ(got.end + local.first_key, wanted.end) << "slot " << slot;
      }
    }
    EXPECT_EQ(seen, std::vector<int>(seen.size(), 1)) << "rank " << rank;
  }
}

TEST(LocalCalls, SeeWhatTheWholeSees) {
  std::vector<std::optional<int64_t>> bounds = {std::nullopt};
  for (int64_t bound = -25; bound <= 25; ++bound) bounds.push_back(bound);
  for (const int ranks : {1, 2, 3}) {
    for (const SequenceLayout layout : {SequenceLayout::kZigzag, SequenceLayout::kContiguous}) {
      const SequencePartition partition(ranks, 24, layout);
      for (const auto left : bounds) {
        for (const auto right : bounds) {
          SCOPED_TRACE(testing::Message() << ranks << " ranks, window " << left.value_or(-99) << " "
                                          << right.value_or(-99));
          check_parts(problem_of(24, left, right), partition);
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

// What a query sees of all holders' keys, put together, is what it sees in the whole. How many
// calls there are.
int64_t check_ring_calls(const AttentionProblem& whole, const SequencePartition& partition) {
  const int64_t seqlen = whole.seqlen_q;
  int64_t calls = 0;
  for (int rank = 0; rank < partition.ranks(); ++rank) {
    std::vector<std::vector<int>> seen(static_cast<size_t>(partition.local_seqlen()),
                                       std::vector<int>(static_cast<size_t>(seqlen), 0));
    for (int holder = 0; holder < partition.ranks(); ++holder) {
      const auto local_calls = ring_local_calls_of(whole.mask, partition.chunks(rank),
                                                   partition.chunks(holder), holder == rank);
      std::vector<int> calls_of(static_cast<size_t>(partition.local_seqlen()), 0);
      for (const LocalCall& local : local_calls) {
        ++calls;
        for (int64_t i = 0; i < local.queries; ++i) {
          ++calls_of[static_cast<size_t>(local.first_query + i)];
          const KeyRange keys = visible_keys(i, local.queries, local.keys, local.window);
          for (int64_t j = keys.begin; j < keys.end; ++j) {
            const int64_t key = partition.position(holder, local.first_key + j);
            ++seen[static_cast<size_t>(local.first_query + i)][static_cast<size_t>(key)];
          }
        }
      }
      for (const int count : calls_of) EXPECT_TRUE(holder != rank || count > 0) << "own keys";
    }
    for (int64_t slot = 0; slot < partition.local_seqlen(); ++slot) {
      const KeyRange wanted =
          visible_keys(partition.position(rank, slot), seqlen, seqlen, whole.mask);
      for (int64_t key = 0; key < seqlen; ++key) {
        const int times = key >= wanted.begin && key < wanted.end ? 1 : 0;
        EXPECT_EQ(seen[static_cast<size_t>(slot)][static_cast<size_t>(key)], times)
            << "slot " << slot << " of rank " << rank << ", key " << key;
      }
    }
  }
  return calls;
}

TEST(LocalCalls, OfARingSeeWhatTheWholeSees) {
  std::vector<std::optional<int64_t>> bounds = {std::nullopt};
  for (int64_t bound = -14; bound <= 14; bound += 2) bounds.push_back(bound);
  for (const int ranks : {2, 3}) {
    for (const SequenceLayout layout : {SequenceLayout::kZigzag, SequenceLayout::kContiguous}) {
      const SequencePartition partition(ranks, 12, layout);
      for (const auto left : bounds) {
        for (const auto right : bounds) {
          SCOPED_TRACE(testing::Message() << ranks << " ranks, window " << left.value_or(-99) << " "
                                          << right.value_or(-99));
          check_ring_calls(problem_of(12, left, right), partition);
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

// One call a step: of nothing that is not seen, and of as much on every rank.
TEST(LocalCalls, OfACausalRingAreOneCallAStep) {
  const SequencePartition zigzag(4, 64, SequenceLayout::kZigzag);
  EXPECT_EQ(check_ring_calls(problem_of(64, std::nullopt, 0), zigzag), 16);
  EXPECT_EQ(check_ring_calls(problem_of(64, std::nullopt, std::nullopt), zigzag), 16);
  const SequencePartition contiguous(4, 64, SequenceLayout::kContiguous);
  EXPECT_EQ(check_ring_calls(problem_of(64, std::nullopt, 0), contiguous), 10);
}

// A call's queries of packed sequences see through it, by sequences that are cut as a CutStep says,
// what they see in the whole. A mask that can_cut_packed refuses is one by which some do not.
int64_t wrong_of_packed(const MaskSpec& mask, const std::vector<int32_t>& cu_seqlens,
                        const SequencePartition& partition) {
  int64_t wrong = 0;
  for (int rank = 0; rank < partition.ranks(); ++rank) {
    for (const LocalCall& local :
         packed_local_calls_of(mask, partition.chunks(rank), partition.seqlen())) {
      const int64_t end_query = local.start + local.queries;
      for (size_t i = 0; i + 1 < cu_seqlens.size(); ++i) {
        const int64_t begin = cu_seqlens[i], end = cu_seqlens[i + 1];
        const int64_t first = std::clamp(begin, local.start, end_query);
        const int64_t queries = std::clamp(end, local.start, end_query) - first;
        const int64_t end_key = local.first_key + local.keys;
        const int64_t first_key = std::clamp(begin, local.first_key, end_key);
        const int64_t keys = std::clamp(end, local.first_key, end_key) - first_key;
        const int64_t skipped = first_key - begin;
        for (int64_t query = 0; query < queries; ++query) {
          const KeyRange wanted =
              visible_keys(first + query - begin, end - begin, end - begin, mask);
          const KeyRange got = visible_keys(query, queries, keys, local.window);
          const bool nothing = wanted.begin >= wanted.end;
          wrong += nothing ? got.begin < got.end
                           : got.begin + skipped != wanted.begin || got.end + skipped != wanted.end;
        }
      }
    }
  }
  return wrong;
}

TEST(LocalCalls, OfPackedSequencesSeeWhatTheWholeSees) {
  std::vector<std::optional<int64_t>> bounds = {std::nullopt};
  for (int64_t bound = -9; bound <= 9; ++bound) bounds.push_back(bound);
  const std::vector<std::vector<int32_t>> kSequences = {
      {0, 24}, {0, 1, 7, 7, 12, 20}, {0, 0, 5, 13, 24}, {0, 6, 12, 18, 24}};
  for (const auto left : bounds) {
    for (const auto right : bounds) {
      const MaskSpec mask = problem_of(24, left, right).mask;
      int64_t wrong = 0;
      for (const int ranks : {1, 2, 3, 4}) {
        for (const SequenceLayout layout : {SequenceLayout::kZigzag, SequenceLayout::kContiguous}) {
          for (const std::vector<int32_t>& cu_seqlens : kSequences) {
            wrong += wrong_of_packed(mask, cu_seqlens, SequencePartition(ranks, 24, layout));
          }
        }
      }
      EXPECT_EQ(wrong == 0, can_cut_packed(mask))
          << "window " << left.value_or(-99) << " " << right.value_or(-99);
    }
  }
}

TEST(LocalCalls, WithoutAMaskAreOneCall) {
  const SequencePartition partition(4, 64, SequenceLayout::kZigzag);
  const std::vector<LocalCall> local_calls = local_calls_of({}, partition.chunks(1), 64);
  ASSERT_EQ(local_calls.size(), 1u);
  EXPECT_EQ(
      local_calls[0],
      (LocalCall{
          .first_query = 0, .queries = 16, .start = 8, .first_key = 0, .keys = 64, .window = {}}));
}

TEST(LocalCalls, OfACausalMaskSeeNoLaterKeys) {
  const SequencePartition partition(2, 32, SequenceLayout::kZigzag);
  const std::vector<LocalCall> local_calls = local_calls_of({-1, 0}, partition.chunks(1), 32);
  ASSERT_EQ(local_calls.size(), 2u);
  EXPECT_EQ(local_calls[0].keys, 16);
  EXPECT_EQ(local_calls[1].keys, 24);
  for (const LocalCall& local : local_calls) EXPECT_EQ(local.window, (MaskSpec{-1, 0, 2}));
}

// One of four slices, of one query head and one key head; dq is f32 and of the slice alone.
TEST(LocalCalls, OfASliceHaveItsHeadsAndTheRowsOfTheWhole) {
  ProblemDesc desc = problem_of(32, std::nullopt, std::nullopt);
  desc.heads_q = desc.heads_kv = 4;
  desc.q = desc.k = desc.v = desc.out = desc.dout = desc.dq = desc.dk = desc.dv = {};
  const AttentionProblem call =
      problem_of(AttentionProblem::make(desc), {.queries = 8, .keys = 32, .window = {}},
                 {.heads_q = 1, .heads_kv = 1, .local_seqlen = 16, .dq_heads = 1, .key_rows = 32});
  EXPECT_EQ(call.heads_q, 1);
  EXPECT_EQ(call.q, (Strides{16 * 64, 64, 16}));
  EXPECT_EQ(call.out, call.q);
  EXPECT_EQ(call.dq, (Strides{16 * 16, 16, 16}));
  EXPECT_EQ(call.k, (Strides{32 * 16, 16, 16}));
  EXPECT_EQ(call.dv, call.k);
}

}  // namespace
}  // namespace fa4::internal
