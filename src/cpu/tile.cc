#include "cpu/tile.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "cpu/exponential.h"
#include "cpu/finish_row.h"
#include "cpu/pack.h"
#include "cpu/row_sums.h"
#include "kernels/softmax/exp2_math.h"

namespace fa4::internal {
namespace {

constexpr int kMaxQueryBytes = 256 * 4;
static_assert(kDirectBlock == kDirectKeys && kDirectRows == kMostDirectRows);

// Keys and values of one sequence and key head.
struct Source {
  Source(const TileContext& tile_context, int64_t head)
      : context(tile_context),
        b(head / context.problem.heads_kv),
        kv_head(head % context.problem.heads_kv),
        view(sequence_view(context.problem, context.args, b)),
        k(context.problem, context.args, view, b, kv_head, false),
        v(context.problem, context.args, view, b, kv_head, true) {}

  int count(int64_t block) const {
    const int64_t left = view.seqlen_k - block * context.spec.tile_n;
    return static_cast<int>(std::clamp<int64_t>(left, 0, context.spec.tile_n));
  }

  // Into one packed block; returns whether a value is not finite.
  bool pack(int64_t block, char* to) const {
    const AttentionProblem& p = context.problem;
    const CpuScratch& s = context.scratch;
    const int64_t first = block * context.spec.tile_n;
    const BlockSource keys{
        p.kv_dtype,   context.args.k,      k,          first,
        count(block), context.spec.tile_n, p.head_dim, context.scratch.head_dim_padded};
    pack_keys(keys, context.packing, to);
    const BlockSource values{p.kv_dtype,
                             context.args.v,
                             v,
                             first,
                             count(block),
                             context.spec.tile_n,
                             p.head_dim_v,
                             context.scratch.head_dim_v_padded};
    const bool nonfinite = pack_values(values, context.packing, to + s.k_block_bytes);
    if (!context.has_descales()) return nonfinite;
    auto* descales = reinterpret_cast<float*>(to + s.k_block_bytes + s.v_block_bytes);
    return load_descales(block, descales, descales + context.spec.tile_n) || nonfinite;
  }

  // How many keys from `key` on surely have its descales.
  int64_t keys_alike(int64_t key) const {
    const AttentionProblem& p = context.problem;
    if (p.has_page_descales()) return 1;
    return p.descale_block == 0 ? view.seqlen_k : p.descale_block - key % p.descale_block;
  }

  // Those of a block's keys and values, 1 behind the last; one of a value that is not finite
  // becomes 0, and true is returned.
  bool load_descales(int64_t block, float* of_keys, float* of_values) const {
    const int keys = count(block), tile_n = context.spec.tile_n;
    bool nonfinite = false;
    for (int n = 0, end = 0; n < keys; n = end) {
      const int64_t key = block * tile_n + n;
      end = n + static_cast<int>(std::min<int64_t>(keys - n, keys_alike(key)));
      const float of_key =
          descale_of(context.problem, context.args, Quantised::kKeys, b, kv_head, key);
      const float of_value =
          descale_of(context.problem, context.args, Quantised::kValues, b, kv_head, key);
      std::fill(of_keys + n, of_keys + end, of_key);
      std::fill(of_values + n, of_values + end, std::isfinite(of_value) ? of_value : 0.0f);
      nonfinite |= !std::isfinite(of_value);
    }
    std::fill(of_keys + keys, of_keys + tile_n, 1.0f);
    std::fill(of_values + keys, of_values + tile_n, 1.0f);
    return nonfinite;
  }

