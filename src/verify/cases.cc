#include "verify/cases.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "core/rounding.h"
#include "verify/random.h"

namespace fa4::internal {
namespace {

using Pair = std::pair<int64_t, int64_t>;

// The sequence pairs (q, k) that flash-attn-4's own tests use, and its long-key ones.
constexpr Pair kPairs[] = {{1, 1},       {3, 3},     {64, 32},   {64, 1},    {239, 1},
                           {799, 3},     {113, 203}, {113, 128}, {128, 217}, {113, 211},
                           {108, 256},   {255, 256}, {384, 256}, {640, 128}, {1023, 1024},
                           {1024, 1023}, {1, 339},   {3, 799},   {64, 800}};
constexpr Pair kLongPairs[] = {{4096, 4096}, {4224, 4224}};

// Head dimensions: the exact ones of a GPU kernel, and everything that rounds up to them.
Pair choose_head_dims(int64_t family, Random& random) {
  const auto multiple = [&](int64_t low, int64_t high) {
    return 8 * random.between(low / 8, high / 8);
  };
  const auto same = [](int64_t d) { return Pair{d, d}; };
  switch (family) {
    case 0: return same(64);
    case 1: return same(96);
    case 2: return same(128);
    case 3: return same(192);
    case 4: return same(256);
    case 5: return {192, 128};
    case 6: return same(multiple(8, 56));
    case 7: return same(multiple(72, 88));
    case 8: return same(multiple(104, 120));
    case 9: return same(multiple(136, 184));
    case 10: return same(multiple(200, 248));
    case 11: return {192, 128};
    default: return {multiple(8, 256), multiple(8, 256)};
  }
}
constexpr int64_t kHeadDimFamilies = 13;

// From 2048 keys on a kernel may have another tile shape.
Pair choose_long_keys(int64_t index, Random& random) {
  switch (random.between(0, 7)) {
    case 0: return {random.between(1025, 2300), random.between(2048, 2600)};
    case 1: {
      const int64_t n = random.between(2048, 2300);
      return {n, n};
    }
    case 2:
      if (random.chance(20)) return kLongPairs[static_cast<size_t>(index) % std::size(kLongPairs)];
      [[fallthrough]];
    default: return {random.between(1, 256), random.between(2048, 4500)};
  }
}

Pair choose_lengths(int64_t index, Random& random) {
  if (index % 3 == 0) return kPairs[static_cast<size_t>(index / 3) % std::size(kPairs)];
  const int64_t kind = random.between(0, 99);
  if (kind < 3) return {random.between(0, 1) * 40, random.between(0, 1) * 40};
  if (kind < 13) return {random.between(1025, 3000), random.between(1, 300)};
  if (kind < 20) {
    const int64_t n = random.between(1025, 1800);
    return {n, n};
  }
  if (kind < 50) {
    const int64_t n = random.between(1, 700);
    return {n, n};
  }
  return {random.between(1, 600), random.between(1, 700)};
}

void choose_heads(ProblemDesc& d, Random& random) {
  const int64_t kind = random.between(0, 9);  // 0-4: one key head a query head, 5-7: GQA, 8-9: MQA
  const int64_t pairs = std::max<int64_t>(1, d.seqlen_q * d.seqlen_k);
  const int64_t most = std::clamp<int64_t>(6'000'000 / pairs / d.batch, 1, 8);
  if (kind < 5) {
    d.heads_kv = random.between(1, std::min<int64_t>(most, 3));
    d.heads_q = d.heads_kv;
  } else if (kind < 8) {
    d.heads_kv = 2;
    d.heads_q = 2 * random.between(2, std::max<int64_t>(2, most / 2));
  } else {
    d.heads_kv = 1;
    d.heads_q = random.between(2, std::max<int64_t>(2, most));
  }
}

void choose_mask(ProblemDesc& d, Random& random) {
  d.causal = random.chance(70);
  if (d.causal && random.chance(80)) return;
  const int64_t reach = std::max<int64_t>(d.seqlen_k, 1);
  d.window.window_left = random.chance(75) ? random.between(0, reach) : -1;
  d.window.window_right = random.chance(60) ? random.between(0, reach) : -1;
  if (d.window.is_full()) d.window.window_left = reach / 4;
}

// A window that ends before the query's position or begins after it, in place of some others.
void choose_negative_bound(ProblemDesc& d, Random& random) {
  if (d.window.is_full() && !d.causal) return;
  if (!random.chance(20)) return;
  const int64_t reach = std::max<int64_t>(d.seqlen_k, 2), bound = random.between(1, reach / 2);
  const int64_t other = random.chance(40) ? -1 : bound + random.between(0, reach);
  const bool right = random.chance(50);
  d.window = right ? MaskSpec{other, -bound, 2} : MaskSpec{-bound, other, 1};
  d.causal = right && random.chance(50);  // else it would hide everything
}

// Some sequences shorter than the longest, some empty, some room behind the last one.
void choose_packing(Case& c, Random& random) {
  ProblemDesc& d = c.desc;
  d.layout_q = d.layout_kv = Layout::kPacked;
  const bool is_long = std::max(d.seqlen_q, d.seqlen_k) > 1024;
  d.batch = random.between(1, is_long ? 3 : 6);
  const int64_t longest = random.between(0, d.batch - 1);
  for (int64_t b = 0; b < d.batch; ++b) {
    const bool whole = b == longest;
    const bool empty = !whole && random.chance(10);
    c.lengths_q.push_back(whole ? d.seqlen_q : empty ? 0 : random.between(0, d.seqlen_q / 2));
    c.lengths_k.push_back(whole ? d.seqlen_k : empty ? 0 : random.between(0, d.seqlen_k / 2));
    d.total_q += c.lengths_q.back();
    d.total_k += c.lengths_k.back();
  }
  if (random.chance(30)) d.total_q += random.between(1, 150);
  if (random.chance(30)) d.total_k += random.between(1, 150);
}

void lay_on_pages(ProblemDesc& d, int64_t page_size, Random& random) {
  d.layout_kv = Layout::kPaged;
  d.page_size = page_size;
  d.pages_per_seq = std::max<int64_t>(1, ceil_div(d.seqlen_k, page_size));
  d.seqlen_k = d.pages_per_seq * page_size;
  d.num_pages = d.batch * d.pages_per_seq + random.between(0, 3);
}

void choose_pages(Case& c, Random& random) {
  static constexpr auto kSizes = std::to_array<int64_t>({1, 4, 16, 57, 64, 128, 256});
  lay_on_pages(c.desc, kSizes[random.between(0, 6)], random);
  c.desc.has_seqused_k = true;
}

// `lengths`: of packed sequences, else all are `seqlen` long.
std::vector<int32_t> choose_seqused(int64_t batch, int64_t seqlen,
                                    const std::vector<int32_t>& lengths, Random& random) {
  std::vector<int32_t> used;
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t most = lengths.empty() ? seqlen : lengths[b];
    used.push_back(static_cast<int32_t>(random.chance(20) ? most : random.between(0, most)));
  }
  return used;
}

// Head-major memory, or rows of one fused tensor: what inference engines pass.
void choose_strides(ProblemDesc& d, Random& random) {
  const bool head_major = random.chance(50) && d.layout_q == Layout::kDense;
  const auto strides = [&](int64_t seqlen, int64_t heads, int64_t dim) {
    if (head_major) return Strides{heads * seqlen * dim, dim, seqlen * dim};
    const int64_t row = heads * dim + 8 * random.between(0, 4);
    return Strides{seqlen * row, row, dim};
  };
  const bool paged = d.layout_kv == Layout::kPaged;
  const int64_t rows_k = paged ? d.page_size : d.seqlen_k;
  d.q = strides(d.seqlen_q, d.heads_q, d.head_dim);
  d.k = strides(rows_k, d.heads_kv, d.head_dim);
  d.v = strides(rows_k, d.heads_kv, d.head_dim_v);
  d.out = strides(d.seqlen_q, d.heads_q, d.head_dim_v);
  if (d.layout_q == Layout::kPacked) d.q.batch = d.out.batch = 0;
  if (d.layout_kv == Layout::kPacked) d.k.batch = d.v.batch = 0;
}

void choose_seqused_q(Case& c, int percent, Random& random) {
  if (!random.chance(percent)) return;
  c.desc.has_seqused_q = true;
  c.seqused_q = choose_seqused(c.desc.batch, c.desc.seqlen_q, c.lengths_q, random);
}

enum class Kind { kEverywhere, kF32, kPaged };  // kF32 sometimes paged too

// Head dimensions, dtype, mask, softcap and the keys' length go through all their combinations, so
// that every kernel has its share; the rest is left to chance.
Case make_case(int64_t index, Kind kind, uint64_t seed) {
  Random random(seed ^ (static_cast<uint64_t>(index) * 0x2545f4914f6cdd1du));
  const int64_t round = index / kHeadDimFamilies;
  Case c;
  ProblemDesc& d = c.desc;
  d.dtype = kind == Kind::kF32 ? DType::kF32 : round % 2 == 0 ? DType::kBF16 : DType::kF16;
  std::tie(d.head_dim, d.head_dim_v) = choose_head_dims(index % kHeadDimFamilies, random);
  std::tie(d.seqlen_q, d.seqlen_k) =
      round / 8 % 2 == 1 ? choose_long_keys(index, random) : choose_lengths(index, random);
  d.batch = std::max(d.seqlen_q, d.seqlen_k) > 1024 ? random.between(1, 2) : random.between(1, 3);
  choose_heads(d, random);
  if (round / 2 % 2 == 0) choose_mask(d, random);
  if (round / 4 % 2 == 0) d.softcap = static_cast<float>(random.between(2, 40));
  if (kind == Kind::kPaged || (kind == Kind::kF32 && random.chance(15))) {
    choose_pages(c, random);
  } else if (random.chance(25)) {
    choose_packing(c, random);
  }
  if (random.chance(10)) d.softmax_scale = 0.02f * static_cast<float>(random.between(1, 20));
  d.has_sink = random.chance(15);
  d.has_seqused_k |= random.chance(15);
  if (d.has_seqused_k) c.seqused_k = choose_seqused(d.batch, d.seqlen_k, c.lengths_k, random);
  if (random.chance(15)) choose_strides(d, random);
  c.wants_lse = random.chance(80);
  c.amplitude = random.chance(70) ? 1.0f : random.chance(50) ? 4.0f : 0.25f;
  c.seed = random.bits();
  if (kind != Kind::kEverywhere) choose_seqused_q(c, 25, random);
  // Drawn apart, so that what came before them stays as it was.
  Random later(c.seed);
  choose_negative_bound(d, later);
  if (later.chance(40)) d.sink_dtype = later.chance(50) ? DType::kBF16 : DType::kF16;
  if (later.chance(10)) d.sm_margin = later.between(1, 150);
  return c;
}

// What inference engines ask for: few queries over long caches, mostly on pages. Page sizes go
// through all of theirs; every other case has no option that only some devices have.
Case make_serving_case(int64_t index, uint64_t seed) {
  static constexpr auto kPageSizes = std::to_array<int64_t>({1, 2, 4, 8, 16, 24, 48, 64, 128, 272});
  static constexpr auto kQueries = std::to_array<int64_t>({1, 1, 1, 2, 4, 7, 16});
  static constexpr auto kGroups = std::to_array<int64_t>({1, 2, 3, 4, 5, 7, 8, 16});
  Random random(seed ^ (static_cast<uint64_t>(index) * 0x9e3779b97f4a7c15u) ^ 0x5e);
  Case c;
  ProblemDesc& d = c.desc;
  d.dtype = index % 3 == 0 ? DType::kF16 : DType::kBF16;
  std::tie(d.head_dim, d.head_dim_v) = choose_head_dims(index % kHeadDimFamilies, random);
  d.batch = random.between(1, 4);
  d.heads_kv = random.between(1, 3);
  d.heads_q = d.heads_kv * kGroups[static_cast<size_t>(random.between(0, 7))];
  d.seqlen_q = kQueries[static_cast<size_t>(random.between(0, 6))];
  d.seqlen_k = random.between(1, 3000);
  d.has_seqused_k = true;
  if (random.chance(80)) {
    choose_pages(c, random);
    lay_on_pages(d, kPageSizes[static_cast<size_t>(index) % kPageSizes.size()], random);
  }
  c.seqused_k = choose_seqused(d.batch, d.seqlen_k, c.lengths_k, random);
  if (random.chance(50)) choose_mask(d, random);
  if (random.chance(15)) d.softcap = static_cast<float>(random.between(2, 40));
  d.has_sink = random.chance(15);
  if (random.chance(30)) choose_strides(d, random);
  c.wants_lse = random.chance(80);
  c.amplitude = random.chance(70) ? 1.0f : 4.0f;
  c.seed = random.bits();
  if (index % 2 == 0) return c;
  if (random.chance(20)) d.dtype = DType::kF32;
  if (random.chance(30)) d.out_dtype = DType::kF32;
  if (random.chance(30)) d.num_splits = random.chance(20) ? 1000 : random.between(1, 5);
  if (d.num_splits == 0 && random.chance(40)) d.split_keys = kSplitStep * random.between(1, 5);
  if (d.layout_kv != Layout::kPaged) return c;
  if (random.chance(25)) {  // shared keys before those, on pages of their own
    d.prefix_len = random.between(1, 1000);
    d.seqlen_k += d.prefix_len;
    d.num_pages += ceil_div(d.prefix_len, d.page_size);
    for (int32_t& used : c.seqused_k) {
      if (random.chance(80)) used += static_cast<int32_t>(d.prefix_len);
    }
  }
  if (random.chance(30)) d.page_table_heads = d.heads_kv;
  if (random.chance(30)) {  // entries of all heads side by side, room behind the last
    const int64_t heads = std::max<int64_t>(1, d.page_table_heads);
    d.page_table = {(d.pages_per_seq + 2) * heads, heads, 1};
  }
  return c;
}

// Few queries over keys that are not cut, which take tiles of their own on Hopper.
Case make_uncut_case(int64_t index, uint64_t seed) {
  Random random(seed ^ (static_cast<uint64_t>(index) * 0x9e3779b97f4a7c15u) ^ 0x7d);
  Case c;
  ProblemDesc& d = c.desc;
  d.dtype = index % 2 == 0 ? DType::kBF16 : DType::kF16;
  std::tie(d.head_dim, d.head_dim_v) = choose_head_dims(index / 2 % kHeadDimFamilies, random);
  if (random.chance(50)) d.softcap = static_cast<float>(random.between(2, 80));
  d.batch = random.between(1, 4);
  d.heads_kv = random.between(1, 3);
  d.heads_q = d.heads_kv * random.between(1, 8);
  d.seqlen_q = random.between(1, 4);
  d.seqlen_k = random.between(1, 1500);
  d.num_splits = 1;
  d.has_seqused_k = random.chance(50);
  if (d.has_seqused_k) c.seqused_k = choose_seqused(d.batch, d.seqlen_k, c.lengths_k, random);
  if (random.chance(50)) choose_mask(d, random);
  d.has_sink = random.chance(20);
  if (random.chance(30)) choose_strides(d, random);
  c.wants_lse = random.chance(80);
  c.amplitude = random.chance(70) ? 1.0f : 4.0f;
  c.seed = random.bits();
  return c;
}

// Prompts in the tiles that Hopper takes for many of them: num_splits 1 asks for those, however few
// there are. Queries nearly fill the tiles; keys are few, or windows are narrow, or keys are many.
Case make_prompt(int64_t index, uint64_t seed) {
  static constexpr auto kDims = std::to_array<int64_t>({64, 96, 128, 128});
  Random random(seed ^ (static_cast<uint64_t>(index) * 0x9e3779b97f4a7c15u) ^ 0xd3);
  Case c;
  ProblemDesc& d = c.desc;
  const auto family = static_cast<size_t>(index % 4);
  const bool has_many_keys = family == 3;
  d.dtype = index / 4 % 2 == 0 ? DType::kBF16 : DType::kF16;
  d.head_dim = kDims[family] - 8 * random.between(0, 3);
  d.head_dim_v = random.chance(70) ? d.head_dim : 8 * random.between(1, d.head_dim / 8);
  d.seqlen_q = (family == 0 ? 256 : 192) * random.between(1, 2) - random.between(0, 40);
  d.seqlen_k = has_many_keys ? random.between(8192, 9000)
               : family == 1 ? random.between(3072, 4000)
                             : random.between(1, 1500);
  d.heads_kv = has_many_keys ? 1 : random.between(1, 2);
  d.heads_q = d.heads_kv * random.between(1, 2);
  d.batch = has_many_keys ? 1 : random.between(1, 3);
  d.num_splits = 1;
  d.causal = has_many_keys || random.chance(50);
  if (family == 1 || family == 2) d.window = {random.between(0, 400), random.between(0, 100)};
  if (!has_many_keys && random.chance(30)) {
    choose_pages(c, random);
  } else if (!has_many_keys && random.chance(30)) {
    choose_packing(c, random);
  }
  d.has_seqused_k |= random.chance(15);
  if (d.has_seqused_k) c.seqused_k = choose_seqused(d.batch, d.seqlen_k, c.lengths_k, random);
  choose_seqused_q(c, 15, random);
  d.has_sink = random.chance(20);
  c.wants_lse = random.chance(80);
  c.amplitude = random.chance(70) ? 1.0f : 4.0f;
  c.seed = random.bits();
  if (random.chance(25)) d.out_dtype = DType::kF32;
  return c;
}

// Cases as the others, of every layout, with k and v stored as bytes.
Case make_quantised_case(int64_t index, uint64_t seed) {
  Case c = index % 4 == 0   ? make_case(index / 4, Kind::kEverywhere, seed + 1)
           : index % 4 == 1 ? make_case(index / 4, Kind::kPaged, seed + 1)
                            : make_serving_case(index, seed + 1);
  Random random(c.seed + 3);
  ProblemDesc& d = c.desc;
  if (index % 5 == 2) d.dtype = DType::kF32;
  d.kv_dtype = DType::kE4M3;
  if (random.chance(15)) return c;
  const bool of_pages = d.layout_kv == Layout::kPaged && random.chance(40);
  const int64_t block = of_pages ? d.page_size : random.chance(50) ? kDescaleBlock : 0;
  quantise(d, block, random.chance(25) ? Descales::kOneNumber : Descales::kContiguous);
  return c;
}

// Many queries over bytes, which have a kernel of their own on Hopper.
Case make_prompt_over_bytes(int64_t index, uint64_t seed) {
  static constexpr auto kPageSizes = std::to_array<int64_t>({16, 24, 64, 128, 272});
  Random random(seed ^ (static_cast<uint64_t>(index) * 0x9e3779b97f4a7c15u) ^ 0xb7);
  Case c;
  ProblemDesc& d = c.desc;
  d.dtype = index % 2 == 0 ? DType::kBF16 : DType::kF16;
  const int64_t steps = random.chance(50) ? 1 : random.between(1, 8);  // of 8 columns below 64, 128
  d.head_dim = (index % 4 < 2 ? 72 : 136) - 8 * steps;
  d.head_dim_v = random.chance(70) ? d.head_dim : 8 * random.between(1, d.head_dim / 8);
  d.batch = random.between(1, 3);
  d.heads_kv = random.between(1, 2);
  d.heads_q = d.heads_kv * random.between(1, 4);
  d.seqlen_q = random.between(65, 600);
  d.seqlen_k = random.between(1, 1500);
  if (random.chance(70)) choose_mask(d, random);
  if (random.chance(20)) d.softcap = static_cast<float>(random.between(2, 40));
  if (random.chance(40)) {
    lay_on_pages(d, kPageSizes[static_cast<size_t>(random.between(0, 4))], random);
    d.has_seqused_k = true;
  } else if (random.chance(30)) {
    choose_packing(c, random);
  }
  d.has_seqused_k |= random.chance(15);
  if (d.has_seqused_k) c.seqused_k = choose_seqused(d.batch, d.seqlen_k, c.lengths_k, random);
  d.has_sink = random.chance(20);
  c.wants_lse = random.chance(80);
  c.amplitude = random.chance(70) ? 1.0f : 4.0f;
  c.seed = random.bits();
  d.kv_dtype = DType::kE4M3;
  if (random.chance(80)) {
    quantise(d, 0, random.chance(25) ? Descales::kOneNumber : Descales::kContiguous);
  }
  return c;
}

// What an engine sends at a step: sequences that decode and prompts, in any order, which a GPU
// gives to two launches. Of 16 bits or bytes, on pages or packed.
Case make_step(int64_t index, uint64_t seed) {
  static constexpr auto kPageSizes = std::to_array<int64_t>({1, 16, 24, 64, 128});
  Random random(seed ^ (static_cast<uint64_t>(index) * 0x9e3779b97f4a7c15u) ^ 0xc9);
  Case c;
  ProblemDesc& d = c.desc;
  d.dtype = random.chance(50) ? DType::kBF16 : DType::kF16;
  d.head_dim = d.head_dim_v = 8 * random.between(5, index % 4 == 0 ? 32 : 16);
  if (random.chance(20)) d.softcap = static_cast<float>(random.between(2, 40));
  d.batch = random.between(16, 32);
  d.heads_kv = random.between(2, 4);
  d.heads_q = d.heads_kv * random.between(1, 8);
  d.layout_q = d.layout_kv = Layout::kPacked;
  const bool has_drafts = random.chance(30);  // of a few queries, in place of prompts
  for (int64_t b = 0; b < d.batch; ++b) {
    const bool is_long = random.chance(10), has_cache = random.chance(80);
    const int64_t queries =
        is_long ? random.between(1, has_drafts ? 20 : 200) : random.between(0, 3);
    const int64_t keys = random.between(0, has_cache ? 2000 : 200);
    c.lengths_q.push_back(static_cast<int32_t>(queries));
    c.lengths_k.push_back(static_cast<int32_t>(keys));
    d.seqlen_q = std::max(d.seqlen_q, queries);
    d.total_q += queries;
    d.total_k += keys;
  }
  d.seqlen_q = std::max<int64_t>(d.seqlen_q, has_drafts ? 3 : 65);
  d.seqlen_k = 2000;
  if (random.chance(70)) {
    lay_on_pages(d, kPageSizes[static_cast<size_t>(random.between(0, 4))], random);
    d.has_seqused_k = true;
    c.seqused_k = std::exchange(c.lengths_k, {});
    d.total_k = 0;
  }
  choose_seqused_q(c, 15, random);
  if (random.chance(80)) choose_mask(d, random);
  d.has_sink = random.chance(20);
  c.wants_lse = random.chance(80);
  c.seed = random.bits();
  if (random.chance(40)) {
    quantise(d, random.chance(50) ? 0 : kDescaleBlock, Descales::kContiguous);
  }
  return c;
}

// Slices of wider buffers for the tensors that only the backward has.
void choose_gradient_strides(ProblemDesc& d, Random& random) {
  const auto strides = [&](bool packed, int64_t seqlen, int64_t heads, int64_t dim) {
    const int64_t row = heads * dim + 8 * random.between(0, 4);
    return Strides{packed ? 0 : seqlen * row, row, dim};
  };
  const bool packed_q = d.layout_q == Layout::kPacked, packed_k = d.layout_kv == Layout::kPacked;
  d.dout = strides(packed_q, d.seqlen_q, d.heads_q, d.head_dim_v);
  d.dq = strides(packed_q, d.seqlen_q, d.heads_q, d.head_dim);
  d.dk = strides(packed_k, d.seqlen_k, d.heads_kv, d.head_dim);
  d.dv = strides(packed_k, d.seqlen_k, d.heads_kv, d.head_dim_v);
}

Case make_backward_case(int64_t index, Kind kind, uint64_t seed) {
  Case c = make_case(index, kind, seed);
  Random random(c.seed);
  ProblemDesc& d = c.desc;
  // The oracle's gradients take three times what its forward takes.
  while (d.batch * d.heads_q * d.seqlen_q * d.seqlen_k > 6'000'000 && d.heads_q > d.heads_kv &&
         d.heads_q % 2 == 0 && d.heads_q / 2 % d.heads_kv == 0) {
    d.heads_q /= 2;
  }
  choose_seqused_q(c, 20, random);
  d.deterministic = random.chance(50);
  d.has_dlse = random.chance(25);
  if (random.chance(15)) d.grad_dtype = DType::kF32;
  if (random.chance(10)) d.softmax_scale = -0.02f * static_cast<float>(random.between(0, 10));
  if (random.chance(30)) choose_gradient_strides(d, random);
  return c;
}

// What the forward's cases gained later, drawn apart so that the backward's stay as they were.
void choose_later_options(Case& c) {
  Random random(c.seed + 1);
  choose_seqused_q(c, 12, random);
  if (random.chance(8)) c.desc.softmax_scale = -0.02f * static_cast<float>(random.between(0, 10));
  if (c.desc.softcap == 0 && random.chance(15)) c.desc.out_dtype = DType::kF32;
}

// Any prefix becomes a fair sample.
void mix(std::vector<Case>& cases, uint64_t seed) {
  Random random(seed);
  for (size_t i = cases.size(); i > 1; --i) {
    std::swap(cases[i - 1], cases[static_cast<size_t>(random.between(0, i - 1))]);
  }
}

}  // namespace

