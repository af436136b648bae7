#include "attention/forward_params.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/error.h"
#include "plan/gpu_plan.h"

namespace fa4::internal {
namespace {

constexpr int64_t kUnboundedWindow = (int64_t{1} << 30) - 1;
// A scale of 0 would make a hidden score's -inf NaN; this one makes every finite score 0.
constexpr float kSmallestScale = 1e-30f;

OutputParams output_params(const AttentionProblem& p, const ForwardArgs& args) {
  return {.data = args.out,
          .lse = args.lse,
          .stride_batch = p.out.batch,
          .stride_seqlen = p.out.seqlen,
          .stride_head = p.out.head,
          .head_dim_v = static_cast<int32_t>(p.head_dim_v),
          .is_f32 = p.out_dtype == DType::kF32};
}

HeadParams head_params(const AttentionProblem& p, int group) {
  const int64_t tile_heads = p.heads_q / group;
  return {.heads_q = static_cast<int32_t>(p.heads_q),
          .group = group,
          .group_log2 = std::countr_zero(static_cast<unsigned>(packed_rows(group))),
          .tile_heads = static_cast<int32_t>(tile_heads),
          .tile_heads_per_kv = static_cast<int32_t>(tile_heads / p.heads_kv)};
}

TileOrder order_of(TileSource source) {
  switch (source) {
    case TileSource::kThereAndBack: return TileOrder::kThereAndBack;
    case TileSource::kLaunchControl: return TileOrder::kLaunchControl;
    case TileSource::kByLength: return TileOrder::kByLength;
    case TileSource::kStride:
    case TileSource::kCounter: break;  // a counter is asked in its place
  }
  return TileOrder::kStride;
}

// A CTA would write the ranks of more sequences past the end of those that it keeps.
void check_ranked(const AttentionProblem& p, const GpuTiling& tiling) {
  const int most = tiling.shape.most_ranked;
  if (tiling.schedule.source != TileSource::kByLength || p.batch <= most) return;
  throw Error(
      ErrorCode::kInternal,
      fmt::format("tiles of batch {} by length; accepted: up to {} sequences", p.batch, most));
}

ScheduleParams schedule_params(const TileSchedule& schedule) {
  return {.tile_counter = nullptr,
          .sections = schedule.sections,
          .longest_first = schedule.longest_first,
          .order = order_of(schedule.source),
          .leaves_sms = schedule.leaves_sms,
          .launch_pair = LaunchPair::kAlone};
}

ScoreParams score_params(const AttentionProblem& p, const ForwardArgs& args) {
  const double scale = std::max(std::abs(p.scale), kSmallestScale) * std::numbers::log2e;
  return {.sink = args.sink,
          .scale_log2 = finite_float(p.softcap > 0 ? 1.0 : scale),
          .sink_type = float_type(p.sink_dtype)};
}

CapParams cap_params(const AttentionProblem& p) {
  CapParams cap{};
  cap.negates = p.scale < 0;
  if (p.softcap == 0) return cap;
  const double softcap_log2 = std::max(p.softcap, kSmallestScale) * std::numbers::log2e;
  const double x = std::abs(static_cast<double>(p.scale)) / p.softcap;
  cap.softcap_log2 = finite_float(softcap_log2);
  cap.scale_over_softcap = finite_float(x);
  cap.near = near_cap(x, softcap_log2);
  return cap;
}

// A page of one row has no distance between rows: there it is that of pages.
PageRows page_rows(const AttentionProblem& p, const void* data, const Strides& strides,
                   int64_t columns) {
  const int64_t per_element = elements_per_16_bits(p);
  const int64_t stride_row = p.page_size == 1 ? strides.batch : strides.seqlen;
  const int64_t group = pages_of(p) == Pages::kBoxes ? kGroupRows * strides.seqlen : 0;
  return {.data = data,
          .stride_page = strides.batch / per_element,
          .stride_row = stride_row / per_element,
          .stride_head = strides.head / per_element,
          .columns = static_cast<int32_t>(columns / per_element),
          .groups_of_page = static_cast<int32_t>(group > 0 ? strides.batch / group : 0),
          .page_rows = 0,  // these three with the map of the matrix
          .row_rows = 0,
          .head_rows = 0};
}

DescaleRows descale_rows(const AttentionProblem& p, const float* data, const Strides& strides) {
  return {.data = data,
          .stride_batch = p.has_page_descales() ? 0 : strides.batch,
          .stride_block = strides.seqlen,
          .stride_head = strides.head};
}

DescaleParams descale_params(const AttentionProblem& p, const ForwardArgs& args) {
  return {.k = descale_rows(p, args.k_descale, p.k_descale),
          .v = descale_rows(p, args.v_descale, p.v_descale),
          .of_pages = p.has_page_descales(),
          .shift = descale_shift(p)};
}

int32_t simple_log2(const PageParams& pages) {
  constexpr int64_t kMost = int64_t{1} << 32;
  const int64_t size = pages.page_size;
  const auto are_even = [&](const PageRows& rows) {
    return rows.stride_page == size * rows.stride_row && rows.stride_row > 0 &&
           rows.stride_row < kMost / kElementBytes;
  };
  const bool simple = std::has_single_bit(static_cast<uint64_t>(size)) && pages.prefix_len == 0 &&
                      pages.stride_entry == 1 && size * pages.num_pages < kMost &&
                      are_even(pages.k) && are_even(pages.v) &&
                      pages.k.stride_row == pages.v.stride_row;
  return simple ? std::countr_zero(static_cast<uint64_t>(size)) : -1;
}

PageParams page_params(const AttentionProblem& p, const LaunchShape& shape,
                       const ForwardArgs& args) {
  if (p.layout_kv != Layout::kPaged) return {};
  PageParams pages = page_table_params(p, args);
  pages.box_rows = page_box_rows(pages.page_size, pages.prefix_len, shape.k_rows);
  pages.k = page_rows(p, args.k, p.k, p.head_dim);
  pages.v = page_rows(p, args.v, p.v, p.head_dim_v);
  pages.simple_log2 = simple_log2(pages);
  return pages;
}

}  // namespace

int64_t elements_per_16_bits(const AttentionProblem& p) { return p.is_quantised() ? 2 : 1; }

PageParams page_table_params(const AttentionProblem& p, const SequenceArgs& args) {
  if (p.layout_kv != Layout::kPaged) return {};
  const auto page_size = static_cast<int32_t>(p.page_size);
  return {.table = args.page_table,
          .prefix_pages = args.prefix_pages,
          .stride_batch = p.page_table.batch,
          .stride_head = p.page_table_heads > 1 ? p.page_table.head : 0,
          .stride_entry = p.page_table.seqlen,
          .prefix_len = static_cast<int32_t>(p.prefix_len),
          .page_size = page_size,
          .division = page_division(page_size),
          .num_pages = static_cast<int32_t>(p.num_pages),
          .box_rows = 0,
          .simple_log2 = -1,
          .k = {},
          .v = {}};
}

int32_t descale_shift(const AttentionProblem& p) {
  constexpr int kOfAll = 31;
  return p.descale_block == 0 ? kOfAll : std::countr_zero(uint64_t{kDescaleBlock});
}

FloatType float_type(DType dtype) {
  if (dtype == DType::kF32) return FloatType::kF32;
  return dtype == DType::kF16 ? FloatType::kF16 : FloatType::kBF16;
}

float finite_float(double factor) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(factor, -kLargest, kLargest));
}

