#include "cpu/tile.h"

#include <algorithm>
#include <limits>
#include <numbers>
#include <optional>

#include "core/rounding.h"
#include "cpu/exponential.h"
#include "cpu/pack.h"
#include "cpu/tile_rows.h"
#include "kernels/softmax/exp2_math.h"

namespace fa4::internal {
namespace {

void clear_sums(TileJob& job) {
  std::fill_n(job.o, static_cast<int64_t>(job.num_rows) * job.head_dim_v, 0.0f);
  std::fill_n(job.row_max, job.num_rows, -std::numeric_limits<float>::infinity());
  std::fill_n(job.row_sum, static_cast<int64_t>(job.num_rows) * job.lanes, 0.0f);
  if (job.o_low == nullptr) return;
  std::fill_n(job.o_low, static_cast<int64_t>(job.num_rows) * job.head_dim_v, 0.0f);
  std::fill_n(job.row_sum_low, static_cast<int64_t>(job.num_rows) * job.lanes, 0.0f);
  if (job.o_plain == nullptr) return;
  std::fill_n(job.o_plain, static_cast<int64_t>(job.num_rows) * job.head_dim_v, 0.0f);
}

// Cuts the thread's scratch into the job's parts and clears the sums.
TileJob make_job(const TileContext& context, int num_rows, char* scratch) {
  const CpuScratch& layout = context.scratch;
  TileJob job{};
  job.num_rows = num_rows;
  job.tile_n = context.spec.tile_n;
  job.head_dim = static_cast<int>(layout.head_dim_padded);
  job.head_dim_v = static_cast<int>(layout.head_dim_v_padded);
  job.lanes = context.packing.lanes;
  job.exp2_degree = exp2_degree(context.problem.dtype);
  job.compensated = context.problem.dtype == DType::kF32;
  job.has_descales = context.has_descales();
  job.rescale_threshold = rescale_threshold(context.problem.dtype);
  job.scale_log2 = context.abs_scale * kLog2E;
  if (context.problem.softcap != 0) {
    // Finite, since 0 times infinity is NaN.
    job.softcap_scale =
        std::min(2 * std::numbers::log2e * context.abs_scale / context.problem.softcap,
                 static_cast<double>(std::numeric_limits<float>::max()));
    job.softcap_log2 = context.problem.softcap * kLog2E;
  }
  job.q = scratch + layout.q_offset;
  job.s = reinterpret_cast<float*>(scratch + layout.s_offset);
  job.p = scratch + layout.p_offset;
  job.o = reinterpret_cast<float*>(scratch + layout.o_offset);
  auto* ranges = reinterpret_cast<RowRange*>(scratch + layout.stats_offset);
  job.ranges = ranges;
  job.row_max = reinterpret_cast<float*>(ranges + context.spec.tile_m);
  job.row_sum = job.row_max + context.spec.tile_m;
  if (job.compensated) {
    job.o_low = reinterpret_cast<float*>(scratch + layout.o_low_offset);
    job.row_sum_low = job.row_sum + context.spec.tile_m * job.lanes;
    if (!context.spec.direct) {
      job.o_plain = reinterpret_cast<float*>(scratch + layout.o_plain_offset);
    }
  }
  job.locate_keys = locate_keys;
  job.key_type = key_type_of(context.problem.kv_dtype);
  job.key_dim = static_cast<int>(context.problem.head_dim);
  job.value_dim = static_cast<int>(context.problem.head_dim_v);
  job.values = reinterpret_cast<float*>(scratch + layout.kv_offset);
  clear_sums(job);
  return job;
}

RowRange cut(const RowRange& range, int64_t begin, int64_t end) {
  return {std::max(range.begin, begin), std::min(range.end, end)};
}

// Sets the job up for part `part` of what its rows see of all keys, `whole`. False: none sees it.
bool begin_part(const TileContext& context, const RowRange* whole, int64_t part, TileJob& job) {
  const int64_t first = part * context.spec.split_keys, last = first + context.spec.split_keys;
  auto* ranges = const_cast<RowRange*>(job.ranges);
  int64_t begin = last, end = first;
  for (int r = 0; r < job.num_rows; ++r) {
    ranges[r] = cut(whole[r], first, last);
    if (is_empty(ranges[r])) continue;
    begin = std::min(begin, ranges[r].begin);
    end = std::max(end, ranges[r].end);
  }
  job.first_block = job.end_block = job.last_block = begin / job.tile_n;
  if (begin >= end) return false;
  clear_sums(job);
  job.end_block = job.last_block = ceil_div(end, job.tile_n);
  return true;
}

// The parts of a tile's keys one after another.
void run_parts(const KeySource& source, int64_t first_row, char* scratch, TileJob& job,
               RunTile run_tile) {
  const TileContext& context = source.context;
  const int64_t dim = context.problem.head_dim_v, stride = context.scratch.sums_stride;
  const int64_t split_keys = context.spec.split_keys;
  auto* whole = reinterpret_cast<RowRange*>(scratch + context.scratch.whole_offset);
  auto* sums = reinterpret_cast<double*>(scratch + context.scratch.sums_offset);
  std::copy_n(job.ranges, job.num_rows, whole);
  const int64_t first_part = job.first_block * job.tile_n / split_keys;
  const int64_t end_key = job.end_block * job.tile_n;
  for (int64_t part = first_part; part * split_keys < end_key; ++part) {
    if (!begin_part(context, whole, part, job)) continue;
    run_tile(job);
    for (int r = 0; r < job.num_rows; ++r) {
      if (is_empty(job.ranges[r])) continue;
      const bool is_first = whole[r].begin / split_keys == part;
      (is_first ? set_sums : add_sums)(sums_of(job, r), dim, sums + r * stride);
    }
  }
  for (int r = 0; r < job.num_rows; ++r) {
    const bool sees_keys = !is_empty(whole[r]);
    finish_row_of(source, first_row + r, sees_keys,
                  sees_keys ? round_sums(sums + r * stride, dim, job.o + r * job.head_dim_v)
                            : sums_of(job, r));
  }
}

// A tile's job with its rows loaded; `from` must outlive it.
TileJob prepare_tile(TileSource& from, int64_t first_row, int64_t rows, char* scratch) {
  const TileContext& context = from.source.context;
  TileJob job =
      make_job(context, static_cast<int>(std::min<int64_t>(rows, context.spec.tile_m)), scratch);
  load_rows(from.source, first_row, job);
  job.load_block = load_block;
  job.context = &from;
  return job;
}

}  // namespace

void run_one_tile(const TileContext& context, int64_t head, int64_t index_in_wave, int64_t tile,
                  int64_t slot, RunTile run_tile) {
  TileSource from{KeySource(context, head)};
  const int64_t first_row = tile * context.spec.tile_m;
  const int64_t rows = from.source.view.seqlen_q * context.problem.group() - first_row;
  if (rows <= 0) return;
  char* scratch = context.thread_scratch(slot);
  if (context.spec.heads_per_wave > 0) {
    from.shared = context.shared_head(index_in_wave);
  } else {
    from.own = scratch + context.scratch.kv_offset;
  }
  TileJob job = prepare_tile(from, first_row, rows, scratch);
  job.blocks_persist = from.shared != nullptr;
  if (context.spec.split_keys > 0) return run_parts(from.source, first_row, scratch, job, run_tile);
  run_tile(job);
  finish_rows(from.source, first_row, job);
}

void run_one_part(const TileContext& context, int64_t first_head, int count, int64_t part,
                  int64_t slot, RunTile run_tile) {
  const CpuScratch& layout = context.scratch;
  std::optional<TileSource> from[kMostHeadsTogether];
  TileJob jobs[kMostHeadsTogether];
  int64_t begin = std::numeric_limits<int64_t>::max(), end = 0;
  for (int i = 0; i < count; ++i) {
    from[i].emplace(TileSource{KeySource(context, first_head + i)});
    const SequenceView& view = from[i]->source.view;
    const int64_t rows = view.seqlen_q * context.problem.group();
    if (rows <= 0 || part * context.spec.split_keys >= view.seqlen_k) return;
    char* scratch = context.thread_scratch(slot, i);
    from[i]->own = scratch + layout.kv_offset;
    jobs[i] = prepare_tile(*from[i], 0, rows, scratch);
    auto* whole = reinterpret_cast<RowRange*>(scratch + layout.whole_offset);
    std::copy_n(jobs[i].ranges, jobs[i].num_rows, whole);
    if (!begin_part(context, whole, part, jobs[i])) return;  // nor does another head's row see it
    begin = std::min(begin, jobs[i].first_block);
    end = std::max(end, jobs[i].end_block);
  }
  // Heads in turns, a block each, where there are several: what a direct loop allows.
  const int64_t step = count > 1 ? 1 : end - begin;
  for (int64_t block = begin; block < end; block += step) {
    for (int i = 0; i < count; ++i) {
      jobs[i].first_block = block;
      jobs[i].end_block = block + step;
      run_tile(jobs[i]);
    }
  }
  for (int i = 0; i < count; ++i) {
    float* sums = context.part_sums(first_head + i, part);
    for (int r = 0; r < jobs[i].num_rows; ++r) {
      if (is_empty(jobs[i].ranges[r])) continue;
      store_sums(sums_of(jobs[i], r), context.problem.head_dim_v, sums + r * layout.sums_stride);
    }
  }
}

void finish_parts(const TileContext& context, int64_t head, int64_t row, int64_t slot) {
  const KeySource source(context, head);
  const AttentionProblem& p = context.problem;
  const int64_t i = row / p.group(), split_keys = context.spec.split_keys;
  if (i >= source.view.seqlen_q) return;
  const KeyRange keys = visible_keys(i, source.view.seqlen_q, source.view.seqlen_k, p.mask);
  const bool sees_keys = keys.begin < keys.end;
  char* scratch = context.thread_scratch(slot);
  auto* sums = reinterpret_cast<double*>(scratch + context.scratch.sums_offset);
  std::fill_n(sums, context.scratch.sums_stride, 0.0);
  const int64_t first_part = keys.begin / split_keys;
  for (int64_t part = first_part; sees_keys && part * split_keys < keys.end; ++part) {
    const RowSums given =
        sums_at(context.part_sums(head, part) + row * context.scratch.sums_stride);
    (part == first_part ? set_sums : add_sums)(given, p.head_dim_v, sums);
  }
  auto* o = reinterpret_cast<float*>(scratch + context.scratch.o_offset);
  finish_row_of(source, row, sees_keys, round_sums(sums, p.head_dim_v, o));
}

}  // namespace fa4::internal
