#include "plan/subgroups.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "core/rounding.h"

namespace fa4::internal {
namespace {

// Measured, in steps of 64 queries (docs/kernels/bwd_sm90_order.md, "Groups cut anew").
//
// What a work takes beside its steps: by itself; of a subgroup, whose dk and dv go to another
// one in f32.
constexpr double kStepsOfWork = 3, kStepsOfSubgroup = 5;
// Works of different lengths come to a block of queries at different times, and the L2 cache does
// not hold all heads of all groups meanwhile. Each head behind the first makes all steps longer by
// kSpread over the steps of a head and kSpreadSteps at 128 columns: by less where a row has fewer
// bytes, and by more where it has more, though not as much more.
constexpr double kSpread = 2.4, kSpreadSteps = 8;
constexpr double kRowBytes = 2 * (128 + 128) + 4 * 128;  // of queries, dO and sums of dq
double spread_of(const AttentionProblem& p, double steps) {
  const double bytes = static_cast<double>(2 * (p.head_dim + p.head_dim_v) + 4 * p.head_dim);
  const double share = bytes / kRowBytes;
  return kSpread / (steps + kSpreadSteps) * std::min(share, std::sqrt(share));
}
// So many works an SM end about together. Of longer heads no block is looked at by itself.
constexpr int64_t kManyWorks = 8, kMostBlocks = 1024;
// Deterministic: so many key heads of works of one length fill a device with some thousand keys. Of
// fewer so many subgroups do, whose works wait less for those of their head; of works of many
// lengths there are no fewer subgroups either, where groups have so many heads.
constexpr int64_t kHeadsThatFill = 4, kSubgroupsThatFill = 8;
// Deterministic, under a causal mask: query heads of a subgroup, at most
// (docs/kernels/bwd_sm90_order.md, "Heads in pairs"); of works in two kinds one.
constexpr int64_t kHeadsOfSubgroup = 2, kHeadsOfSubgroupOfFewColumns = 4;
constexpr int kFewColumns = 64;

// Whether blocks of keys are seen by many queries and by few: not of a window, nor of no mask.
bool are_uneven(const MaskSpec& mask) { return mask.is_bounded_left() != mask.is_bounded_right(); }

// Sequences of the mean length, where lengths differ.
struct Sequences {
  int64_t batch, seqlen_q, seqlen_k;
};
Sequences mean_sequences(const AttentionProblem& p) {
  const auto mean = [&](Layout layout, int64_t total, int64_t longest) {
    return layout == Layout::kPacked ? std::min(ceil_div(total, p.batch), longest) : longest;
  };
  return {p.batch, mean(p.layout_q, p.total_q, p.seqlen_q),
          mean(p.layout_kv, p.total_k, p.seqlen_k)};
}

// Steps of the blocks of keys of a head: how many blocks of 64 queries see them.
class BlockSteps {
 public:
  BlockSteps(const Sequences& s, const MaskSpec& mask, int keys)
      : count_(ceil_div(s.seqlen_k, keys)) {
    if (count_ == 0) return;
    if (count_ > kMostBlocks) {
      const auto pairs = static_cast<double>(visible_pairs(s.seqlen_q, s.seqlen_k, mask));
      mean_ = pairs / kQueryRows / static_cast<double>(count_ * keys);
      return;
    }
    const int64_t reach = s.seqlen_q + s.seqlen_k;  // no window that matters is longer
    const int64_t left = std::clamp(mask.window_left, -reach, reach);
    const int64_t right = std::clamp(mask.window_right, -reach, reach);
    const auto row = [&](int64_t key) { return key - s.seqlen_k + s.seqlen_q; };  // its position's
    for (int64_t first = 0; first < s.seqlen_k; first += keys) {
      int64_t begin = 0, end = s.seqlen_q;
      if (mask.is_bounded_right()) begin = std::max(begin, row(first) - right);
      if (mask.is_bounded_left()) {
        const int64_t last = std::min(first + keys, s.seqlen_k) - 1;
        end = std::min(end, row(last) + left + 1);
      }
      longest_first_.push_back(static_cast<double>(std::max<int64_t>(end - begin, 0)) / kQueryRows);
      mean_ += longest_first_.back() / static_cast<double>(count_);
    }
    std::sort(longest_first_.begin(), longest_first_.end(), std::greater<>());
  }