std::optional<Suite> parse_suite(std::string_view text) {
  if (text == "quick") return Suite::kQuick;
  if (text == "full") return Suite::kFull;
  return std::nullopt;
}

void quantise(ProblemDesc& d, int64_t descale_block, Descales descales) {
  d.kv_dtype = DType::kE4M3;
  d.has_descales = true;
  d.descale_block = descale_block;
  if (descales == Descales::kOneNumber) return;
  const int64_t blocks = descale_block == 0 ? 1 : ceil_div(d.seqlen_k, descale_block);
  d.k_descale = d.v_descale = {blocks * d.heads_kv, d.heads_kv, 1};
}

std::vector<Case> make_suite(Suite suite, uint64_t seed) {
  const int64_t base = kHeadDimFamilies * (suite == Suite::kFull ? 304 : 10);
  const int64_t extra = suite == Suite::kFull ? 132 : 12;
  std::vector<Case> cases;
  for (int64_t i = 0; i < base; ++i) {
    cases.push_back(make_case(i, Kind::kEverywhere, seed));
    choose_later_options(cases.back());
  }
  const int64_t serving = suite == Suite::kFull ? 300 : 20;
  for (int64_t i = 0; i < serving; ++i) cases.push_back(make_serving_case(i, seed));
  const int64_t uncut = suite == Suite::kFull ? 720 : 4;
  for (int64_t i = 0; i < uncut; ++i) cases.push_back(make_uncut_case(i, seed));
  const int64_t quantised = suite == Suite::kFull ? 200 : 16;
  for (int64_t i = 0; i < quantised; ++i) cases.push_back(make_quantised_case(i, seed));
  const int64_t of_bytes = suite == Suite::kFull ? 60 : 4;
  for (int64_t i = 0; i < of_bytes; ++i) cases.push_back(make_prompt_over_bytes(i, seed));
  const int64_t prompts = suite == Suite::kFull ? 400 : 8;
  for (int64_t i = 0; i < prompts; ++i) cases.push_back(make_prompt(i, seed));
  const int64_t steps = suite == Suite::kFull ? 60 : 0;  // too many keys for a quick one
  for (int64_t i = 0; i < steps; ++i) cases.push_back(make_step(i, seed));
  for (int64_t i = 0; i < extra; ++i) {
    cases.push_back(make_case(base + i, Kind::kF32, seed));
    cases.push_back(make_case(base + extra + i, Kind::kPaged, seed));
  }
  mix(cases, seed);
  return cases;
}

std::vector<Case> make_backward_suite(Suite suite, uint64_t seed) {
  const int64_t base = kHeadDimFamilies * (suite == Suite::kFull ? 80 : 6);
  const int64_t f32 = kHeadDimFamilies * (suite == Suite::kFull ? 20 : 2);
  std::vector<Case> cases;
  for (int64_t i = 0; i < base; ++i) {
    cases.push_back(make_backward_case(i, Kind::kEverywhere, seed));
  }
  for (int64_t i = 0; i < f32; ++i) {
    Case c = make_backward_case(base + i, Kind::kEverywhere, seed);
    c.desc.dtype = DType::kF32;
    cases.push_back(c);
  }
  mix(cases, seed);
  return cases;
}

}  // namespace fa4::internal