  const TileContext& context;
  int64_t b, kv_head;
  SequenceView view;
  TensorRows k, v;
};

// What TileJob::context points to.
struct TileSource {
  Source source;
  char* shared = nullptr;  // the shared head; NULL: each block is packed when it is needed
  char* own = nullptr;
};

char* shared_flags(const TileContext& context, char* shared) {
  const CpuScratch& s = context.scratch;
  return shared + static_cast<size_t>(s.num_n_blocks) * s.block_bytes();
}

const char* address_of(DType dtype, const void* data, int64_t offset) {
  return static_cast<const char*>(data) + offset * size_of(dtype);
}

void locate_keys(const TileJob& job, int64_t block, KeyRows& rows) {
  const Source& source = static_cast<const TileSource*>(job.context)->source;
  const DType dtype = source.context.problem.kv_dtype;
  rows.count = source.count(block);
  for (int n = 0; n < rows.count; ++n) {
    const int64_t key = block * job.tile_n + n;
    rows.k[n] = address_of(dtype, source.context.args.k, source.k.offset(key));
    rows.v[n] = address_of(dtype, source.context.args.v, source.v.offset(key));
  }
  rows.has_nonfinite_descale = false;
  rows.descales = {};
  if (!source.context.has_descales()) return;
  rows.has_nonfinite_descale = source.load_descales(block, rows.key_descales, rows.value_descales);
  rows.descales = {rows.key_descales, rows.value_descales};
}

KeyType key_type_of(DType dtype) {
  return dtype == DType::kF32    ? KeyType::kF32
         : dtype == DType::kF16  ? KeyType::kF16
         : dtype == DType::kBF16 ? KeyType::kBF16
                                 : KeyType::kE4M3;
}

KvBlock load_block(TileJob& job, int64_t block) {
  const TileSource& from = *static_cast<const TileSource*>(job.context);
  const TileContext& context = from.source.context;
  const CpuScratch& s = context.scratch;
  const bool shared = from.shared != nullptr;
  const char* packed =
      shared ? from.shared + static_cast<size_t>(block) * s.block_bytes() : from.own;
  const bool has_nonfinite =
      shared ? shared_flags(context, from.shared)[block] != 0 : from.source.pack(block, from.own);
  const char* values = packed + s.k_block_bytes;
  KvBlock kv{packed, values, has_nonfinite, {}};
  if (context.has_descales()) {
    const auto* descales = reinterpret_cast<const float*>(values + s.v_block_bytes);
    kv.descales = {descales, descales + job.tile_n};
  }
  return kv;
}

// Where the probability of `row` and column n lies: AMX keeps tiles of a few rows x 32.
int64_t probability_at(const CpuPacking& packing, int64_t row, int n, int tile_n) {
  if (packing.tile_rows == 0) return row * tile_n + n;
  return int64_t{n / 32} * packing.tile_rows * 32 + row * 32 + n % 32;
}

float probability(const void* p, bool is_bf16, int64_t at) {
  return is_bf16 ? bf16_to_float(static_cast<const uint16_t*>(p)[at])
                 : static_cast<const float*>(p)[at];
}

void clear_sums(TileJob& job) {
  std::fill_n(job.o, static_cast<int64_t>(job.num_rows) * job.head_dim_v, 0.0f);
  std::fill_n(job.row_max, job.num_rows, -std::numeric_limits<float>::infinity());
  std::fill_n(job.row_sum, static_cast<int64_t>(job.num_rows) * job.lanes, 0.0f);
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
    job.softcap_scale = static_cast<float>(
        std::min(2 * 1.4426950408889634 * context.abs_scale / context.problem.softcap,
                 static_cast<double>(std::numeric_limits<float>::max())));
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
  job.locate_keys = locate_keys;
  job.key_type = key_type_of(context.problem.kv_dtype);
  job.key_dim = static_cast<int>(context.problem.head_dim);
  job.value_dim = static_cast<int>(context.problem.head_dim_v);
  job.values = reinterpret_cast<float*>(scratch + layout.kv_offset);
  clear_sums(job);
  return job;
}

// Row r of rows that lie in tiles of `tile_rows` rows x 64 bytes, those of a row in order of
// columns.
void store_in_tiles(const char* row, int64_t row_bytes, int r, int tile_rows, char* to) {
  to += r / tile_rows * tile_rows * row_bytes + r % tile_rows * 64;
  for (int64_t at = 0; at < row_bytes; at += 64, to += tile_rows * 64)
    std::memcpy(to, row + at, 64);
}

// Packs the queries, finds what each row sees and the blocks of all of them.
void load_rows(const Source& source, int64_t first_row, TileJob& job) {
  const TileContext& context = source.context;
  const AttentionProblem& p = context.problem;
  const int64_t group = p.group();
  const int64_t row_bytes = context.scratch.head_dim_padded * context.scratch.element_bytes;
  auto* q = const_cast<char*>(static_cast<const char*>(job.q));
  auto* ranges = const_cast<RowRange*>(job.ranges);
  const int tile_rows = context.packing.tile_rows;
  char row[kMaxQueryBytes];
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
  job.end_block = job.last_block = (end + job.tile_n - 1) / job.tile_n;
}

// As float_to_bf16, without a branch, so that the compiler works on many at once.
uint16_t rounded_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  return static_cast<uint16_t>(value != value ? bits >> 16 | 0x40u : rounded);
}

void store_row(DType dtype, const float* o, float scale, int64_t dim, void* out, int64_t offset) {
  if (dtype == DType::kF32) {
    float* to = static_cast<float*>(out) + offset;
    for (int64_t d = 0; d < dim; ++d) to[d] = o[d] * scale;
  } else if (dtype == DType::kBF16) {
    uint16_t* to = static_cast<uint16_t*>(out) + offset;
    for (int64_t d = 0; d < dim; ++d) to[d] = rounded_to_bf16(o[d] * scale);
  } else {
    uint16_t* to = static_cast<uint16_t*>(out) + offset;
    for (int64_t d = 0; d < dim; ++d) to[d] = float_to_f16(o[d] * scale);
  }
}

// The sums of row `r` of a tile that has run.
RowSums sums_of(const TileJob& job, int r) {
  float row_sum = 0;
  for (int j = 0; j < job.lanes; ++j) row_sum += job.row_sum[r * job.lanes + j];
  return {job.row_max[r], row_sum, job.o + static_cast<int64_t>(r) * job.head_dim_v};
}

// Row `row` of a head's: query row / group of query head row % group.
void finish_one_row(const Source& source, int64_t row, bool sees_keys, const RowSums& sums) {
  const TileContext& context = source.context;
  const AttentionProblem& p = context.problem;
  const int64_t group = p.group();
  const int64_t i = row / group, h = source.kv_head * group + row % group;
  const float sink = p.has_sink ? load_as_float(p.sink_dtype, context.args.sink, h) : 0.0f;
  const RowEnd end = finish_row(sums.max, sums.sum, sees_keys, p.has_sink ? &sink : nullptr);
  store_row(p.out_dtype, sums.o, end.out_scale, p.head_dim_v, context.args.out,
            source.view.offset_out + i * p.out.seqlen + h * p.out.head);
  if (context.args.lse != nullptr) {
    context.args.lse[source.view.lse_offset + h * source.view.lse_head_stride + i] = end.lse;
  }
}

bool is_empty(const RowRange& range) { return range.begin >= range.end; }

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
  job.end_block = job.last_block = (end + job.tile_n - 1) / job.tile_n;
  return true;
}