  double mean() const { return mean_; }

  // How long `machines` take for `copies` of each block, of `heads` heads and `more` steps, longest
  // first, at least: as long as if all were busy to the end; and as long as k of those that begin
  // when each has taken k - 1.
  double schedule(int64_t copies, double heads, double more, int64_t machines) const {
    const int64_t works = copies * count_;
    double length =
        static_cast<double>(works) * (mean_ * heads + more) / static_cast<double>(machines);
    if (longest_first_.empty()) return length;
    for (int64_t k = 1; k <= kManyWorks && (k - 1) * machines < works; ++k) {
      const auto next = static_cast<size_t>((k - 1) * machines / copies);
      length = std::max(length, static_cast<double>(k) * (longest_first_[next] * heads + more));
    }
    return length;
  }

 private:
  int64_t count_;
  double mean_ = 0.0;
  std::vector<double> longest_first_;  // or only their mean is known
};

// Query heads of a deterministic subgroup, where works have many lengths. Of many heads in one
// work, one after the other, some wait long for turns, and what they read has left the cache. So
// few subgroups that SMs stand idle have fewer heads each.
int64_t deterministic_heads_of_subgroup(const AttentionProblem& p, const BackwardShape& shape) {
  if (shape.works_per_block > 1 || !mask_as_asked(p).is_bounded_right()) return 1;
  const int64_t most =
      shape.head_dim <= kFewColumns ? kHeadsOfSubgroupOfFewColumns : kHeadsOfSubgroup;
  int64_t heads = std::clamp<int64_t>(p.heads_q / kSubgroupsThatFill, 1, std::min(most, p.group()));
  while (p.group() % heads != 0) --heads;
  return heads;
}

// A function of heads, mask and kernel alone: the batch and lengths must change no bit.
int deterministic_subgroups(const AttentionProblem& p, const BackwardShape& shape) {
  if (are_uneven(mask_as_asked(p))) {
    return static_cast<int>(p.group() / deterministic_heads_of_subgroup(p, shape));
  }
  if (p.heads_kv >= kHeadsThatFill) return 1;
  int64_t subgroups = 1;
  while (p.group() % subgroups != 0 ||
         (p.heads_kv * subgroups < kSubgroupsThatFill && subgroups < p.group())) {
    ++subgroups;
  }
  return static_cast<int>(subgroups);
}

}  // namespace

int choose_subgroups(const AttentionProblem& p, const DeviceSpec& device,
                     const BackwardShape& shape) {
  if (p.group() == 1) return 1;
  if (p.deterministic) return deterministic_subgroups(p, shape);
  if (p.batch == 0) return 1;  // no sequence has a mean length
  const Sequences s = mean_sequences(p);
  const int64_t machines = std::max(device.num_sms / shape.cluster, 1);
  const int64_t heads = s.batch * p.heads_kv * shape.works_per_block;
  const BlockSteps blocks(s, p.mask, shape.keys);
  if (blocks.mean() == 0.0) return 1;
  const double spread = are_uneven(p.mask) ? spread_of(p, blocks.mean()) : 0.0;
  int best = 1;
  double least = 0.0;
  for (int subgroups = 1; subgroups <= p.group(); ++subgroups) {
    if (p.group() % subgroups != 0) continue;
    const auto heads_of_subgroup = static_cast<double>(p.group() / subgroups);
    const double more = subgroups == 1 ? kStepsOfWork : kStepsOfSubgroup;
    const double length = blocks.schedule(heads * subgroups, heads_of_subgroup, more, machines) *
                          (1.0 + spread * (heads_of_subgroup - 1.0));
    if (subgroups > 1 && length >= least) continue;
    best = subgroups;
    least = length;
  }
  return best;
}

}  // namespace fa4::internal
