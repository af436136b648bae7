#include "cpu/tile.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/exponential.h"
#include "cpu/finish_row.h"
#include "cpu/pack.h"
#include "kernels/softmax/exp2_math.h"

namespace fa4::internal {
namespace {

constexpr int kMaxQueryBytes = 256 * 4;

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

  // Returns whether a value is not finite.
  bool pack(int64_t block, char* k_to, char* v_to) const {
    const AttentionProblem& p = context.problem;
    const int64_t first = block * context.spec.tile_n;
    const BlockSource keys{
        p.dtype,      context.args.k,      k,          first,
        count(block), context.spec.tile_n, p.head_dim, context.scratch.head_dim_padded};
    pack_keys(keys, context.packing, k_to);
    const BlockSource values{p.dtype,
                             context.args.v,
                             v,
                             first,
                             count(block),
                             context.spec.tile_n,
                             p.head_dim_v,
                             context.scratch.head_dim_v_padded};
    return pack_values(values, context.packing, v_to);
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
  return shared + static_cast<size_t>(s.num_n_blocks) * (s.k_block_bytes + s.v_block_bytes);
}

KvBlock load_block(TileJob& job, int64_t block) {
  const TileSource& from = *static_cast<const TileSource*>(job.context);
  const CpuScratch& s = from.source.context.scratch;
  if (from.shared == nullptr) {
    char* values = from.own + s.k_block_bytes;
    const bool has_nonfinite = from.source.pack(block, from.own, values);
    return {from.own, values, has_nonfinite};
  }
  const char* keys = from.shared + static_cast<size_t>(block) * (s.k_block_bytes + s.v_block_bytes);
  return {keys, keys + s.k_block_bytes, shared_flags(from.source.context, from.shared)[block] != 0};
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
  std::fill_n(job.o, static_cast<int64_t>(num_rows) * job.head_dim_v, 0.0f);
  std::fill_n(job.row_max, num_rows, -std::numeric_limits<float>::infinity());
  std::fill_n(job.row_sum, static_cast<int64_t>(num_rows) * job.lanes, 0.0f);
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
  job.end_block = (end + job.tile_n - 1) / job.tile_n;
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

void finish_rows(const Source& source, int64_t first_row, const TileJob& job) {
  const TileContext& context = source.context;
  const AttentionProblem& p = context.problem;
  const int64_t group = p.group();
  for (int r = 0; r < job.num_rows; ++r) {
    const int64_t i = (first_row + r) / group, h = source.kv_head * group + (first_row + r) % group;
    float row_sum = 0;
    for (int j = 0; j < job.lanes; ++j) row_sum += job.row_sum[r * job.lanes + j];
    const bool sees_keys = job.ranges[r].begin < job.ranges[r].end;
    const float sink = p.has_sink ? load_as_float(p.sink_dtype, context.args.sink, h) : 0.0f;
    const RowEnd end = finish_row(job.row_max[r], row_sum, sees_keys, p.has_sink ? &sink : nullptr);
    store_row(p.out_dtype, job.o + static_cast<int64_t>(r) * job.head_dim_v, end.out_scale,
              p.head_dim_v, context.args.out,
              source.view.offset_out + i * p.out.seqlen + h * p.out.head);
    if (context.args.lse != nullptr) {
      context.args.lse[source.view.lse_offset + h * source.view.lse_head_stride + i] = end.lse;
    }
  }
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
  char* keys = shared + static_cast<size_t>(block) * (s.k_block_bytes + s.v_block_bytes);
  shared_flags(context, shared)[block] = source.pack(block, keys, keys + s.k_block_bytes);
}

void add_nonfinite_values(TileJob& job, int64_t block, int first_row, int end_row, const void* p) {
  const Source& source = static_cast<const TileSource*>(job.context)->source;
  const AttentionProblem& problem = source.context.problem;
  const bool is_bf16 = source.context.packing.pair == 2;
  for (int n = 0; n < source.count(block); ++n) {
    const int64_t key = block * job.tile_n + n, offset = source.v.offset(key);
    for (int64_t d = 0; d < problem.head_dim_v; ++d) {
      const float value = load_as_float(problem.dtype, source.context.args.v, offset + d);
      if (std::isfinite(value)) continue;
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
  TileJob job =
      make_job(context, static_cast<int>(std::min<int64_t>(rows, context.spec.tile_m)), scratch);
  load_rows(from.source, first_row, job);
  if (context.spec.heads_per_wave > 0) {
    from.shared = context.shared_head(index_in_wave);
  } else {
    from.own = scratch + context.scratch.kv_offset;
  }
  job.load_block = load_block;
  job.blocks_persist = from.shared != nullptr;
  job.context = &from;
  run_tile(job);
  finish_rows(from.source, first_row, job);
}

}  // namespace fa4::internal