NearCap near_cap(double x, double unit) {
  // The range of scale over softcap in which the polynomial's coefficients are normal floats.
  constexpr double kLeast = 1e-5, kMost = 1e4;
  const double magnitude = std::abs(x);
  if (magnitude < kLeast || magnitude > kMost) {
    NearCap none{};
    none.limit = -1.0f;
    return none;
  }
  const auto coefficient = [&](int power, float of_tanh) {
    return static_cast<float>(unit * std::pow(x, power) * of_tanh);
  };
  return {.limit = static_cast<float>(kNear / magnitude),
          .c1 = coefficient(1, kTanh1),
          .c3 = coefficient(3, kTanh3),
          .c5 = coefficient(5, kTanh5),
          .c7 = coefficient(7, kTanh7)};
}

SequenceParams sequence_params(const AttentionProblem& p, const SequenceArgs& args) {
  // Where there is no page there is no key, whatever seqused_k says.
  const bool has_keys = p.layout_kv != Layout::kPaged || p.num_pages > 0;
  return {.cu_seqlens_q = args.cu_seqlens_q,
          .cu_seqlens_k = args.cu_seqlens_k,
          .seqused_q = args.seqused_q,
          .seqused_k = args.seqused_k,
          .batch = static_cast<int32_t>(p.batch),
          .seqlen_q = static_cast<int32_t>(p.seqlen_q),
          .seqlen_k = static_cast<int32_t>(has_keys ? p.seqlen_k : 0),
          .total_q = static_cast<int32_t>(rows_of_packed_q(p, args)),
          .total_k = static_cast<int32_t>(rows_of_packed_k(p, args)),
          .least_q = 0,
          .most_q = std::numeric_limits<int32_t>::max()};
}

MaskParams mask_params(const MaskSpec& mask) {
  const auto window = [](bool is_bounded, int64_t w) {
    return static_cast<int32_t>(is_bounded ? std::min(w, kUnboundedWindow) : kUnboundedWindow);
  };
  return {.window_left = window(mask.is_bounded_left(), mask.window_left),
          .window_right = window(mask.is_bounded_right(), mask.window_right)};
}

FwdParams forward_params(const AttentionProblem& problem, const GpuTiling& tiling,
                         const ForwardArgs& args) {
  check_ranked(problem, tiling);
  return {.maps = {},
          .output = output_params(problem, args),
          .sequences = sequence_params(problem, args),
          .heads = head_params(problem, tiling.schedule.group),
          .mask = mask_params(problem.mask),
          .schedule = schedule_params(tiling.schedule),
          .scores = score_params(problem, args),
          .cap = cap_params(problem),
          .pages = page_params(problem, tiling.shape, args),
          .parts = {.sums = nullptr,
                    .stats = nullptr,
                    .keys = tiling.parts.keys,
                    .most = tiling.parts.most,
                    .most_log2 = tiling.parts.are_even()
                                     ? std::countr_zero(static_cast<unsigned>(tiling.parts.most))
                                     : 0,
                    .columns = tiling.shape.columns_v,
                    .tile_rows = tiling.shape.tile_m,
                    .queries = 0,
                    .cluster_log2 = std::countr_zero(static_cast<unsigned>(tiling.parts.cluster))},
          .descales = descale_params(problem, args)};
}

}  // namespace fa4::internal
