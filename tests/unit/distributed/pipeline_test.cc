// What the lanes of a program do at the same time touches different memory.
#include "distributed/pipeline.h"

#include <gtest/gtest.h>

#include "distributed/all_gather.h"
#include "distributed/all_to_all.h"
#include "distributed/ring.h"

namespace fa4::internal {
namespace {

// A range of bytes that a step reads or writes.
struct Access {
  Place place;
  size_t begin, end;
  bool writes;
};

// Of places that slices share; arguments' columns are woven into one another.
class Accesses {
 public:
  explicit Accesses(const ContextProgram& made) : calls_(made.calls) {}

  std::vector<Access> of(const Work& work) {
    found_.clear();
    if (const auto* copy = std::get_if<CopyStep>(&work)) {
      add_rows(copy->from, copy->from_pitch, copy->width, copy->rows, false);
      add_rows(copy->to, copy->to_pitch, copy->width, copy->rows, true);
    } else if (const auto* zero = std::get_if<ZeroStep>(&work)) {
      add(zero->to, zero->bytes, true);
    } else if (const auto* exchange = std::get_if<ExchangeStep>(&work)) {
      for (const Message& message : exchange->sends) add(message.at, message.bytes, false);
      for (const Message& message : exchange->receives) add(message.at, message.bytes, true);
    } else if (const auto* sum = std::get_if<SumStep>(&work)) {
      const auto width = static_cast<size_t>(sum->columns);
      for (int64_t part = 0; part < sum->num_parts; ++part) {
        const bool is_apart = part > 0 && sum->second.place != Place::kNone;
        const Address at =
            is_apart ? sum->second : sum->parts + static_cast<size_t>(part * sum->part_stride);
        add_rows(at, static_cast<size_t>(sum->part_pitch) * 4, width * 4,
                 static_cast<size_t>(sum->rows), false);
      }
      const size_t size = static_cast<size_t>(size_of(sum->to_type));
      add_rows(sum->to, static_cast<size_t>(sum->to_pitch) * size, width * size,
               static_cast<size_t>(sum->rows), true);
    } else if (const auto* merge = std::get_if<MergeStep>(&work)) {
      const int64_t row = merge->heads * merge->dim;
      const int64_t elements = (merge->batch - 1) * merge->batch_stride + merge->rows * row;
      add(merge->out, static_cast<size_t>(elements) * 4, true);
      add(merge->part_out, static_cast<size_t>(elements) * 4, false);
      const auto lse_bytes = static_cast<size_t>(merge->batch * merge->heads * merge->rows * 4);
      add(merge->lse, lse_bytes, true);
      add(merge->part_lse, lse_bytes, false);
    } else if (const auto* cut = std::get_if<CutStep>(&work)) {
      for (const Address& to : {cut->to_q, cut->to_k}) {
        add(to, static_cast<size_t>(cut->count) * 4, true);
      }
    } else if (const auto* call = std::get_if<CallStep>(&work)) {
      add_call(*call);
    }
    return found_;
  }

 private:
  void add(const Address& at, size_t bytes, bool writes) {
    if ((at.place != Place::kWhole && at.place != Place::kStaging) || bytes == 0) return;
    found_.push_back({at.place, at.offset, at.offset + bytes, writes});
  }
  void add_rows(const Address& at, size_t pitch, size_t width, size_t rows, bool writes) {
    if (rows > 0) add(at, (rows - 1) * pitch + width, writes);
  }
  void add_call(const CallStep& call) {
    const AttentionProblem& p = calls_[call.call];
    const bool packed = p.layout_q == Layout::kPacked;
    const int64_t queries = packed ? p.total_q : p.seqlen_q;
    const int64_t keys = packed ? p.total_k : p.seqlen_k;
    const auto tensor = [&](const Address& at, const Strides& strides, int64_t rows, int64_t heads,
                            int64_t dim, DType type, bool writes) {
      if (rows == 0) return;
      const int64_t elements =
          (p.batch - 1) * strides.batch + (rows - 1) * strides.seqlen + heads * dim;
      add(at, static_cast<size_t>(elements * size_of(type)), writes);
    };
    const bool forward = call.dq.place == Place::kNone;
    tensor(call.q, p.q, queries, p.heads_q, p.head_dim, p.dtype, false);
    tensor(call.k, p.k, keys, p.heads_kv, p.head_dim, p.dtype, false);
    tensor(call.v, p.v, keys, p.heads_kv, p.head_dim_v, p.dtype, false);
    tensor(call.out, p.out, queries, p.heads_q, p.head_dim_v, p.out_dtype, forward);
    tensor(call.dout, p.dout, queries, p.heads_q, p.head_dim_v, p.dtype, false);
    tensor(call.dq, p.dq, queries, p.heads_q, p.head_dim, p.grad_dtype, true);
    tensor(call.dk, p.dk, keys, p.heads_kv, p.head_dim, p.grad_dtype, true);
    tensor(call.dv, p.dv, keys, p.heads_kv, p.head_dim_v, p.grad_dtype, true);
    const auto lse_bytes = static_cast<size_t>((packed ? 1 : p.batch) * p.heads_q * queries * 4);
    add(call.lse, lse_bytes, forward);
    add(call.dlse, lse_bytes, false);
    for (const Address& index : {call.cu_seqlens_q, call.cu_seqlens_k}) {
      add(index, static_cast<size_t>(p.batch + 1) * 4, false);
    }
  }

