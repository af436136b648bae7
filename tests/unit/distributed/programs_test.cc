// The programs of all ranks fit together, and stay in the memory that they ask for.
#include <gtest/gtest.h>

#include "distributed/all_gather.h"
#include "distributed/all_to_all.h"

namespace fa4::internal {
namespace {

using Write = ContextProgram (*)(const ShardedProblem&);

AttentionProblem whole_problem(int64_t heads_q, int64_t heads_kv) {
  ProblemDesc desc;
  desc.batch = 2;
  desc.seqlen_q = desc.seqlen_k = 48;
  desc.heads_q = heads_q;
  desc.heads_kv = heads_kv;
  desc.head_dim = 24;
  desc.head_dim_v = 16;
  desc.causal = true;
  desc.has_sink = desc.has_dlse = true;
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
      places.check(sum->to, static_cast<size_t>(sum->to_pitch) * size_of(sum->to_type),
                   columns * size_of(sum->to_type), static_cast<size_t>(sum->rows));
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
        for (const int slices : {1, 2, 4}) {
          options.slices = slices;
          check_ranks(whole_problem(8, 8), 2, options, write);
        }
      }
    }
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

TEST(Programs, OfAnAllGatherToo) {
  const AttentionProblem whole = whole_problem(8, 2);
  const ShardedProblem problem = ShardedProblem::make(whole, {ContextMethod::kAllGather}, 1, 4);
  const size_t keys = 3 * (2 * 48 / 4) * 2 * (24 + 16) * 2;  // (P - 1) n heads_kv (d + dv)
  EXPECT_EQ(received_by(all_gather_forward(problem).program), keys);
  EXPECT_EQ(received_by(all_gather_backward(problem).program), keys + 2 * keys);
}

// Terms of dk and dv lie in the order of ranks, which is the one that they are added in.
TEST(Programs, AddInTheOrderOfRanks) {
  const AttentionProblem whole = whole_problem(8, 2);
  for (const ContextMethod method : {ContextMethod::kAllToAll, ContextMethod::kAllGather}) {
    const auto write =
        method == ContextMethod::kAllToAll ? all_to_all_backward : all_gather_backward;
    const ContextProgram made = write(ShardedProblem::make(whole, {method}, 1, 4));
    const ExchangeStep* back = exchanges_of(made.program).back();
    std::vector<const SumStep*> sums;
    for (const Step& step : made.program) {
      const auto* sum = std::get_if<SumStep>(&step.work);
      if (sum != nullptr && sum->parts.place == Place::kStaging) sums.push_back(sum);
    }
    EXPECT_EQ(sums.size(), method == ContextMethod::kAllToAll ? 4u : 2u);  // dk's and dv's heads
    int received = 0;
    for (const SumStep* sum : sums) {
      EXPECT_EQ(sum->num_parts, method == ContextMethod::kAllToAll ? 2 : 4);
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

TEST(ShardedProblem, ChoosesByHeads) {
  const auto chosen = [](int64_t heads_q, int64_t heads_kv, int ranks) {
    return ShardedProblem::make(whole_problem(heads_q, heads_kv), {}, 0, ranks).method;
  };
  EXPECT_EQ(chosen(8, 4, 4), ContextMethod::kAllToAll);
  EXPECT_EQ(chosen(8, 2, 4), ContextMethod::kAllGather);
  EXPECT_EQ(chosen(6, 6, 4), ContextMethod::kAllGather);
}

}  // namespace
}  // namespace fa4::internal
