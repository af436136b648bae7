// The programs of all ranks fit together, and stay in the memory that they ask for.
#include <gtest/gtest.h>

#include "distributed/all_gather.h"
#include "distributed/all_to_all.h"
#include "distributed/ring.h"

namespace fa4::internal {
namespace {

using Write = ContextProgram (*)(const ShardedProblem&);

AttentionProblem whole_problem(int64_t heads_q, int64_t heads_kv, bool packed = false) {
  ProblemDesc desc;
  desc.batch = 2;
  desc.seqlen_q = desc.seqlen_k = 48;
  desc.heads_q = heads_q;
  desc.heads_kv = heads_kv;
  desc.head_dim = 24;
  desc.head_dim_v = 16;
  desc.causal = true;
  desc.has_sink = desc.has_dlse = true;
  if (packed) {
    desc.layout_q = desc.layout_kv = Layout::kPacked;
    desc.total_q = desc.total_k = 72;
  }
  return AttentionProblem::make(desc);
}

std::vector<const ExchangeStep*> exchanges_of(const Program& program) {
  std::vector<const ExchangeStep*> exchanges;
  for (const Step& step : program) {
    if (const auto* exchange = std::get_if<ExchangeStep>(&step.work)) exchanges.push_back(exchange);
  }
  return exchanges;
}

size_t received_by(const Program& program) {
  size_t bytes = 0;
  for (const ExchangeStep* exchange : exchanges_of(program)) {
    for (const Message& message : exchange->receives) bytes += message.bytes;
  }
  return bytes;
}

std::vector<size_t> bytes_for(const std::vector<Message>& messages, int peer) {
  std::vector<size_t> bytes;
  for (const Message& message : messages) {
    if (message.peer == peer) bytes.push_back(message.bytes);
  }
  return bytes;
}

class Places {
 public:
  explicit Places(const ContextProgram& made) : made_(made) {}
  void check(const Address& at, size_t pitch, size_t width, size_t rows) const {
    if (rows == 0) return;
    const size_t end = at.offset + (rows - 1) * pitch + width;
    if (at.place == Place::kWhole) {
      EXPECT_LE(end, static_cast<size_t>(made_.whole_bytes));
    } else if (at.place == Place::kStaging) {
      EXPECT_LE(end, static_cast<size_t>(made_.staging_bytes));
    }
  }