  const std::vector<AttentionProblem>& calls_;
  std::vector<Access> found_;
};

bool conflict(const std::vector<Access>& a, const std::vector<Access>& b) {
  for (const Access& x : a) {
    for (const Access& y : b) {
      const bool overlap = x.place == y.place && x.begin < y.end && y.begin < x.end;
      if (overlap && (x.writes || y.writes)) return true;
    }
  }
  return false;
}

// Pairs of steps of both lanes that touch the same bytes with no wait between them.
int conflicts(const ContextProgram& made, const Program& program) {
  Accesses accesses(made);
  std::vector<std::vector<Access>> of_step;
  for (const Step& step : program) of_step.push_back(accesses.of(step.work));
  int found = 0;
  // By lanes: how many steps of the program each one knows to be done.
  std::array<std::array<size_t, 2>, 2> done{};
  for (size_t i = 0; i < program.size(); ++i) {
    const auto mine = static_cast<size_t>(program[i].lane), other = 1 - mine;
    if (std::holds_alternative<WaitStep>(program[i].work)) {
      done[mine][other] = i;
      done[mine][mine] = std::max(done[mine][mine], done[other][mine]);
      continue;
    }
    for (size_t before = done[mine][other]; before < i; ++before) {
      if (static_cast<size_t>(program[before].lane) != other) continue;
      found += conflict(of_step[before], of_step[i]);
    }
  }
  return found;
}

AttentionProblem whole_problem(DType dtype, bool packed) {
  ProblemDesc desc;
  desc.dtype = dtype;
  desc.batch = 2;
  desc.seqlen_q = desc.seqlen_k = 48;
  desc.heads_q = 16;
  desc.heads_kv = 8;
  desc.head_dim = 24;
  desc.head_dim_v = 16;
  desc.causal = true;
  desc.has_sink = desc.has_dlse = true;
  if (packed) {
    desc.layout_q = desc.layout_kv = Layout::kPacked;
    desc.total_q = desc.total_k = 64;
  }
  return AttentionProblem::make(desc);
}

using Write = ContextProgram (*)(const ShardedProblem&);

struct Method {
  ContextMethod method;
  Write forward, backward;
};
constexpr Method kMethods[] = {
    {ContextMethod::kAllToAll, all_to_all_forward, all_to_all_backward},
    {ContextMethod::kAllGather, all_gather_forward, all_gather_backward}};

ContextProgram write(const Method& method, Write direction, int slices, DType dtype = DType::kBF16,
                     bool packed = false) {
  const ContextOptions options{.method = method.method, .slices = slices};
  return direction(ShardedProblem::make(whole_problem(dtype, packed), options, 1, 2));
}

TEST(Pipeline, LanesDoNotMeet) {
  for (const Method& method : kMethods) {
    for (const int slices : {1, 2, 4}) {
      for (const DType dtype : {DType::kBF16, DType::kF32}) {
        for (const bool packed : {false, true}) {
          const ContextProgram forward = write(method, method.forward, slices, dtype, packed);
          EXPECT_EQ(conflicts(forward, forward.program), 0) << slices;
          EXPECT_EQ(conflicts(forward, forward.without_lse), 0) << slices;
          const ContextProgram backward = write(method, method.backward, slices, dtype, packed);
          EXPECT_EQ(conflicts(backward, backward.program), 0) << slices;
        }
      }
    }
  }
}

TEST(Pipeline, LanesOfARingDoNotMeet) {
  for (const bool has_window : {false, true}) {
    for (const int ranks : {2, 3, 4}) {
      ProblemDesc desc = whole_problem(DType::kBF16, false);
      if (has_window) desc.window = {20, 5}, desc.causal = false;
      const auto whole = AttentionProblem::make(desc);
      const auto p = ShardedProblem::make(whole, {.method = ContextMethod::kRing}, 1, ranks);
      const ContextProgram forward = ring_forward(p), backward = ring_backward(p);
      EXPECT_EQ(conflicts(forward, forward.program), 0) << ranks << " ranks";
      EXPECT_EQ(conflicts(forward, forward.without_lse), 0) << ranks << " ranks";
      EXPECT_EQ(conflicts(backward, backward.program), 0) << ranks << " ranks";
    }
  }
}

// But for the first wait, for what the caller's stream did before, and the last one, after which it
// goes on.
TEST(Pipeline, MeetWithoutAnyOfTheirWaits) {
  const ContextProgram made = write(kMethods[0], all_to_all_backward, 4);
  std::vector<size_t> waits;
  for (size_t i = 0; i < made.program.size(); ++i) {
    if (std::holds_alternative<WaitStep>(made.program[i].work)) waits.push_back(i);
  }
  ASSERT_EQ(waits.size(), 10u);
  for (size_t i = 1; i + 1 < waits.size(); ++i) {
    Program without = made.program;
    without.erase(without.begin() + static_cast<int64_t>(waits[i]));
    EXPECT_GT(conflicts(made, without), 0) << "wait " << i;
  }
}

// By letters: C computes, I and B are exchanges of what comes and of what goes, X of both.
std::string exchanges_and_calls(const Program& program) {
  std::string text;
  for (const Step& step : program) {
    if (const auto* exchange = std::get_if<ExchangeStep>(&step.work)) {
      EXPECT_EQ(step.lane, Lane::kExchange);
      const bool comes = exchange->what.find("is given") != std::string::npos;
      const bool goes = exchange->what.find("the gradients") != std::string::npos;
      text += comes && goes ? 'X' : comes ? 'I' : goes ? 'B' : '?';
    } else if (std::holds_alternative<CallStep>(step.work)) {
      EXPECT_EQ(step.lane, Lane::kCompute);
      text += 'C';
    }
  }
  return text;
}

// In a ring of four ranks: where a wait of one lane alone is left out, some step meets another one.
TEST(Pipeline, ARingNeedsWaitsOfBothLanes) {
  const ContextOptions options{.method = ContextMethod::kRing};
  const auto p = ShardedProblem::make(whole_problem(DType::kBF16, false), options, 1, 4);
  for (const ContextProgram& made : {ring_forward(p), ring_backward(p)}) {
    for (const Lane lane : {Lane::kCompute, Lane::kExchange}) {
      Program without = made.program;
      std::erase_if(without, [&](const Step& step) {
        return step.lane == lane && std::holds_alternative<WaitStep>(step.work);
      });
      EXPECT_GT(conflicts(made, without), 0) << "lane " << static_cast<int>(lane);
    }
  }
}

TEST(Pipeline, ExchangesBeginBeforeWhatIsComputedMeanwhile) {
  const auto order = [](int slices) {
    return exchanges_and_calls(write(kMethods[0], all_to_all_backward, slices).program);
  };
  EXPECT_EQ(order(1), "ICB");
  EXPECT_EQ(order(2), "IICBCB");
  EXPECT_EQ(order(4), "IICXCXCBCB");
}

TEST(Pipeline, HasTwoSlicesInMemory) {
  for (const Method& method : kMethods) {
    for (const Write direction : {method.forward, method.backward}) {
      const auto bytes = [&](int slices) {
        const ContextProgram made = write(method, direction, slices);
        return std::pair(made.whole_bytes, made.staging_bytes);
      };
      const auto [whole, staging] = bytes(1);
      EXPECT_LE(bytes(2).first, whole * 11 / 10);  // beside what is rounded up to 256 bytes
      EXPECT_LE(bytes(4).first, whole * 6 / 10);
      EXPECT_LE(bytes(4).second, bytes(2).second);
    }
  }
}

TEST(Slices, AreAsManyAsFillTheGpu) {
  const auto chosen = [](int64_t heads_q, int64_t heads_kv, int64_t seqlen, int num_sms,
                         ContextMethod method = ContextMethod::kAllToAll, int ranks = 4) {
    ProblemDesc desc;
    desc.batch = 1;
    desc.seqlen_q = desc.seqlen_k = seqlen;
    desc.heads_q = heads_q;
    desc.heads_kv = heads_kv;
    desc.head_dim = 128;
    return ShardedProblem::make(AttentionProblem::make(desc), {.method = method}, 0, ranks, num_sms)
        .slices;
  };
  EXPECT_EQ(chosen(32, 32, 32768, 132), 4);
  EXPECT_EQ(chosen(32, 32, 16384, 132), 2);  // 2 x 2 tiles of 128 rows an SM
  EXPECT_EQ(chosen(32, 32, 4096, 132), 1);
  EXPECT_EQ(chosen(32, 32, 32768, 0), 1);   // a CPU
  EXPECT_EQ(chosen(64, 8, 32768, 132), 2);  // two key heads a rank
  EXPECT_EQ(chosen(64, 4, 32768, 132), 1);
  EXPECT_EQ(chosen(24, 12, 65536, 132), 3);
  EXPECT_EQ(chosen(64, 4, 32768, 132, ContextMethod::kAllGather), 1);     // no faster in slices
  EXPECT_EQ(chosen(32, 32, 32768, 132, ContextMethod::kAllToAll, 1), 1);  // one rank
}

}  // namespace
}  // namespace fa4::internal