void finish_rows(const Source& source, int64_t first_row, const TileJob& job) {
  for (int r = 0; r < job.num_rows; ++r) {
    finish_one_row(source, first_row + r, !is_empty(job.ranges[r]), sums_of(job, r));
  }
}

// The parts of a tile's keys one after another.
void run_parts(const Source& source, int64_t first_row, char* scratch, TileJob& job,
               RunTile run_tile) {
  const TileContext& context = source.context;
  const int64_t dim = context.problem.head_dim_v, stride = context.scratch.sums_stride;
  const int64_t split_keys = context.spec.split_keys;
  auto* whole = reinterpret_cast<RowRange*>(scratch + context.scratch.whole_offset);
  auto* sums = reinterpret_cast<float*>(scratch + context.scratch.sums_offset);
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
    finish_one_row(source, first_row + r, sees_keys,
                   sees_keys ? sums_at(sums + r * stride) : sums_of(job, r));
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

TileContext::TileContext(const AttentionProblem& given, const CpuKernelSpec& given_spec,
                         const ForwardArgs& given_args)
    : problem(given),
      spec(given_spec),
      args(given_args),
      scratch(cpu_scratch(given, given_spec)),
      packing(cpu_packing(given_spec.isa)),
      workspace(static_cast<char*>(given_args.workspace)),
      q_sign(given.scale > 0   ? 1.0f
             : given.scale < 0 ? -1.0f
                               : 0.0f),
      abs_scale(given.scale == 0 ? 1.0f : std::fabs(given.scale)) {}

void pack_shared_block(const TileContext& context, int64_t head, int64_t index_in_wave,
                       int64_t block) {
  const Source source(context, head);
  if (source.count(block) == 0) return;
  char* shared = context.shared_head(index_in_wave);
  const CpuScratch& s = context.scratch;
  shared_flags(context, shared)[block] =
      source.pack(block, shared + static_cast<size_t>(block) * s.block_bytes());
}

void add_nonfinite_values(TileJob& job, int64_t block, int first_row, int end_row, const void* p) {
  const Source& source = static_cast<const TileSource*>(job.context)->source;
  const AttentionProblem& problem = source.context.problem;
  const bool is_bf16 = source.context.packing.pair == 2;
  for (int n = 0; n < source.count(block); ++n) {
    const int64_t key = block * job.tile_n + n, offset = source.v.offset(key);
    const double descale =
        descale_of(problem, source.context.args, Quantised::kValues, source.b, source.kv_head, key);
    for (int64_t d = 0; d < problem.head_dim_v; ++d) {
      const double product =
          load_as_float(problem.kv_dtype, source.context.args.v, offset + d) * descale;
      if (std::isfinite(product)) continue;
      const float value = static_cast<float>(product);
      for (int64_t r = first_row; r < end_row; ++r) {
        if (key < job.ranges[r].begin || key >= job.ranges[r].end) continue;
        const float weight = probability(
            p, is_bf16, probability_at(source.context.packing, r - first_row, n, job.tile_n));
        // A weight that underflowed is still more than none.
        job.o[r * job.head_dim_v + d] += weight == 0 && std::isinf(value) ? value : weight * value;
      }
    }
  }
}

void run_one_tile(const TileContext& context, int64_t head, int64_t index_in_wave, int64_t tile,
                  int64_t slot, RunTile run_tile) {
  TileSource from{Source(context, head)};
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
    from[i].emplace(TileSource{Source(context, first_head + i)});
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
      set_sums(sums_of(jobs[i], r), context.problem.head_dim_v, sums + r * layout.sums_stride);
    }
  }
}

void finish_parts(const TileContext& context, int64_t head, int64_t row, int64_t slot) {
  const Source source(context, head);
  const AttentionProblem& p = context.problem;
  const int64_t i = row / p.group(), split_keys = context.spec.split_keys;
  if (i >= source.view.seqlen_q) return;
  const KeyRange keys = visible_keys(i, source.view.seqlen_q, source.view.seqlen_k, p.mask);
  const bool sees_keys = keys.begin < keys.end;
  auto* sums = reinterpret_cast<float*>(context.thread_scratch(slot) + context.scratch.sums_offset);
  std::fill_n(sums, context.scratch.sums_stride, 0.0f);
  const int64_t first_part = keys.begin / split_keys;
  for (int64_t part = first_part; sees_keys && part * split_keys < keys.end; ++part) {
    const RowSums given =
        sums_at(context.part_sums(head, part) + row * context.scratch.sums_stride);
    (part == first_part ? set_sums : add_sums)(given, p.head_dim_v, sums);
  }
  finish_one_row(source, row, sees_keys, sums_at(sums));
}

}  // namespace fa4::internal
