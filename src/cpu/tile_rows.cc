#include "cpu/tile_rows.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/rounding.h"
#include "cpu/finish_row.h"
#include "cpu/pack.h"
#include "cpu/store_row.h"

namespace fa4::internal {
namespace {

// Row r of rows that lie in tiles of `tile_rows` rows x 64 bytes, those of a row in order of
// columns.
void store_in_tiles(const char* row, int64_t row_bytes, int r, int tile_rows, char* to) {
  to += r / tile_rows * tile_rows * row_bytes + r % tile_rows * 64;
  for (int64_t at = 0; at < row_bytes; at += 64, to += tile_rows * 64)
    std::memcpy(to, row + at, 64);
}

}  // namespace

void load_rows(const KeySource& source, int64_t first_row, TileJob& job) {
  const TileContext& context = source.context;
  const AttentionProblem& p = context.problem;
  const int64_t group = p.group();
  const int64_t row_bytes = context.scratch.head_dim_padded * context.scratch.element_bytes;
  auto* q = const_cast<char*>(static_cast<const char*>(job.q));
  auto* ranges = const_cast<RowRange*>(job.ranges);
  const int tile_rows = context.packing.tile_rows;
  char row[kMaxHeadDim * sizeof(float)];
  int64_t begin = std::numeric_limits<int64_t>::max(), end = 0;
  for (int r = 0; r < job.num_rows; ++r) {
    const int64_t i = (first_row + r) / group, h = source.kv_head * group + (first_row + r) % group;
    pack_query(p.dtype, context.args.q, source.view.offset_q + i * p.q.seqlen + h * p.q.head,
               p.head_dim, context.scratch.head_dim_padded, context.packing.pair, context.q_sign,
               tile_rows > 0 ? row : q + r * row_bytes);
    if (tile_rows > 0) store_in_tiles(row, row_bytes, r, tile_rows, q);
    const KeyRange range = visible_keys(i, source.view.seqlen_q, source.view.seqlen_k, p.mask);
    ranges[r] = {range.begin, range.end};
    if (range.begin >= range.end) continue;
    begin = std::min(begin, range.begin);
    end = std::max(end, range.end);
  }
  job.first_block = end == 0 ? 0 : begin / job.tile_n;
  job.end_block = job.last_block = ceil_div(end, job.tile_n);
}

RowSums sums_of(const TileJob& job, int r) {
  const float* partial = job.row_sum + r * job.lanes;
  float* o = job.o + static_cast<int64_t>(r) * job.head_dim_v;
  double row_sum = 0;
  if (job.o_low == nullptr) {
    for (int j = 0; j < job.lanes; ++j) row_sum += partial[j];
  } else {
    const float* partial_low = job.row_sum_low + r * job.lanes;
    for (int j = 0; j < job.lanes; ++j) row_sum += double{partial[j]} + partial_low[j];
    const float* low = job.o_low + static_cast<int64_t>(r) * job.head_dim_v;
    for (int d = 0; d < job.head_dim_v; ++d) o[d] += low[d] == low[d] ? low[d] : 0.0f;
  }
  return {job.row_max[r], static_cast<float>(row_sum), o};
}

void finish_row_of(const KeySource& source, int64_t row, bool sees_keys, const RowSums& sums) {
  const TileContext& context = source.context;
  const AttentionProblem& p = context.problem;
  const int64_t group = p.group();
  const int64_t i = row / group, h = source.kv_head * group + row % group;
  const float sink = p.has_sink ? load_as_float(p.sink_dtype, context.args.sink, h) : 0.0f;
  const RowEnd end = finish_row(sums.max, sums.sum, sees_keys, p.has_sink ? &sink : nullptr);
  store_row(context.spec.isa, p.out_dtype, sums.o, end.out_scale * source.value_unit(),
            p.head_dim_v, context.args.out,
            source.view.offset_out + i * p.out.seqlen + h * p.out.head);
  if (context.args.lse != nullptr) {
    context.args.lse[source.view.lse_offset + h * source.view.lse_head_stride + i] = end.lse;
  }
}

void finish_rows(const KeySource& source, int64_t first_row, const TileJob& job) {
  for (int r = 0; r < job.num_rows; ++r) {
    finish_row_of(source, first_row + r, !is_empty(job.ranges[r]), sums_of(job, r));
  }
}

}  // namespace fa4::internal
