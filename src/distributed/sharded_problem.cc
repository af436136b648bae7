#include "distributed/sharded_problem.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "distributed/all_to_all.h"

namespace fa4::internal {
namespace {

// The first slice comes and the last one goes while nothing is computed: more slices leave less of
// that, but each ends with SMs that wait for the last tiles. On two H100 two and four were within
// 1 % of each other and four take half the workspace; eight were slower, and by all-gather, which
// moves less, any number was as fast as one or slower (docs/context_parallel.md).
constexpr int kMostSlices = 4;
// Rows of query heads that a slice has at least for each SM: two tiles of a GPU's kernels.
constexpr int64_t kRowsOfSm = 256;
// A plan lists its copies, some for each sequence of a dense batch and each rank: with 10^6
// sequences over two ranks it took 38 seconds and 8 GB.
constexpr int64_t kMostSequencesTimesRanks = 65536;

template <class... Values>
[[noreturn]] void refuse(fmt::format_string<Values...> format, Values&&... values) {
  throw Error(ErrorCode::kNotSupported, fmt::format(format, std::forward<Values>(values)...));
}

void check_strides(const AttentionProblem& p, const char* name, const Strides& given, int64_t heads,
                   int64_t dim) {
  const bool packed = p.layout_q == Layout::kPacked;
  const Strides contiguous{packed ? 0 : p.seqlen_q * heads * dim, heads * dim, dim};
  if (given == contiguous) return;
  refuse(
      "{}_strides {} {} {}; accepted in context parallelism: those of a contiguous tensor, "
      "{} {} {}, or all 0",
      name, given.batch, given.seqlen, given.head, contiguous.batch, contiguous.seqlen,
      contiguous.head);
}

void check_rows(const AttentionProblem& p) {
  const bool dense = p.layout_q == Layout::kDense && p.layout_kv == Layout::kDense;
  const bool packed = p.layout_q == Layout::kPacked && p.layout_kv == Layout::kPacked;
  if (!dense && !packed) {
    refuse(
        "layout_q {} and layout_kv {}; accepted in context parallelism: both 0 (dense), or both "
        "1 (packed)",
        static_cast<int>(p.layout_q), static_cast<int>(p.layout_kv));
  }
  constexpr const char* kOfOneSequence = "equal ones, queries and keys being of the same tokens";
  if (dense && p.seqlen_q != p.seqlen_k) {
    refuse("seqlen_q {} and seqlen_k {}; accepted in context parallelism: {}", p.seqlen_q,
           p.seqlen_k, kOfOneSequence);
  }
  if (packed && p.total_q != p.total_k) {
    refuse("total_q {} and total_k {}; accepted in context parallelism: {}", p.total_q, p.total_k,
           kOfOneSequence);
  }
}

// What is not there yet.
void check_whole(const AttentionProblem& p) {
  check_rows(p);
  if (p.has_seqused_q || p.has_seqused_k) {
    refuse("has_seqused_{} 1; accepted in context parallelism: 0", p.has_seqused_q ? "q" : "k");
  }
  if (p.is_quantised()) {
    refuse("kv_dtype e4m3; accepted in context parallelism: {}, dtype", name_of(p.dtype));
  }
  check_strides(p, "q", p.q, p.heads_q, p.head_dim);
  check_strides(p, "k", p.k, p.heads_kv, p.head_dim);
  check_strides(p, "v", p.v, p.heads_kv, p.head_dim_v);
  check_strides(p, "out", p.out, p.heads_q, p.head_dim_v);
  check_strides(p, "dout", p.dout, p.heads_q, p.head_dim_v);
  check_strides(p, "dq", p.dq, p.heads_q, p.head_dim);
  check_strides(p, "dk", p.dk, p.heads_kv, p.head_dim);
  check_strides(p, "dv", p.dv, p.heads_kv, p.head_dim_v);
}

void check_batch(const AttentionProblem& p, int ranks) {
  const int64_t most = kMostSequencesTimesRanks / ranks;
  if (ranks == 1 || p.layout_q == Layout::kPacked || p.batch <= most) return;
  refuse(
      "batch {}; accepted in context parallelism: 0 to {} over {} ranks, and more as packed rows",
      p.batch, most, ranks);
}

std::string bound(bool is_bounded, int64_t keys) {
  return is_bounded ? fmt::format("{}", keys) : "any number of";
}

// The same tokens by ranges that ascend and do not touch.
std::vector<KeyRange> joined(std::vector<KeyRange> ranges) {
  std::ranges::sort(ranges, {}, &KeyRange::begin);
  std::vector<KeyRange> all;
  for (const KeyRange& range : ranges) {
    if (range.begin >= range.end) continue;
    if (!all.empty() && range.begin <= all.back().end) {
      all.back().end = std::max(all.back().end, range.end);
    } else {
      all.push_back(range);
    }
  }
  return all;
}

// Whether an all-gather moves less than half of what an all-to-all does, in the direction in which
// it moves more: a backward, where terms of dk and dv are f32 and the all-to-all moves twice what
// its forward does. In numbers of the inputs' type, d + dv of them a row.
bool gather_moves_little(const ShardedProblem& p) {
  ShardedProblem gathers = p;
  gathers.method = ContextMethod::kAllGather;
  int64_t most = 0;  // rows of others' keys that a rank takes
  for (int rank = 0; rank < p.ranks(); ++rank) {
    int64_t rows = 0;
    for (const KeyRange& range : gathers.taken_tokens(rank)) rows += range.end - range.begin;
    for (const Chunk& own : gathers.taken_chunks(rank, rank)) rows -= own.length;
    most = std::max(most, rows);
  }
  const int64_t all_to_all = 2 * (p.ranks() - 1) * p.partition.local_seqlen() *
                             (p.whole.heads_q + p.whole.heads_kv) / p.ranks();
  return 2 * 3 * most * p.whole.heads_kv < all_to_all;
}

void choose_method(ShardedProblem& p, ContextMethod asked) {
  const AttentionProblem& whole = p.whole;
  const int ranks = p.ranks();
  const std::string heads =
      fmt::format("{} heads of q and {} of k over {} ranks", whole.heads_q, whole.heads_kv, ranks);
  if (asked == ContextMethod::kAuto) {
    const bool fits = whole.heads_q % ranks == 0 && whole.heads_kv % ranks == 0;
    const bool deals_out = p.is_packed() ? can_deal_out_heads(whole, ranks) : fits;
    const bool gathers_little = deals_out && !p.is_packed() && gather_moves_little(p);
    p.method = deals_out && !gathers_little ? ContextMethod::kAllToAll : ContextMethod::kAllGather;
    p.why = gathers_little ? heads + "; less than half as much moves as by all_to_all" : heads;
  } else if (asked == ContextMethod::kAllToAll || asked == ContextMethod::kAllGather ||
             asked == ContextMethod::kRing) {
    p.method = asked;
    p.why = "asked for";
  } else {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("method {}; accepted: 0 (the plan decides), 1 (all_to_all), 2 "
                            "(all_gather), 3 (ring)",
                            static_cast<int32_t>(asked)));
  }
  if (p.method == ContextMethod::kAllGather && p.is_packed() && !can_cut_packed(whole.mask)) {
    refuse(
        "method all_gather of packed sequences in a window of {} keys to the left and {} to the "
        "right; accepted: causal masks and windows that end at the query, no mask, or method 1 "
        "(all_to_all)",
        bound(whole.mask.is_bounded_left(), whole.mask.window_left),
        bound(whole.mask.is_bounded_right(), whole.mask.window_right));
  }
  if (p.method == ContextMethod::kRing && p.is_packed()) {
    refuse("method ring of packed sequences; accepted: 0, 1 (all_to_all) or 2 (all_gather)");
  }
  if (p.method == ContextMethod::kAllToAll && !can_deal_out_heads(whole, ranks)) {
    refuse(
        "method all_to_all of {}; accepted: heads of q of a multiple of {}, heads of k of a "
        "multiple or a divisor of it (all_gather takes any)",
        heads, ranks);
  }
}

}  // namespace

