#include "cpu/key_source.h"

#include <algorithm>
#include <cmath>

#include "cpu/pack.h"

namespace fa4::internal {
namespace {

static_assert(kDirectBlock == kDirectKeys && kDirectRows == kMostDirectRows);

char* shared_flags(const TileContext& context, char* shared) {
  const CpuScratch& s = context.scratch;
  return shared + static_cast<size_t>(s.num_n_blocks) * s.block_bytes();
}

const char* address_of(DType dtype, const void* data, int64_t offset) {
  return static_cast<const char*>(data) + offset * size_of(dtype);
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

}  // namespace

KeySource::KeySource(const TileContext& tile_context, int64_t head)
    : context(tile_context),
      b(head / context.problem.heads_kv),
      kv_head(head % context.problem.heads_kv),
      view(sequence_view(context.problem, context.args, b)),
      k(context.problem, context.args, view, b, kv_head, false),
      v(context.problem, context.args, view, b, kv_head, true) {}

int KeySource::count(int64_t block) const {
  const int64_t left = view.seqlen_k - block * context.spec.tile_n;
  return static_cast<int>(std::clamp<int64_t>(left, 0, context.spec.tile_n));
}

bool KeySource::pack(int64_t block, char* to) const {
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

int64_t KeySource::keys_alike(int64_t key) const {
  const AttentionProblem& p = context.problem;
  if (p.has_page_descales()) return 1;
  return p.descale_block == 0 ? view.seqlen_k : p.descale_block - key % p.descale_block;
}

bool KeySource::load_descales(int64_t block, float* of_keys, float* of_values) const {
  const int keys = count(block), tile_n = context.spec.tile_n;
  const float unit = value_unit();
  bool nonfinite = false;
  for (int n = 0, end = 0; n < keys; n = end) {
    const int64_t key = block * tile_n + n;
    end = n + static_cast<int>(std::min<int64_t>(keys - n, keys_alike(key)));
    const float of_key =
        descale_of(context.problem, context.args, Quantised::kKeys, b, kv_head, key);
    const float of_value =
        descale_of(context.problem, context.args, Quantised::kValues, b, kv_head, key);
    std::fill(of_keys + n, of_keys + end, of_key);
    std::fill(of_values + n, of_values + end, std::isfinite(of_value) ? of_value / unit : 0.0f);
    nonfinite |= !std::isfinite(of_value);
  }
  std::fill(of_keys + keys, of_keys + tile_n, 1.0f);
  std::fill(of_values + keys, of_values + tile_n, 1.0f);
  return nonfinite;
}

float KeySource::value_unit() const {
  if (!context.has_descales() || view.seqlen_k == 0) return 1.0f;
  const AttentionProblem& p = context.problem;
  if (p.mask.is_bounded_left() && keys_alike(0) < view.seqlen_k) return 1.0f;
  const float first = std::fabs(descale_of(p, context.args, Quantised::kValues, b, kv_head, 0));
  int exponent = 0;
  return std::isnormal(first) ? 2 * std::frexp(first, &exponent) : 1.0f;
}

void locate_keys(const TileJob& job, int64_t block, KeyRows& rows) {
  const KeySource& source = static_cast<const TileSource*>(job.context)->source;
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

void pack_shared_block(const TileContext& context, int64_t head, int64_t index_in_wave,
                       int64_t block) {
  const KeySource source(context, head);
  if (source.count(block) == 0) return;
  char* shared = context.shared_head(index_in_wave);
  const CpuScratch& s = context.scratch;
  shared_flags(context, shared)[block] =
      source.pack(block, shared + static_cast<size_t>(block) * s.block_bytes());
}

void add_nonfinite_values(TileJob& job, int64_t block, int first_row, int end_row, const void* p) {
  const KeySource& source = static_cast<const TileSource*>(job.context)->source;
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

}  // namespace fa4::internal
