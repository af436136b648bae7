// What lies past a sequence's end may hold anything; lengths that lie touch nothing outside the
// tensors; one packed plan serves other lengths.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <optional>
#include <span>

#include "backends.h"
#include "table.h"

namespace fa4::internal {
namespace {

constexpr int64_t kHeads = 2, kDim = 64, kRow = kHeads * kDim;
constexpr uint16_t kNan = 0xffff, kInfinity = 0x7f80, kMinusInfinity = 0xff80, kLargest = 0x7f7f;

class PastTheEnd : public BackendTest {};

Case packed_case(std::vector<int32_t> lengths_q, std::vector<int32_t> lengths_k, int64_t room) {
  Case c;
  ProblemDesc& d = c.desc;
  d.dtype = DType::kBF16;
  d.heads_q = d.heads_kv = kHeads;
  d.head_dim = kDim;
  d.causal = true;
  pack(c, std::move(lengths_q), std::move(lengths_k));
  d.total_q += room;
  d.total_k += room;
  c.seed = 21;
  return c;
}

// Runs on each backend with every kind of value in `garbage` rows of k and v and in `garbage_q` of
// q, and expects `same` rows of out, and of lse, to keep their bits.
struct Rows {
  int64_t begin, end;
};
void expect_no_trace(const CaseTensors& tensors, ForwardArgs args, std::span<const Rows> garbage,
                     std::span<const Rows> same, std::span<const Rows> garbage_q = {}) {
  const AttentionProblem& p = tensors.problem();
  const int64_t rows_q = p.rows_q();
  const auto copy = [](const void* data, int64_t elements) {
    const auto* words = static_cast<const uint16_t*>(data);
    return std::vector<uint16_t>(words, words + elements);
  };
  std::vector<uint16_t> q = copy(args.q, extents_of(p).q);
  std::vector<uint16_t> k = copy(args.k, extents_of(p).k), v = copy(args.v, extents_of(p).v);
  args.q = q.data();
  args.k = k.data();
  args.v = v.data();
  for (const Backend& backend : backends_that_take(p)) {
    SCOPED_TRACE(backend.name);
    std::optional<Result> first;
    for (const uint16_t value : {uint16_t{0}, kNan, kInfinity, kMinusInfinity, kLargest}) {
      for (const Rows& rows : garbage) {
        std::fill(k.begin() + rows.begin * kRow, k.begin() + rows.end * kRow, value);
        std::fill(v.begin() + rows.begin * kRow, v.begin() + rows.end * kRow, value);
      }
      for (const Rows& rows : garbage_q) {
        std::fill(q.begin() + rows.begin * kRow, q.begin() + rows.end * kRow, value);
      }
      const Result result = run_on(backend, p, args);
      if (!first) first = result;
      for (const Rows& rows : same) {
        const size_t row_bytes = kRow * 2, begin = static_cast<size_t>(rows.begin) * row_bytes,
                     bytes = static_cast<size_t>(rows.end - rows.begin) * row_bytes;
        EXPECT_EQ(std::memcmp(first->out.data() + begin, result.out.data() + begin, bytes), 0)
            << "rows from " << rows.begin << ", garbage " << value;
        for (int64_t h = 0; p.layout_q == Layout::kPacked && h < kHeads; ++h) {
          const int64_t at = h * rows_q + rows.begin;
          EXPECT_EQ(std::memcmp(first->lse.data() + at, result.lse.data() + at,
                                static_cast<size_t>(rows.end - rows.begin) * sizeof(float)),
                    0)
              << "rows from " << rows.begin << ", garbage " << value;
        }
      }
    }
  }
}

// The second sequence is garbage to its neighbours, and so is what follows the last one.
TEST_F(PastTheEnd, TheNextSequenceAndTheRoomBehindLeaveNoTrace) {
  const CaseTensors tensors(packed_case({150, 40, 90}, {130, 61, 200}, 140));
  ForwardArgs args = tensors.args();
  args.total_q = args.total_k = -1;  // the problem's: the room behind is part of the tensors
  constexpr Rows kGarbage[] = {{130, 191}, {391, 531}}, kSame[] = {{0, 150}, {190, 280}};
  expect_no_trace(tensors, args, kGarbage, kSame);
}

// How a score is capped goes by how large those beside it are: not by those of others.
TEST_F(PastTheEnd, TheNextSequenceLeavesNoTraceUnderASoftcap) {
  for (const bool causal : {false, true}) {
    Case c = packed_case({150, 40, 90}, {430, 61, 400}, 140);
    c.desc.causal = causal;
    c.desc.softcap = 20;
    const CaseTensors tensors(c);
    ForwardArgs args = tensors.args();
    args.total_q = args.total_k = -1;
    constexpr Rows kGarbage[] = {{430, 491}, {891, 1031}}, kSame[] = {{0, 150}, {190, 280}},
                   kGarbageQ[] = {{150, 190}, {280, 420}};
    expect_no_trace(tensors, args, kGarbage, kSame, kGarbageQ);
  }
}

TEST_F(PastTheEnd, KeysThatAreNotInUseLeaveNoTrace) {
  Case c = packed_case({}, {}, 0);
  c.desc.layout_q = c.desc.layout_kv = Layout::kDense;
  c.desc.batch = 2;
  c.desc.seqlen_q = 150;
  c.desc.seqlen_k = 300;
  c.desc.has_seqused_k = true;
  c.seqused_k = {70, 257};
  for (const bool causal : {false, true}) {
    c.desc.causal = causal;
    const CaseTensors tensors(c);
    constexpr Rows kGarbage[] = {{70, 300}, {557, 600}}, kSame[] = {{0, 300}};
    expect_no_trace(tensors, tensors.args(), kGarbage, kSame);
  }
}

// A GPU does not check them, it clamps: an emulated one would report an access outside a tensor.
TEST_F(PastTheEnd, LengthsThatLieAreClamped) {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max(),
                    kLeast = std::numeric_limits<int32_t>::min();
  const std::vector<int32_t> lies[] = {{0, -5, 100, 280},          {0, kMost, kMost, kMost},
                                       {kLeast, kLeast, 0, kMost}, {280, 200, 100, 0},
                                       {-100, 300, 200, 281},      {kMost, kLeast, kMost, kLeast}};
  Case c = packed_case({150, 40, 90}, {130, 61, 89}, 0);
  c.desc.has_seqused_k = true;
  c.seqused_k = {130, 61, 89};
  const CaseTensors tensors(c);
  bool any = false;
  for (const Backend& backend : tested_backends()) {
    if (!backend.is_gpu()) continue;
    any = true;
    SCOPED_TRACE(backend.name);
    for (const std::vector<int32_t>& lie : lies) {
      for (const int which : {0, 1, 2}) {
        ForwardArgs args = tensors.args();
        (which == 0   ? args.cu_seqlens_q
         : which == 1 ? args.cu_seqlens_k
                      : args.seqused_k) = lie.data();
        EXPECT_NO_THROW(run_on(backend, tensors.problem(), args)) << which << ", " << lie[1];
      }
    }
  }
  if (!any) GTEST_SKIP() << "no GPU here";
}

// The plan knows maxima; lengths and totals come with each execution.
TEST_F(PastTheEnd, APackedPlanServesOtherLengths) {
  const AttentionProblem most =
      AttentionProblem::make(packed_case({300, 300, 300}, {400, 400, 400}, 0).desc);
  for (const Backend& backend : backends_that_take(most)) {
    SCOPED_TRACE(backend.name);
    const ForwardPlan plan = plan_forward(most, backend.device.spec);
    for (const auto& lengths : {std::vector<int32_t>{300, 300, 300}, {1, 0, 129}, {0, 0, 0}}) {
      Case c = packed_case(lengths, {400, 17, 130}, 0);
      c.desc.total_q = most.total_q;
      c.desc.total_k = most.total_k;
      const CaseTensors tensors(c);
      const ForwardArgs args = tensors.args();
      const Reference reference = reference_forward(tensors.problem(), args, 2);
      const Result result = run_plan(backend, plan, args);
      const Accuracy out = check_out(tensors.problem(), args, reference, result.out.data());
      EXPECT_TRUE(out.passed) << lengths[0] << ": " << out.detail;
    }
  }
}

}  // namespace
}  // namespace fa4::internal