std::string_view name_of(ContextMethod method) {
  switch (method) {
    case ContextMethod::kAuto: return "auto";
    case ContextMethod::kAllToAll: return "all_to_all";
    case ContextMethod::kAllGather: return "all_gather";
    case ContextMethod::kRing: return "ring";
  }
  return "?";
}

int64_t ShardedProblem::rank_heads_q() const {
  return method == ContextMethod::kAllToAll ? whole.heads_q / ranks() : whole.heads_q;
}

int64_t ShardedProblem::rank_heads_kv() const {
  return method == ContextMethod::kAllToAll ? std::max<int64_t>(1, whole.heads_kv / ranks())
                                            : whole.heads_kv;
}

int64_t ShardedProblem::slice_heads_q() const { return rank_heads_q() / slices; }
int64_t ShardedProblem::slice_heads_kv() const { return rank_heads_kv() / slices; }

int ShardedProblem::choose_slices(int asked, int num_sms) const {
  if (method == ContextMethod::kRing && asked != 0 && asked != 1) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("slices {}; accepted by method ring: 0 or 1", asked));
  }
  const int64_t heads = rank_heads_kv();
  if (asked < 0 || (asked > 0 && heads % asked != 0)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("slices {}; accepted: 0 (the plan decides), or a divisor of {}, the "
                            "heads of k that a rank computes",
                            asked, heads));
  }
  if (ranks() == 1) return 1;  // nothing is exchanged
  if (asked != 0) return asked;
  if (num_sms == 0 || method != ContextMethod::kAllToAll) return 1;  // on a host nothing overlaps
  const int64_t rows = outer() * partition.seqlen() * whole.heads_q / ranks();
  int count = kMostSlices;
  while (count > 1 && (heads % count != 0 || rows < count * kRowsOfSm * num_sms)) --count;
  return count;
}

