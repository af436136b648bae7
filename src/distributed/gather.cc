#include "distributed/gather.h"

#include <algorithm>

namespace fa4::internal {
namespace {

constexpr int64_t kIndexBytes = sizeof(int32_t);

KeyRange keys_of(const LocalCall& local) { return {local.first_key, local.first_key + local.keys}; }

// What of a range is in none of the others.
std::vector<KeyRange> without(const KeyRange& range, const std::vector<KeyRange>& others) {
  std::vector<KeyRange> left = {range};
  for (const KeyRange& other : others) {
    std::vector<KeyRange> pieces;
    for (const KeyRange& each : left) {
      const KeyRange before{each.begin, std::min(each.end, other.begin)};
      const KeyRange behind{std::max(each.begin, other.end), each.end};
      if (before.begin < before.end) pieces.push_back(before);
      if (behind.begin < behind.end) pieces.push_back(behind);
    }
    left = std::move(pieces);
  }
  return left;
}

}  // namespace

std::vector<LocalCall> local_calls_of(const ShardedProblem& p) {
  std::vector<LocalCall> local_calls = p.local_calls(p.rank);
  std::stable_sort(local_calls.begin(), local_calls.end(),
                   [](const LocalCall& a, const LocalCall& b) { return a.keys > b.keys; });
  return local_calls;
}

Gather::Gather(const ShardedProblem& problem, int slice, int64_t first_byte)
    : room(Place::kWhole, first_byte),
      p_(problem),
      held_(problem.held_tokens()),
      slice_(slice),
      local_calls_(local_calls_of(problem)) {}

Address Gather::own(Place place, int64_t bytes) const {
  return {place, static_cast<size_t>(slice_ * p_.slice_heads_q() * bytes)};
}

Rows Gather::queries(Place place, int64_t dim, DType type) const {
  return {own(place, dim * size_of(type)), p_.whole.heads_q * dim, size_of(type)};
}

RowTensor Gather::keys(Place shard, int64_t dim, DType type) {
  const int64_t taken = p_.slice_heads_kv(), bytes = dim * size_of(type);
  const HeadDeal deal{p_.whole.heads_kv, taken, slice_ * taken, taken, p_.ranks()};
  return {{shard}, room.take(rows() * taken * bytes), deal, bytes};
}

Rows Gather::rows_of(const RowTensor& tensor, int64_t dim) {
  return {tensor.whole, tensor.deal.taken * dim, tensor.head_bytes / dim};
}

int64_t Gather::call_lse_bytes(const LocalCall& local) const {
  return p_.outer() * p_.slice_heads_q() * local.queries * kFloatBytes;
}

Address Gather::call_lse(const LocalCall& local) { return room.take(call_lse_bytes(local)); }

void Gather::cut_sequences(const LocalCall& local, CallStep& call, std::vector<Work>& works) {
  if (!p_.is_packed() || p_.whole.batch == 0) return;
  const int64_t count = p_.whole.batch + 1;
  call.cu_seqlens_q = room.take(count * kIndexBytes);
  call.cu_seqlens_k = room.take(count * kIndexBytes);
  works.push_back(CutStep{.to_q = call.cu_seqlens_q,
                          .to_k = call.cu_seqlens_k,
                          .count = count,
                          .first_query = local.start,
                          .end_query = local.start + local.queries,
                          .first_key = local.first_key,
                          .end_key = local.first_key + local.keys});
}

void Gather::zero_where_packed(Address tensor, int64_t bytes, std::vector<Work>& works) const {
  if (p_.is_packed()) works.push_back(ZeroStep{tensor, static_cast<size_t>(bytes)});
}

void Gather::from_call(const LocalCall& local, Address of_call, Place lse,
                       std::vector<Work>& works) const {
  for (int64_t b = 0; b < p_.outer(); ++b) works.push_back(lse_copy(local, of_call, lse, b));
}

void Gather::to_call(const LocalCall& local, Place lse, Address of_call,
                     std::vector<Work>& works) const {
  for (int64_t b = 0; b < p_.outer(); ++b) {
    const CopyStep back = lse_copy(local, of_call, lse, b);
    works.push_back(
        CopyStep{back.to, back.from, back.to_pitch, back.from_pitch, back.width, back.rows});
  }
}

CopyStep Gather::lse_copy(const LocalCall& local, Address of_call, Place lse, int64_t b) const {
  const int64_t heads = p_.slice_heads_q(), row = local.queries * kFloatBytes;
  const int64_t pitch = p_.partition.local_seqlen() * kFloatBytes;
  const Address of_rank = own(lse, pitch) + static_cast<size_t>(b * p_.whole.heads_q * pitch +
                                                                local.first_query * kFloatBytes);
  return copy_step(of_call + static_cast<size_t>(b * heads * row), row, of_rank, pitch, row, heads);
}

KeyTerms::KeyTerms(Gather& gather, const ShardedProblem& problem, Place shard, int64_t dim)
    : gather_(gather),
      p_(problem),
      tensor_(gather.keys(shard, dim, DType::kF32)),
      sums_(Gather::rows_of(tensor_, dim)),
      written_{keys_of(gather.local_calls().front())},
      terms_{{}, sums_.columns, kFloatBytes} {
  if (gather.local_calls().size() < 2) return;
  const KeyRange first = written_.front(), second = keys_of(gather.local_calls()[1]);
  const KeyRange both{std::max(first.begin, second.begin), std::min(first.end, second.end)};
  // A call of packed sequences leaves rows of none as they are: they would be taken for terms.
  puts_aside_ = !p_.is_packed() && (both.begin > second.begin || both.end < second.end);
  if (puts_aside_) written_.push_back(second);
  twice_ = puts_aside_ ? both : second;
  if (!has_terms()) return;
  const int64_t rows = gather.rows_of_sequence() * (p_.outer() - 1) + twice_.end - twice_.begin;
  terms_.at = gather.room.take(rows * sums_.columns * kFloatBytes);
}

Address KeyTerms::place(const LocalCall& local, bool is_first) const {
  return is_first || puts_aside_ ? sums_.row(gather_.key_row(0, local.first_key)) : terms_.at;
}

void KeyTerms::prepare(std::vector<Work>& works) const {
  if (p_.is_packed()) {  // a call writes no row behind the last sequence
    zero_rows(sums_, 0, gather_.rows(), works);
    zero_rows(terms_, 0, twice_.end - twice_.begin, works);
    return;
  }
  for (int64_t b = 0; b < p_.outer(); ++b) {
    for (const Chunk& own : p_.partition.chunks(p_.rank)) {
      for (const KeyRange& unseen : without({own.start, own.start + own.length}, written_)) {
        const int64_t row = gather_.key_row(b, unseen.begin);
        zero_rows(sums_, row, row + unseen.end - unseen.begin, works);
      }
    }
  }
}

void KeyTerms::put_aside(std::vector<Work>& works) const {
  if (!puts_aside_ || !has_terms()) return;
  const int64_t bytes = sums_.columns * kFloatBytes;
  for (int64_t b = 0; b < p_.outer(); ++b) {
    works.push_back(copy_step(sums_.row(gather_.key_row(b, twice_.begin)), bytes, terms_of(b),
                              bytes, bytes, twice_.end - twice_.begin));
  }
}

void KeyTerms::add(std::vector<Work>& works) const {
  if (!has_terms()) return;
  for (int64_t b = 0; b < p_.outer(); ++b) {
    works.push_back(add_step(terms_of(b), sums_.row(gather_.key_row(b, twice_.begin)),
                             twice_.end - twice_.begin, sums_.columns));
  }
}

}  // namespace fa4::internal
