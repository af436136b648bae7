#include "cpu/backward_block.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/rounding.h"
#include "cpu/backward_rows.h"
#include "cpu/pack.h"
#include "cpu/pack_tiles.h"

namespace fa4::internal {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A number as a float and what that lacks.
void split(double value, float& high, float& low) {
  high = static_cast<float>(value);
  low = std::isfinite(high) ? static_cast<float>(value - high) : 0.0f;
}

}  // namespace

BackwardContext::BackwardContext(const AttentionProblem& given, const CpuBackwardSpec& given_spec,
                                 const BackwardArgs& given_args, const double* given_delta)
    : problem(given),
      spec(given_spec),
      args(given_args),
      delta(given_delta),
      scratch(cpu_backward_scratch(given, given_spec)),
      packing(cpu_packing(given_spec.isa)) {
  // The layout of cpu_backward_workspace, which allocates.
  Parts parts;
  parts.add(given.lse_elements() * 8);
  auto* workspace = static_cast<char*>(given_args.workspace);
  threads = workspace + parts.add(static_cast<int64_t>(scratch.threads_bytes));
  heads = workspace + parts.add(static_cast<int64_t>(scratch.heads_bytes));
}

HeadBlocks::HeadBlocks(const BackwardContext& context, int64_t head, int64_t index_in_wave)
    : context_(context),
      b_(head / context.problem.heads_kv),
      head_(head % context.problem.heads_kv),
      view_(sequence_view(context.problem, context.args, b_)),
      memory_(context.heads + static_cast<size_t>(index_in_wave) * context.scratch.bytes_per_head) {
}

int HeadBlocks::num_rows(int64_t m) const {
  const int64_t left = view_.seqlen_q * context_.problem.group() - m * context_.spec.tile_m;
  return static_cast<int>(std::clamp<int64_t>(left, 0, context_.spec.tile_m));
}

RowRange HeadBlocks::key_blocks(int64_t m) const {
  const AttentionProblem& p = context_.problem;
  const int rows = num_rows(m);
  if (rows == 0) return {0, 0};
  const int64_t first = m * context_.spec.tile_m / p.group();
  const int64_t last = (m * context_.spec.tile_m + rows - 1) / p.group();
  // The first row's range begins first, the last one's ends last.
  const int64_t begin = visible_keys(first, view_.seqlen_q, view_.seqlen_k, p.mask).begin;
  const int64_t end = visible_keys(last, view_.seqlen_q, view_.seqlen_k, p.mask).end;
  if (begin >= end) return {0, 0};
  return {begin / context_.spec.tile_n, (end - 1) / context_.spec.tile_n + 1};
}

void HeadBlocks::pack_rows(int64_t m) const {
  const AttentionProblem& p = context_.problem;
  const CpuBackwardScratch& s = context_.scratch;
  const int rows = num_rows(m);
  if (rows == 0) return;
  const int64_t first_row = m * context_.spec.tile_m, group = p.group();
  auto* lse = at<float>(part(m, s.lse));
  auto* lse_low = at<float>(part(m, s.lse_low));
  auto* delta = at<float>(part(m, s.row_delta));
  auto* delta_low = at<float>(part(m, s.delta_low));
  auto* ranges = at<RowRange>(part(m, s.ranges));
  for (int r = 0; r < context_.spec.tile_m; ++r) {
    lse[r] = lse_low[r] = delta[r] = delta_low[r] = 0;
    ranges[r] = {0, 0};
    if (r >= rows) continue;
    const int64_t i = (first_row + r) / group, h = head_ * group + (first_row + r) % group;
    const int64_t at_lse = view_.lse_offset + h * view_.lse_head_stride + i;
    if (context_.args.lse[at_lse] == -kInfinity) continue;
    split(context_.args.lse[at_lse] * std::numbers::log2e, lse[r], lse_low[r]);
    split(context_.delta[at_lse], delta[r], delta_low[r]);
    const KeyRange range = visible_keys(i, view_.seqlen_q, view_.seqlen_k, p.mask);
    ranges[r] = {range.begin, range.end};
  }
  const TensorRows q(p.q, view_, head_, group), dout(p.dout, view_, head_, group);
  nonfinite(m) = 0;
  const auto pack = [&](const void* data, const TensorRows& from, int64_t dim, int64_t padded,
                        int64_t columns, char* to_rows, char* to_panels, int32_t flag) {
    const int64_t row_bytes = padded * s.row_bytes;
    const int64_t panel_bytes = int64_t{context_.spec.tile_m} * columns * 4 / context_.packing.pair;
    if (data == nullptr) {
      std::fill_n(to_rows, context_.spec.tile_m * row_bytes, 0);
      std::fill_n(to_panels, panel_bytes, 0);
      return;
    }
    if (context_.packing.tile_rows > 0) {
      const int64_t end = round_up(rows, context_.packing.tile_rows);
      auto* tiles = at<uint16_t>(to_rows);
      uint16_t row[kMaxHeadDim];
      for (int r = 0; r < rows; ++r) {
        pack_query(p.dtype, data, from.offset(first_row + r), dim, padded, 2, 1.0f, row);
        store_in_tiles(row, padded, r, tiles);
      }
      // Products take whole tiles: rows past the last are 0.
      std::fill_n(row, padded, uint16_t{0});
      for (int64_t r = rows; r < end; ++r) store_in_tiles(row, padded, r, tiles);
      if (pack_columns(tiles, end, padded, context_.spec.tile_m, at<uint16_t>(to_panels))) {
        nonfinite(m) |= flag;
      }
      return;
    }
    for (int r = 0; r < rows; ++r) {
      pack_query(p.dtype, data, from.offset(first_row + r), dim, padded, context_.packing.pair,
                 1.0f, to_rows + r * row_bytes);
      if (p.dtype == DType::kF32) widen(padded, to_rows + r * row_bytes);
    }
    const BlockSource source{p.dtype, data,   from, first_row, rows, context_.spec.tile_m,
                             dim,     columns};
    if (pack_values(source, context_.packing, to_panels)) nonfinite(m) |= flag;
  };
  pack(context_.args.q, q, p.head_dim, s.head_dim_padded, s.dq_columns, part(m, s.q),
       part(m, s.q_panels), kNonfiniteQ);
  pack(context_.args.dout, dout, p.head_dim_v, s.head_dim_v_padded, s.dv_columns, part(m, s.dout),
       part(m, s.dout_panels), kNonfiniteDout);
  std::fill_n(at<float>(part(m, s.dq)), context_.spec.tile_m * s.dq_columns, 0.0f);
  turn(m) = static_cast<int32_t>(key_blocks(m).begin);
}

void HeadBlocks::store_dq(int64_t m) const {
  const AttentionProblem& p = context_.problem;
  const int64_t group = p.group(), first_row = m * context_.spec.tile_m;
  const TensorRows dq(p.dq, view_, head_, group);
  const auto* sums = at<float>(part(m, context_.scratch.dq));
  for (int r = 0; r < num_rows(m); ++r) {
    store_row(p.grad_dtype, sums + r * context_.scratch.dq_columns, p.scale, p.head_dim,
              context_.args.dq, dq.offset(first_row + r));
  }
}

}  // namespace fa4::internal