 private:
  const ContextProgram& made_;
};

void check_places(const ContextProgram& made) {
  const Places places(made);
  for (const Step& step : made.program) {
    if (const auto* copy = std::get_if<CopyStep>(&step.work)) {
      places.check(copy->from, copy->from_pitch, copy->width, copy->rows);
      places.check(copy->to, copy->to_pitch, copy->width, copy->rows);
    } else if (const auto* zero = std::get_if<ZeroStep>(&step.work)) {
      places.check(zero->to, 0, zero->bytes, 1);
    } else if (const auto* exchange = std::get_if<ExchangeStep>(&step.work)) {
      for (const Message& message : exchange->sends) places.check(message.at, 0, message.bytes, 1);
      for (const Message& message : exchange->receives) {
        places.check(message.at, 0, message.bytes, 1);
      }
    } else if (const auto* sum = std::get_if<SumStep>(&step.work)) {
      const auto columns = static_cast<size_t>(sum->columns);
      places.check(sum->parts, static_cast<size_t>(sum->part_pitch) * 4, columns * 4,
                   static_cast<size_t>(sum->rows));
      places.check(sum->second, static_cast<size_t>(sum->part_pitch) * 4, columns * 4,
                   static_cast<size_t>(sum->rows));
      places.check(sum->to, static_cast<size_t>(sum->to_pitch) * size_of(sum->to_type),
                   columns * size_of(sum->to_type), static_cast<size_t>(sum->rows));
    } else if (const auto* merge = std::get_if<MergeStep>(&step.work)) {
      const int64_t row = merge->heads * merge->dim;
      const int64_t elements = (merge->batch - 1) * merge->batch_stride + merge->rows * row;
      for (const Address& sums : {merge->out, merge->part_out}) {
        places.check(sums, 0, static_cast<size_t>(elements) * 4, 1);
      }
      places.check(merge->to, 0, static_cast<size_t>(elements * size_of(merge->to_type)), 1);
      for (const Address& lse : {merge->lse, merge->part_lse}) {
        places.check(lse, 0, static_cast<size_t>(merge->batch * merge->heads * merge->rows * 4), 1);
      }
    } else if (const auto* cut = std::get_if<CutStep>(&step.work)) {
      for (const Address& to : {cut->to_q, cut->to_k}) {
        places.check(to, 0, static_cast<size_t>(cut->count) * 4, 1);
      }
    }
  }
}

void check_ranks(const AttentionProblem& whole, int ranks, ContextOptions options, Write write) {
  std::vector<ContextProgram> programs;
  for (int rank = 0; rank < ranks; ++rank) {
    programs.push_back(write(ShardedProblem::make(whole, options, rank, ranks)));
    check_places(programs.back());
  }
  for (int from = 0; from < ranks; ++from) {
    const auto sending = exchanges_of(programs[static_cast<size_t>(from)].program);
    for (int to = 0; to < ranks; ++to) {
      const auto receiving = exchanges_of(programs[static_cast<size_t>(to)].program);
      ASSERT_EQ(sending.size(), receiving.size());
      for (size_t i = 0; i < sending.size(); ++i) {
        EXPECT_EQ(bytes_for(sending[i]->sends, to), bytes_for(receiving[i]->receives, from));
        EXPECT_EQ(sending[i]->what, receiving[i]->what);
        if (from == to) {
          EXPECT_TRUE(bytes_for(sending[i]->sends, to).empty());
        }
      }
    }
  }
}

TEST(Programs, OfAllRanksFitTogether) {
  const std::pair<ContextMethod, std::vector<Write>> kMethods[] = {
      {ContextMethod::kAllToAll, {all_to_all_forward, all_to_all_backward}},
      {ContextMethod::kAllGather, {all_gather_forward, all_gather_backward}}};
  for (const auto& [method, writes] : kMethods) {
    for (const SequenceLayout layout : {SequenceLayout::kZigzag, SequenceLayout::kContiguous}) {
      for (const Write write : writes) {
        ContextOptions options{.method = method, .layout = layout};
        check_ranks(whole_problem(8, 2), 4, options, write);
        check_ranks(whole_problem(6, 3), 3, options, write);
        check_ranks(whole_problem(6, 3, true), 3, options, write);
        for (const int slices : {1, 2, 4}) {
          options.slices = slices;
          check_ranks(whole_problem(8, 8), 2, options, write);
          check_ranks(whole_problem(8, 8, true), 2, options, write);
        }
      }
    }
  }
}

TEST(Programs, OfARingFitTogether) {
  for (const SequenceLayout layout : {SequenceLayout::kZigzag, SequenceLayout::kContiguous}) {
    for (const Write write : {ring_forward, ring_backward}) {
      const ContextOptions options{.method = ContextMethod::kRing, .layout = layout};
      check_ranks(whole_problem(8, 2), 2, options, write);
      check_ranks(whole_problem(6, 3), 3, options, write);
      check_ranks(whole_problem(5, 1), 4, options, write);
    }
  }
}

// Each step but the last brings the keys of one rank, in the backward each the sums of one.
TEST(Programs, OfARingReceiveWhatTheDocumentsSay) {
  const auto problem = ShardedProblem::make(whole_problem(8, 2), {ContextMethod::kRing}, 1, 4);
  const size_t of_rank = 2 * 48 / 4 * 2 * (24 + 16);
  EXPECT_EQ(received_by(ring_forward(problem).program), 3 * of_rank * 2);
  EXPECT_EQ(received_by(ring_backward(problem).program), 3 * of_rank * 2 + 4 * of_rank * 4);
  EXPECT_EQ(exchanges_of(ring_forward(problem).program).size(), 3u);
  EXPECT_EQ(exchanges_of(ring_backward(problem).program).size(), 5u);
}

// Under a causal mask in zigzag: own keys, those of a rank before, those of a rank behind. The
// sink is seen with own keys alone.
TEST(Programs, OfARingMakeThreeKindsOfCalls) {
  const auto problem = ShardedProblem::make(whole_problem(8, 2), {ContextMethod::kRing}, 1, 4);
  for (const ContextProgram& made : {ring_forward(problem), ring_backward(problem)}) {
    ASSERT_EQ(made.calls.size(), 3u);
    std::vector<size_t> calls;
    for (const Step& step : made.program) {
      const auto* call = std::get_if<CallStep>(&step.work);
      if (call != nullptr) calls.push_back(call->call);
    }
    EXPECT_EQ(calls, (std::vector<size_t>{0, 1, 2, 2}));
    EXPECT_TRUE(made.calls[0].has_sink && !made.calls[1].has_sink && !made.calls[2].has_sink);
    EXPECT_EQ(made.calls[1].mask, MaskSpec{});
    EXPECT_EQ(made.calls[1].seqlen_k, 6);
    EXPECT_EQ(made.calls[2].seqlen_q, 6);
    EXPECT_EQ(made.calls[2].seqlen_k, 12);
  }
}

TEST(Programs, OfAnAllToAllReceiveWhatTheDocumentsSay) {
  const AttentionProblem whole = whole_problem(8, 2);
  const int ranks = 4;
  // (P - 1) / P n (heads_q + max(heads_kv, P)) (d + dv), of two bytes, n = batch seqlen / P
  const size_t n = 2 * 48 / 4, lse = n * 3 / 4 * 8 * 4;
  const size_t queries = n * 3 / 4 * 8 * (24 + 16) * 2, keys = n * 3 / 4 * 4 * (24 + 16) * 2;
  const ShardedProblem problem = ShardedProblem::make(whole, {ContextMethod::kAllToAll}, 1, ranks);
  EXPECT_EQ(received_by(all_to_all_forward(problem).without_lse), queries + keys);
  EXPECT_EQ(received_by(all_to_all_forward(problem).program), queries + keys + lse);
  // Two key heads over four ranks: dk and dv are of four bytes. lse and dlse come too.
  EXPECT_EQ(received_by(all_to_all_backward(problem).program),
            2 * queries + keys + 2 * keys + 2 * lse);
}

// Of others' keys a rank receives those that its queries see, and terms of its own keys of the
// ranks whose queries do.
TEST(Programs, OfAnAllGatherToo) {
  constexpr int kRanks = 4;
  constexpr int64_t kRow = 2 * 2 * (24 + 16) * 2;  // batch heads_kv (d + dv), of two bytes
  const auto bytes_of = [](const MaskSpec& window, SequenceLayout layout, int rank) {
    ProblemDesc desc = whole_problem(8, 2);
    desc.causal = false;
    desc.window = window;
    const ContextOptions options{.method = ContextMethod::kAllGather, .layout = layout};
    const auto problem = ShardedProblem::make(AttentionProblem::make(desc), options, rank, kRanks);
    const auto forward = static_cast<int64_t>(received_by(all_gather_forward(problem).program));
    const auto backward = static_cast<int64_t>(received_by(all_gather_backward(problem).program));
    return std::pair(forward, backward - forward);
  };
  const auto of_rows = [](int64_t keys, int64_t terms) {
    return std::pair(keys * kRow, terms * 2 * kRow);  // terms are f32
  };
  constexpr auto kZigzag = SequenceLayout::kZigzag, kContiguous = SequenceLayout::kContiguous;
  // 48 tokens, 12 a rank, chunks of 6.
  EXPECT_EQ(bytes_of({}, kZigzag, 1), of_rows(36, 36));
  // Causal: chunks 1 and 6. Of seven chunks two are its own; chunk 1 is seen by all, chunk 6 by
  // rank 0. Contiguous, piece 1 is seen by the two behind it.
  EXPECT_EQ(bytes_of({-1, 0}, kZigzag, 1), of_rows(30, 3 * 6 + 6));
  EXPECT_EQ(bytes_of({-1, 0}, kContiguous, 1), of_rows(12, 24));
  EXPECT_EQ(bytes_of({-1, 0}, kContiguous, 0), of_rows(0, 36));
  // A window of five keys to the left: so many of the piece before, and terms of the one behind.
  EXPECT_EQ(bytes_of({5, 0}, kContiguous, 1), of_rows(5, 5));
  EXPECT_EQ(bytes_of({5, 0}, kContiguous, 3), of_rows(5, 0));
  EXPECT_EQ(bytes_of({5, 2}, kContiguous, 1), of_rows(5 + 2, 5 + 2));
  EXPECT_EQ(bytes_of({5, 0}, kZigzag, 3), of_rows(5, 5));  // chunks 3 and 4 are neighbours
  EXPECT_EQ(bytes_of({5, 0}, kZigzag, 1), of_rows(5 + 5, 5 + 5));
}

// Whose terms the second part of a sum are; -1: nobody's.
int giver_of(const SumStep& sum, const ExchangeStep& back) {
  for (const Message& message : back.receives) {
    if (message.at.place == sum.second.place && message.at.offset == sum.second.offset) {
      return message.peer;
    }
  }
  return -1;
}

// Terms of dk and dv of ranks that have them for all of a rank's tokens lie in the order of ranks,
// which is the one that they are added in. By all-gather those of ranks that have some are added
// to its own before: causal, in zigzag, ranks 2 and 3 see one of rank 1's two chunks, rank 0 both.
TEST(Programs, AddInTheOrderOfRanks) {
  const AttentionProblem whole = whole_problem(8, 2);
  for (const ContextMethod method : {ContextMethod::kAllToAll, ContextMethod::kAllGather}) {
    const bool gathers = method == ContextMethod::kAllGather;
    const auto write = gathers ? all_gather_backward : all_to_all_backward;
    const ContextProgram made = write(ShardedProblem::make(whole, {method}, 1, 4));
    const ExchangeStep* back = exchanges_of(made.program).back();
    std::vector<const SumStep*> sums;
    std::vector<int> added;
    for (const Step& step : made.program) {
      const auto* sum = std::get_if<SumStep>(&step.work);
      if (sum == nullptr) continue;
      if (sum->second.place == Place::kStaging) {
        EXPECT_EQ(sum->to.offset, sum->parts.offset);
        added.push_back(giver_of(*sum, *back));
      } else if (sum->parts.place == Place::kStaging) {
        sums.push_back(sum);
      }
    }
    // dk's, then dv's; of each rank's terms those of two sequences.
    const std::vector<int> some = {2, 2, 3, 3, 2, 2, 3, 3};
    EXPECT_EQ(added, gathers ? some : std::vector<int>{});
    EXPECT_EQ(sums.size(), gathers ? 2u : 4u);  // dk's and dv's heads
    int received = 0;
    for (const SumStep* sum : sums) {
      EXPECT_EQ(sum->num_parts, 2);
      EXPECT_GT(sum->part_stride, 0);
      for (const Message& message : back->receives) {
        const int64_t offset = static_cast<int64_t>(message.at.offset - sum->parts.offset);
        const int64_t part = offset / sum->part_stride;
        if (message.at.place != Place::kStaging || offset < 0 || part >= sum->num_parts) continue;
        const int first = message.peer / sum->num_parts * sum->num_parts;
        EXPECT_EQ(message.peer - first, part);
        ++received;
      }
    }
    EXPECT_GT(received, 0);
  }
}

// A window by which two ranks see few of each other's keys: own terms are rounded where they lie.
// Rank 0's two chunks are apart: nothing is added before. Rank 1's are neighbours, and five keys
// of both are put aside.
TEST(Programs, OfAWindowCopyLittle) {
  ProblemDesc desc;
  desc.batch = 1;
  desc.seqlen_q = desc.seqlen_k = 48;
  desc.heads_q = desc.heads_kv = 2;
  desc.head_dim = desc.head_dim_v = 16;
  desc.causal = true;
  desc.window.window_left = 5;
  for (const int rank : {0, 1}) {
    const ContextProgram made = all_gather_backward(ShardedProblem::make(
        AttentionProblem::make(desc), {.method = ContextMethod::kAllGather}, rank, 2));
    int64_t added = 0, zeros = 0, aside = 0;
    for (const Step& step : made.program) {
      const auto* sum = std::get_if<SumStep>(&step.work);
      const auto* copy = std::get_if<CopyStep>(&step.work);
      if (sum != nullptr && sum->second.place != Place::kNone) added += sum->rows;
      if (sum != nullptr && sum->second.place == Place::kNone) {
        EXPECT_EQ(sum->num_parts, 1);
      }
      if (copy != nullptr && copy->from.place == Place::kWhole && copy->to.place == Place::kWhole) {
        aside += static_cast<int64_t>(copy->rows * copy->width);
      }
      if (std::holds_alternative<ZeroStep>(step.work)) ++zeros;
    }
    const int64_t row = 2 * 16 * 4, both = 2;  // dk and dv
    EXPECT_EQ(zeros, 0);
    EXPECT_EQ(added,
              both * (rank == 0 ? 5 : 5 + 5));  // what the other rank sees, and what is put aside
    EXPECT_EQ(aside, rank == 0 ? 0 : both * 5 * row);
    // k, v and their f32 gradients of 24 tokens and five of the other rank (rank 1's five between
    // its chunks are its own), what is put aside, dq, lse of two parts.
    const int64_t held = 24 + 5, numbers = 2 * 16;
    const int64_t least = held * numbers * (2 * 2 + 2 * 4) + (rank == 0 ? 0 : both * 5 * row);
    EXPECT_GE(made.whole_bytes, least);
    EXPECT_LT(made.whole_bytes, least + 24 * (numbers * 4 + 2 * 4) + 16 * 256);
  }
}

// The same bytes come whatever the slices.
TEST(Programs, OfSlicesReceiveAsMuch) {
  for (const ContextMethod method : {ContextMethod::kAllToAll, ContextMethod::kAllGather}) {
    const bool gathers = method == ContextMethod::kAllGather;
    const auto problem = [&](int slices) {
      const ContextOptions options{.method = method, .slices = slices};
      return ShardedProblem::make(whole_problem(8, 8), options, 1, 2);
    };
    const Write forward = gathers ? all_gather_forward : all_to_all_forward;
    const Write backward = gathers ? all_gather_backward : all_to_all_backward;
    for (const Write write : {forward, backward}) {
      const size_t bytes = received_by(write(problem(1)).program);
      EXPECT_EQ(received_by(write(problem(2)).program), bytes);
      EXPECT_EQ(received_by(write(problem(4)).program), bytes);
    }
    EXPECT_EQ(exchanges_of(forward(problem(1)).program).size(), gathers ? 1u : 2u);
    EXPECT_EQ(exchanges_of(forward(problem(4)).program).size(), gathers ? 4u : 6u);
    EXPECT_EQ(exchanges_of(backward(problem(4)).program).size(), 6u);
  }
}

// Tokens 4 to 8 and 20 to 30, then none between.
TEST(ShardedProblem, HeldTokensLieOneRangeBehindTheOther) {
  const HeldTokens held({{4, 8}, {20, 30}});
  EXPECT_EQ(held.rows(), 14);
  EXPECT_EQ(held.row(0, 4), 0);
  EXPECT_EQ(held.row(0, 7), 3);
  EXPECT_EQ(held.row(0, 20), 4);
  EXPECT_EQ(held.row(1, 29), 14 + 13);
  // By all-to-all all tokens are held.
  const ShardedProblem all =
      ShardedProblem::make(whole_problem(8, 8), {ContextMethod::kAllToAll}, 1, 2);
  EXPECT_EQ(all.held_tokens().rows(), 48);
  EXPECT_EQ(all.held_tokens().row(0, 17), 17);
}

// Of a rank's 3 most heads_kv and 2 (P - 1) / P n (heads_q + heads_kv) numbers, the first are less
// than half.
TEST(ShardedProblem, ChoosesTheAllGatherWhereItMovesLittle) {
  const auto chosen = [](int64_t heads_q, int64_t heads_kv, int ranks, int64_t window_left = -1) {
    ProblemDesc desc = whole_problem(heads_q, heads_kv);
    desc.window.window_left = window_left;
    return ShardedProblem::make(AttentionProblem::make(desc), {}, 0, ranks);
  };
  EXPECT_EQ(chosen(32, 2, 2).method,
            ContextMethod::kAllGather);  // 24 rows of others, 24 of its own
  EXPECT_NE(chosen(32, 2, 2).why.find("less than half"), std::string::npos);
  EXPECT_EQ(chosen(8, 8, 4).method, ContextMethod::kAllToAll);
  EXPECT_EQ(chosen(8, 8, 4, 1).method, ContextMethod::kAllGather);  // in zigzag two rows
  EXPECT_EQ(chosen(8, 8, 4, 3).method, ContextMethod::kAllToAll);   // 2 3 6 8 numbers for 288
}

TEST(ShardedProblem, ChoosesByHeads) {
  const auto chosen = [](int64_t heads_q, int64_t heads_kv, int ranks, bool packed = false) {
    return ShardedProblem::make(whole_problem(heads_q, heads_kv, packed), {}, 0, ranks).method;
  };
  EXPECT_EQ(chosen(8, 4, 4), ContextMethod::kAllToAll);
  EXPECT_EQ(chosen(8, 8, 2), ContextMethod::kAllToAll);
  EXPECT_EQ(chosen(8, 2, 4), ContextMethod::kAllGather);
  EXPECT_EQ(chosen(6, 6, 4), ContextMethod::kAllGather);
  EXPECT_EQ(chosen(8, 2, 4, true), ContextMethod::kAllToAll);
  EXPECT_EQ(chosen(6, 6, 4, true), ContextMethod::kAllGather);
}

}  // namespace
}  // namespace fa4::internal