AttentionProblem resized(const AttentionProblem& problem, const AttentionSizes& sizes) {
  ProblemDesc desc = problem;
  desc.seqlen_q = sizes.seqlen_q;
  desc.seqlen_k = sizes.seqlen_k;
  desc.heads_q = sizes.heads_q;
  desc.heads_kv = sizes.heads_kv;
  desc.q = desc.k = desc.v = desc.out = desc.dout = desc.dq = desc.dk = desc.dv = {};
  return AttentionProblem::make(desc);
}

std::vector<LocalCall> ShardedProblem::local_calls(int of_rank) const {
  const std::vector<Chunk> chunks = partition.chunks(of_rank);
  return is_packed() ? packed_local_calls_of(whole.mask, chunks, partition.seqlen())
                     : local_calls_of(whole.mask, chunks, partition.seqlen());
}

std::vector<KeyRange> ShardedProblem::taken_tokens(int of_rank) const {
  if (method != ContextMethod::kAllGather) return {{0, partition.seqlen()}};
  std::vector<KeyRange> seen;
  for (const LocalCall& call : local_calls(of_rank)) {
    seen.push_back({call.first_key, call.first_key + call.keys});
  }
  return joined(std::move(seen));
}

HeldTokens ShardedProblem::held_tokens() const {
  std::vector<KeyRange> held = taken_tokens(rank);
  for (const Chunk& chunk : partition.chunks(rank)) {
    held.push_back({chunk.start, chunk.start + chunk.length});
  }
  return HeldTokens(joined(std::move(held)));
}

int64_t HeldTokens::rows() const {
  int64_t rows = 0;
  for (const KeyRange& range : ranges_) rows += range.end - range.begin;
  return rows;
}

int64_t HeldTokens::row_of(int64_t token) const {
  int64_t row = 0;
  for (const KeyRange& range : ranges_) {
    if (token < range.end) return row + std::max<int64_t>(token - range.begin, 0);
    row += range.end - range.begin;
  }
  return row;
}

std::vector<Chunk> ShardedProblem::taken_chunks(int taker, int holder) const {
  std::vector<Chunk> taken;
  const std::vector<KeyRange> ranges = taken_tokens(taker);
  for (const Chunk& chunk : partition.chunks(holder)) {
    for (const KeyRange& range : ranges) {
      const int64_t begin = std::max(chunk.start, range.begin);
      const int64_t end = std::min(chunk.start + chunk.length, range.end);
      if (begin >= end) continue;
      taken.push_back(
          {.slot = chunk.slot + begin - chunk.start, .start = begin, .length = end - begin});
    }
  }
  return taken;
}

std::string ShardedProblem::description() const {
  const AttentionProblem& p = whole;
  return fmt::format(
      "{} {} slices {}: {}{} batch {} seqlen {}:{} total {} heads {}:{} head_dim {}:{} window {} "
      "{} bounds "
      "{} scale {} softcap {} sink {} {} out {} gradients {} dlse {} splits {} {}",
      name_of(method), name_of(partition.layout()), slices, name_of(p.dtype),
      is_packed() ? " packed" : "", p.batch, p.seqlen_q, p.seqlen_k, p.total_q, p.heads_q,
      p.heads_kv, p.head_dim, p.head_dim_v, p.mask.window_left, p.mask.window_right,
      p.mask.window_bounds, p.scale, p.softcap, p.has_sink ? 1 : 0, name_of(p.sink_dtype),
      name_of(p.out_dtype), name_of(p.grad_dtype), p.has_dlse ? 1 : 0, p.num_splits, p.split_keys);
}

ShardedProblem ShardedProblem::make(const AttentionProblem& whole, const ContextOptions& options,
                                    int rank, int ranks, int num_sms) {
  check_whole(whole);
  check_batch(whole, ranks);
  const bool packed = whole.layout_q == Layout::kPacked;
  const SequencePartition partition(ranks, packed ? whole.total_q : whole.seqlen_q, options.layout,
                                    packed ? "total_q" : "seqlen");
  const int64_t rows = partition.local_seqlen();
  AttentionSizes local{whole.seqlen_q, whole.seqlen_k, whole.heads_q, whole.heads_kv};
  AttentionProblem cut = whole;
  if (packed) {
    cut.total_q = cut.total_k = rows;
  } else {
    local.seqlen_q = local.seqlen_k = rows;
  }
  ShardedProblem sharded{.whole = whole,
                         .local = resized(cut, local),
                         .partition = partition,
                         .rank = rank,
                         .why = {}};
  choose_method(sharded, options.method);
  sharded.slices = sharded.choose_slices(options.slices, num_sms);
  return sharded;
}

}  // namespace fa4::internal
