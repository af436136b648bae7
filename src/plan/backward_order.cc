#include "plan/backward_order.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/rounding.h"

namespace fa4::internal {
namespace {

// Of the L2 cache: Q, dO and dq's sums of the heads in flight. Beyond the cache sums fall to the
// rate of DRAM, a third (docs/kernels/hopper_rates.md has the L2's); an H200's is two halves, each
// of which keeps what its SMs read, and what is dirty waits there to be written.
constexpr double kL2ShareForQueries = 0.27;
// The same of heads with few works, whose sums wait long beside the time that they take, and, where
// works clear the sums of later sections, of equal ones: zeros that wait long for their first
// addition are written to DRAM meanwhile. Long heads under a mask, of which there is less to clear,
// are faster the old way (docs/kernels/bwd_sm90_sections.md, "Zeros a little ahead").
constexpr double kL2ShareOfShortHeads = 0.08;
constexpr int64_t kWorksOfLongHead = 32, kWorksOfLongHeadInTurns = 16;
// Where so many blocks of keys add to a block of queries, or fewer, its first sums are stored, not
// added to zeros, which weigh more the fewer there are
// (docs/kernels/bwd_sm90_order.md, "The first one stores").
constexpr int64_t kFewAdditions = 64;
// The same where rows are not bounded to the right, so that all works of a head keep in step with
// its first one; and there sums find their zeros in the L2 cache if they are no more than this
// share of it.
constexpr int64_t kFewAdditionsInStep = 16;
constexpr double kL2ShareOfZeros = 0.5;
// Deterministic: half of a sequence's key heads go down the queries, or one of so many where works
// do not get longer from block to block, or come in two kinds
// (docs/kernels/bwd_sm90_order.md, "Heads in pairs").
constexpr int64_t kHeadsOfOneDown = 8;
// Works an SM of a section of pairs that go up, where one of kHeadsOfOneDown goes down.
constexpr int64_t kWorksOfFewPairs = 2;
// A section of pairs may lack works that go up for so many of the SMs before it takes one pair
// more.
constexpr double kIdleOfPairs = 1.0 / 16;
// Deterministic without a mask: works that begin a turn after one another leave SMs idle in the
// beginning and in the end. Of so many works an SM or fewer, so many are in flight.
constexpr int64_t kFewWorksInStep = 4, kWorksOfSectionInStep = 2;
// Works of an SM. Under a mask, longest first, the long ones of the last section go on when others
// have ended. That weighs where there are fewer than kFewWorks in all: a section then has so many
// at least (docs/kernels/bwd_sm90_sections.md, "The last section").
constexpr int64_t kFewWorks = 24, kFewWorksOfSection = 2;
// Heads of fewer works than these: half as many, so that the sums of a section stay in the cache.
constexpr int64_t kWorksOfShortHead = 24, kFewWorksOfShortHeads = 1;

// Works finish dq of a section so many works an SM before their own, whose works have ended by
// then.
constexpr double kWorksBeforeFinish = 1.5;
// A work finishes its share beside its own products, for which it has time where so many blocks of
// keys or more add to a block of queries, in the mean
// (docs/kernels/bwd_sm90_order.md, "dq by the schedule warp").
constexpr int64_t kAdditionsToFinish = 8;

// Blocks of keys that add to dq of a block of queries, at most.
int64_t additions(const AttentionProblem& p, const BackwardShape& shape) {
  const int64_t keys = p.mask.is_bounded_left() && p.mask.is_bounded_right()
                           ? std::min(p.mask.window_left + p.mask.window_right, p.seqlen_k)
                           : p.seqlen_k;
  return ceil_div(keys, shape.keys);
}

// Whether the first to add to a block of dq stores, where all add to zeros else.
bool first_stores(const AttentionProblem& p, const DeviceSpec& device, const BackwardShape& shape) {
  if (p.deterministic) return true;
  if (!shape.first_stores) return false;
  if (p.mask.is_bounded_right()) return additions(p, shape) <= kFewAdditions;
  const double bytes = 4.0 * shape.head_dim * static_cast<double>(workspace_rows(p));
  return additions(p, shape) <= kFewAdditionsInStep &&
         bytes > kL2ShareOfZeros * static_cast<double>(device.l2_bytes);
}

// Whether works can finish dq: blocks of queries lie one behind the other, all of their rows are
// the tensor's and have sums, all works come, and TMA stores 16 bits.
bool can_finish(const AttentionProblem& p, const BackwardShape& shape) {
  const MaskSpec mask = mask_as_asked(p);
  const bool is_dense = p.layout_q == Layout::kDense && p.layout_kv == Layout::kDense &&
                        !p.has_seqused_q && !p.has_seqused_k;
  const bool all_see_keys = mask.is_full() || (!mask.is_bounded_left() && mask.window_right >= 0 &&
                                               p.seqlen_q <= p.seqlen_k);
  return shape.finishes && is_dense && all_see_keys && p.grad_dtype != DType::kF32;
}

// How many sections before its own a work finishes dq of; 0: none does.
int64_t finish_behind(const AttentionProblem& p, const DeviceSpec& device,
                      const BackwardShape& shape, bool stores, int64_t sections) {
  if (p.deterministic || !stores || !can_finish(p, shape)) return 0;
  const int64_t mean_additions = additions(p, shape) / (mask_as_asked(p).is_full() ? 1 : 2);
  if (mean_additions < kAdditionsToFinish) return 0;
  const double works = static_cast<double>(all_works(p, shape)) / static_cast<double>(sections);
  const auto behind = static_cast<int64_t>(kWorksBeforeFinish * device.num_sms / works) + 1;
  return behind < sections ? behind : 0;
}

// For a section's queries; 0: a head at a time.
double l2_share(const AttentionProblem& p, const BackwardShape& shape, const TurnRow& turns) {
  const bool is_full = p.mask.is_full();
  const int64_t works = works_of_head(p, shape);
  if (p.deterministic) {
    if (is_full) return 0.0;
    return works < kWorksOfLongHeadInTurns ? turns.l2_share_of_short_heads : turns.l2_share;
  }
  if (shape.first_stores && (is_full || works < kWorksOfLongHead)) return kL2ShareOfShortHeads;
  return is_full ? 0.0 : kL2ShareForQueries;
}

// Query heads of a subgroup, or of all of the group.
int64_t heads_of_work(const AttentionProblem& p, const BackwardShape& shape) {
  return p.group() / shape.subgroups;
}

// Whether works get longer from block to block, and each brings a gradient of queries: then a head
// that goes up and one that goes down fill SMs between them, without a wait.
bool half_go_down(const MaskSpec& mask, const BackwardShape& shape) {
  return !mask.is_bounded_left() && shape.works_per_block == 1;
}

// How many of a sequence's heads go down the queries.
int64_t heads_down(const AttentionProblem& p, const BackwardShape& shape, bool stores) {
  const MaskSpec mask = mask_as_asked(p);
  const int64_t heads = key_heads(p, shape);
  if (!stores || !mask.is_bounded_right()) return 0;
  if (!p.deterministic) return heads;
  return half_go_down(mask, shape) ? heads / 2 : (heads + kHeadsOfOneDown / 2) / kHeadsOfOneDown;
}

// Key heads of a section of those without a pair. `all_down`: all heads go down the queries.
int64_t heads_at_once(const AttentionProblem& p, const DeviceSpec& device,
                      const BackwardShape& shape, const TurnRow& turns, bool all_down) {
  const int64_t group = heads_of_work(p, shape), works = works_of_head(p, shape);
  const int64_t in_all = all_works(p, shape);
  const bool last_first = p.deterministic && mask_as_asked(p).is_bounded_right();
  const double row_bytes =
      2.0 * static_cast<double>(p.head_dim + p.head_dim_v) + 4.0 * shape.head_dim;
  const double head_bytes = std::max(1.0, row_bytes * static_cast<double>(group * p.seqlen_q));
  auto heads = static_cast<int64_t>(l2_share(p, shape, turns) *
                                    static_cast<double>(device.l2_bytes) / head_bytes);
  const auto at_least = [&](int64_t works_of_sm) {
    heads = std::max(heads, ceil_div(works_of_sm * device.num_sms, works));
  };
  if (!p.mask.is_full() && !last_first && in_all < kFewWorks * device.num_sms) {
    at_least(works < kWorksOfShortHead ? kFewWorksOfShortHeads : kFewWorksOfSection);
  }
  if (all_down) at_least(1);
  if (!p.deterministic) return heads;
  if (!last_first && in_all < kFewWorksInStep * device.num_sms) at_least(kWorksOfSectionInStep);
  const int columns = last_first ? turns.columns_last_first : turns.columns;
  if (columns == 0) return heads;
  // So many heads that a head's CTAs begin a turn after one another, and none waits.
  const int64_t steps = std::max<int64_t>(group * query_blocks(p), 1);
  return std::max(heads, ceil_div(int64_t{shape.head_dim + columns} * device.num_sms,
                                  int64_t{shape.head_dim} * steps));
}

// Pairs of heads in a section.
int64_t pairs_at_once(const AttentionProblem& p, const DeviceSpec& device,
                      const BackwardShape& shape, const TurnRow& turns) {
  int64_t works = kWorksOfFewPairs;
  // The works of a subgroup of several heads come to the second one more than a turn after another.
  if (half_go_down(mask_as_asked(p), shape)) {
    works = heads_of_work(p, shape) == 1 ? turns.pair_works : 1;
  }
  const double wanted = (1.0 - kIdleOfPairs) * static_cast<double>(works * device.num_sms);
  return ceil_div(std::max<int64_t>(static_cast<int64_t>(wanted), 1), works_of_head(p, shape));
}

// Rather a pair more than one less, which leaves SMs idle in every section; but not of several
// query heads, which fill the L2 cache.
int64_t pair_sections(const AttentionProblem& p, const DeviceSpec& device,
                      const BackwardShape& shape, const TurnRow& turns, int64_t pairs) {
  const int64_t at_once = pairs_at_once(p, device, shape, turns);
  const int64_t sections =
      heads_of_work(p, shape) == 1 ? pairs / at_once : ceil_div(pairs, at_once);
  return std::max<int64_t>(sections, 1);
}

}  // namespace

MaskSpec mask_as_asked(const AttentionProblem& p) {
  MaskSpec mask = p.window;
  if (p.causal) mask.window_right = 0;
  return mask;
}

BwdOrder choose_backward_order(const AttentionProblem& p, const DeviceSpec& device,
                               const BackwardShape& shape, const TurnRow& turns) {
  const int64_t heads = std::max<int64_t>(key_heads(p, shape), 1);
  const int64_t batch = std::max<int64_t>(p.batch, 1);
  const MaskSpec mask = mask_as_asked(p);
  const bool stores = first_stores(p, device, shape);
  const int64_t down = heads_down(p, shape, stores), pairs = std::min(down, heads - down);
  const int64_t others = std::max<int64_t>(batch * (heads - 2 * pairs), 1);
  const int64_t section =
      std::clamp<int64_t>(heads_at_once(p, device, shape, turns, down == heads), 1, others);
  const int64_t sections = ceil_div(others, section);
  return {
      .sections = static_cast<int32_t>(sections),
      // Where a row sees no keys far behind it, the last keys' works are those that see few rows.
      .last_keys_first = p.deterministic && mask.is_bounded_right(),
      .heads_down = static_cast<int32_t>(down),
      .pair_sections = static_cast<int32_t>(pair_sections(p, device, shape, turns, batch * pairs)),
      .first_stores = stores,
      // Works that all begin at the last queries keep together there. Those of a window are each
      // elsewhere, and what one of them has read is read again sooner where a head comes at a time.
      .heads_together = down == heads && !mask.is_bounded_left(),
      .finish_behind = static_cast<int32_t>(finish_behind(p, device, shape, stores, sections))};
}

void explain_backward_order(const AttentionProblem& p, int subgroups, const BwdOrder& order,
                            std::vector<PlanStep>* steps) {
  if (subgroups > 1) {
    steps->push_back(
        {"groups", fmt::format("of {} query heads, each in {} subgroups", p.group(), subgroups),
         "whole ones leave CTAs idle, or wait; dk and dv of the subgroups add up in f32"});
  }
  const int64_t heads = p.heads_kv * subgroups, down = order.heads_down;
  const int64_t pairs = std::min(down, heads - down);
  const char* what = subgroups > 1 ? "subgroups of key heads" : "key heads";
  if (const int64_t others = heads - 2 * pairs; others > 0) {
    const bool goes_down = down > pairs;
    steps->push_back(
        {"order",
         fmt::format("{} of {} {}, sections: {}, {} keys first{}", others, heads, what,
                     order.sections, !goes_down && order.last_keys_first != 0 ? "last" : "first",
                     goes_down ? ", down the queries" : ""),
         goes_down ? "all begin behind the one that stores; short works fill the end"
                   : "queries and sums of dq of a section fit the L2 cache"});
  }
  if (pairs > 0) {
    steps->push_back({"pairs",
                      fmt::format("{} of {} {}, sections: {}; half go up, half down", 2 * pairs,
                                  heads, what, order.pair_sections),
                      "each work follows the one before it by a turn"});
  }
  if (p.deterministic) {
    steps->push_back({"dq", "added up in turns", "deterministic: the same order in every run"});
  } else if (order.first_stores != 0) {
    steps->push_back({"dq", "the first one stores, the others add in any order",
                      "no zeros on the way through DRAM"});
  }
  if (order.finish_behind != 0) {
    steps->push_back({"finish",
                      fmt::format("dq of all but the last {} sections by the works so many behind",
                                  order.finish_behind),
                      "their sums are in the L2 cache still"});
  }
}

}  // namespace fa4::internal
