#include "plan/few_queries.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/rounding.h"
#include "plan/e4m3_plan.h"
#include "plan/gpu_plan.h"
#include "plan/key_parts.h"
#include "plan/sm100_plan.h"
#include "plan/sm100_tuning.h"
#include "plan/sm90_plan.h"

namespace fa4::internal {
namespace {

// What an SM multiplies of prompts, in FLOPs a nanosecond: on an H200 at 2048 causal keys
// (docs/performance/forward_h200.md, docs/kernels/decode_bytes_measured.md); on a B200 as published
// for the original.
constexpr double kRate = 5000, kRateOf64 = 3600;
constexpr double kBlackwellRate = 10000, kBlackwellRateOf64 = 6000;
constexpr double kShareOfBytes = 0.75;  // of that, where loaders make 16 bits of them
constexpr double kRateOfByteWarps = 1250;
// A tile of few rows beside its keys, in nanoseconds, with prompts beside it (docs/kernels/
// decode_mixed_measured.md).
constexpr double kTile = 2500, kTileOfBytes = 3500;
constexpr double kKeyByRows = 20;  // of pages whose rows threads copy, however many SMs do
// A launch more costs 2 us, which tiles of less work than this cannot win: of all SMs, or of one
// where keys may be cut.
constexpr double kLeastWork = 5000, kLeastTile = 10000;

double rate_of_prompts(const AttentionProblem& p, const DeviceSpec& device) {
  const bool narrow = p.head_dim <= 64;
  const double rate = is_sm100(device.architecture) ? narrow ? kBlackwellRateOf64 : kBlackwellRate
                      : narrow                      ? kRateOf64
                                                    : kRate;
  if (!p.is_quantised()) return rate;
  return takes_bytes(p, device) ? kShareOfBytes * rate : kRateOfByteWarps;
}

// Whether sequences of a packed call may be prompts and decoding: their keys come from a cache, or
// are more than their queries, and not all can have as many queries as the longest.
bool may_mix(const AttentionProblem& p) {
  const bool have_keys_before = p.layout_kv != Layout::kPacked || p.total_k > p.total_q;
  return p.layout_q == Layout::kPacked && p.batch > 1 && have_keys_before &&
         p.total_q < p.batch * p.seqlen_q;
}

// A model of the call's time (docs/kernels/decode.md, "Prompts and decoding in one call"). Each
// sequence of few queries has the greatest number of keys, and as few prompts as may be have all
// other queries, over as many keys.
class Model {
 public:
  Model(const AttentionProblem& p, const DeviceSpec& device)
      : key_(pages_of(p) == Pages::kRows ? KeyTime{kKeyByRows, kKeyByRows} : key_time(p, device)),
        tile_(p.is_quantised() ? kTileOfBytes : kTile),
        num_sms_(device.num_sms),
        fewest_sms_(fewest_sms(p, device)) {
    const int64_t prompts = ceil_div(std::max<int64_t>(p.total_q - p.batch, 1), p.seqlen_q);
    const int64_t heads = p.heads_q / packable_group(p);
    tiles_ = std::clamp<int64_t>(p.batch - prompts, 1, std::max<int64_t>(p.total_q, 1)) * heads;
    most_tiles_ = p.batch * heads;
    keys_ = p.seqlen_k;
    if (p.mask.is_bounded_left()) keys_ = std::min(keys_, std::max<int64_t>(p.mask.window_left, 0));
    const auto of_pair = static_cast<double>(2 * (p.head_dim + p.head_dim_v) * p.heads_q);
    const auto pairs = static_cast<double>(visible_pairs(p.seqlen_q, p.seqlen_q, p.mask) * prompts);
    of_prompts_ = of_pair * pairs / rate_of_prompts(p, device);
  }

  bool is_worth_a_launch() const {
    return work() >= kLeastWork * num_sms_ || (has_few_tiles() && time_of_tile(0.0) >= kLeastTile);
  }

  // Keys are cut then. The workspace has room for parts of every sequence.
  bool has_few_tiles() const { return 2 * tiles_ <= num_sms_ && most_tiles_ <= num_sms_; }

  // For the launch of few: of choices that are nearly alike the fewest.
  int choose_sms() const {
    constexpr double kAlike = 1.01;
    if (has_few_tiles()) {  // any number of SMs have as much each
      const double share = kLate * work() / (work() + of_prompts_);
      return std::clamp(static_cast<int>(std::ceil(share * num_sms_)), fewest_sms_, num_sms_);
    }
    double least = time_of(num_sms_);
    for (int sms = fewest_sms_; sms < num_sms_; ++sms) least = std::min(least, time_of(sms));
    int sms = fewest_sms_;
    while (time_of(sms) > kAlike * least) ++sms;
    return sms;
  }

