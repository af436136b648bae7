#include "cpu/backward_block.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/rounding.h"
#include "cpu/backward_rows.h"
#include "cpu/pack.h"
#include "cpu/pack_tiles.h"
#include "cpu/store_row.h"

namespace fa4::internal {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A number as a float and what that lacks.
void split(double value, float& high, float& low) {
  high = static_cast<float>(value);
  low = std::isfinite(high) ? static_cast<float>(value - high) : 0.0f;
}

}  // namespace

void move_to_totals(int64_t count, float* sums, double* totals) {
  for (int64_t i = 0; i < count; ++i) {
    totals[i] += sums[i];
    sums[i] = 0;
  }
}

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
  if (num_rows(m) == 0) return;
  store_statistics(m);
  nonfinite(m) = 0;
  const Operand q{context_.args.q, TensorRows(p.q, view_, head_, p.group()), p.head_dim,
                  s.head_dim_padded, s.dq_columns};
  if (pack_operand(q, m, part(m, s.q), part(m, s.q_panels))) nonfinite(m) |= kNonfiniteQ;
  const Operand dout{context_.args.dout, TensorRows(p.dout, view_, head_, p.group()), p.head_dim_v,
                     s.head_dim_v_padded, s.dv_columns};
  if (pack_operand(dout, m, part(m, s.dout), part(m, s.dout_panels))) {
    nonfinite(m) |= kNonfiniteDout;
  }
  std::fill_n(at<float>(part(m, s.dq)), context_.spec.tile_m * s.dq_columns, 0.0f);
  if (p.dtype == DType::kF32) {
    std::fill_n(at<double>(part(m, s.dq_totals)), context_.spec.tile_m * s.dq_columns, 0.0);
  }
  turn(m) = static_cast<int32_t>(key_blocks(m).begin);
}

void HeadBlocks::store_statistics(int64_t m) const {
  const CpuBackwardScratch& s = context_.scratch;
  const int64_t first_row = m * context_.spec.tile_m, group = context_.problem.group();
  const int rows = num_rows(m);
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
    const KeyRange range = visible_keys(i, view_.seqlen_q, view_.seqlen_k, context_.problem.mask);
    ranges[r] = {range.begin, range.end};
  }
}

bool HeadBlocks::pack_operand(const Operand& of, int64_t m, char* to_rows, char* to_panels) const {
  const int tile_m = context_.spec.tile_m, pair = context_.packing.pair;
  const int64_t row_bytes = of.padded * context_.scratch.row_bytes;
  if (of.data == nullptr) {
    std::fill_n(to_rows, tile_m * row_bytes, 0);
    std::fill_n(to_panels, int64_t{tile_m} * of.columns * 4 / pair, 0);
    return false;
  }
  if (context_.packing.tile_rows > 0) {
    return pack_operand_in_tiles(of, m, at<uint16_t>(to_rows), at<uint16_t>(to_panels));
  }
  const DType dtype = context_.problem.dtype;
  const int64_t first_row = int64_t{tile_m} * m;
  const int rows = num_rows(m);
  for (int r = 0; r < rows; ++r) {
    pack_query(dtype, of.data, of.rows.offset(first_row + r), of.dim, of.padded, pair, 1.0f,
               to_rows + r * row_bytes);
    if (dtype == DType::kF32) widen(of.padded, to_rows + r * row_bytes);
  }
  const BlockSource source{dtype, of.data, of.rows, first_row, rows, tile_m, of.dim, of.columns};
  return pack_values(source, context_.packing, to_panels);
}

bool HeadBlocks::pack_operand_in_tiles(const Operand& of, int64_t m, uint16_t* tiles,
                                       uint16_t* panels) const {
  const int tile_m = context_.spec.tile_m, rows = num_rows(m);
  const int64_t end = round_up(rows, context_.packing.tile_rows);
  uint16_t row[kMaxHeadDim];
  for (int r = 0; r < rows; ++r) {
    pack_query(context_.problem.dtype, of.data, of.rows.offset(int64_t{tile_m} * m + r), of.dim,
               of.padded, 2, 1.0f, row);
    store_in_tiles(row, of.padded, r, tiles);
  }
  // Products take whole tiles: rows past the last are 0.
  std::fill_n(row, of.padded, uint16_t{0});
  for (int64_t r = rows; r < end; ++r) store_in_tiles(row, of.padded, r, tiles);
  return pack_columns(tiles, end, of.padded, tile_m, panels);
}

void HeadBlocks::store_dq(int64_t m) const {
  const AttentionProblem& p = context_.problem;
  const int64_t group = p.group(), first_row = m * context_.spec.tile_m;
  const TensorRows dq(p.dq, view_, head_, group);
  const int64_t columns = context_.scratch.dq_columns;
  const int rows = num_rows(m);
  auto* sums = at<float>(part(m, context_.scratch.dq));
  if (p.dtype == DType::kF32) {
    const auto* totals = at<double>(part(m, context_.scratch.dq_totals));
    for (int64_t i = 0; i < rows * columns; ++i) sums[i] = static_cast<float>(totals[i] + sums[i]);
  }
  for (int r = 0; r < rows; ++r) {
    store_row(context_.spec.isa, p.grad_dtype, sums + r * columns, p.scale, p.head_dim,
              context_.args.dq, dq.offset(first_row + r));
  }
}

}  // namespace fa4::internal