 private:
  // Prompts may be shorter than the model's, and bytes beside prompts are slower. So are few rows
  // with a softcap, of 16 bits on Hopper 1.3 to 1.6 times (docs/kernels/decode_mixed_measured.md,
  // "Softcap").
  static int fewest_sms(const AttentionProblem& p, const DeviceSpec& device) {
    const int all = device.num_sms;
    if (p.is_quantised()) return ceil_div(3 * all, 5);
    if (p.softcap == 0 || is_sm100(device.architecture)) return ceil_div(all, 2);
    return p.head_dim <= 128 ? all : ceil_div(7 * all, 10);
  }

  // Where the launch of few ends last, SMs are idle: that counts a little more.
  static constexpr double kLate = 1.1;

  // The time that all tiles of few rows take together, while all SMs work on such tiles.
  double work() const { return static_cast<double>(tiles_) * time_of_tile(1.0); }

  // The time of one tile while `share` of the SMs work on such tiles.
  double time_of_tile(double share) const {
    return tile_ + static_cast<double>(keys_) * std::max(key_.of_one, key_.of_all * share);
  }

  // The launch of few takes its rounds' time, and both together the mean of all SMs'.
  double time_of(int sms) const {
    const double share = static_cast<double>(sms) / num_sms_;
    const double few = static_cast<double>(ceil_div(tiles_, int64_t{sms})) * time_of_tile(share);
    return std::max(kLate * few, share * few + of_prompts_ / num_sms_);
  }

  KeyTime key_;
  double tile_;
  int num_sms_;
  int fewest_sms_;
  int64_t tiles_, most_tiles_;  // with as few prompts as may be, and none
  int64_t keys_;
  double of_prompts_;  // of one SM
};

// Queries whose rows are one tile of the kernel of few rows; 0: those of one are more.
int64_t most_queries(const AttentionProblem& p, const DeviceSpec& device) {
  AttentionProblem one = p;
  one.seqlen_q = 1;
  return part_tile_rows(one, device) / packed_rows(packable_group(p));
}

}  // namespace

std::optional<FewQueries> choose_few_queries(const AttentionProblem& p, const DeviceSpec& device) {
  if (!may_mix(p)) return std::nullopt;
  if (p.num_splits > 1 || p.split_keys > 0 || p.out_dtype != p.dtype) return std::nullopt;
  if (p.sm_margin > 0) return std::nullopt;  // both launches together take every SM
  AttentionProblem few = p;
  few.seqlen_q = most_queries(p, device);
  if (few.seqlen_q == 0 || few.seqlen_q >= p.seqlen_q) return std::nullopt;
  if (choose_key_parts(p, device).are_cut()) return std::nullopt;
  const Model model(p, device);
  if (!model.is_worth_a_launch()) return std::nullopt;
  if (!model.has_few_tiles()) few.num_splits = 1;
  DeviceSpec share = device;
  share.num_sms = model.choose_sms();
  if (p.is_quantised()) return FewQueries{few.seqlen_q, plan_e4m3(few, share)};
  if (is_sm100(device.architecture)) return FewQueries{few.seqlen_q, plan_sm100(few, share, {})};
  return FewQueries{few.seqlen_q, plan_sm90(few, share, {})};
}

AttentionProblem without_few_queries(AttentionProblem p, const FewQueries& few) {
  p.batch = std::clamp<int64_t>(p.total_q / (few.most + 1), 1, p.batch);
  p.num_splits = 1;  // so few sequences by themselves would have their keys cut
  return p;
}

void explain_few_queries(const FewQueries& few, std::vector<PlanStep>* steps) {
  const GpuTiling tiling = tiling_of(few.spec);
  steps->push_back(
      {"few queries",
       fmt::format("sequences of at most {}: tiles of {} rows, {}, {} CTAs", few.most,
                   tiling.shape.tile_m,
                   tiling.parts.are_cut() ? fmt::format("keys in up to {} parts", tiling.parts.most)
                                          : "all keys",
                   tiling.schedule.grid),
       "a launch of their own: their keys arrive while the tensor cores work on prompts"});
}

}  // namespace fa4::internal
