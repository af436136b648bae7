#include "distributed/ring_steps.h"

#include <algorithm>

namespace fa4::internal {
namespace {}  // namespace

Ring::Ring(const ShardedProblem& problem, const AttentionProblem& whole)
    : room(Place::kWhole, 0),
      p_(problem),
      whole_(whole),
      chunks_(problem.partition.chunks(problem.rank)),
      begun_(chunks_.size(), false) {
  for (KeyRows& buffer : buffers_) buffer = key_room(whole.dtype);
}

std::vector<LocalCall> Ring::local_calls(int step) const {
  const int holder = (p_.rank - step + ranks()) % ranks();
  return ring_local_calls_of(whole_.mask, chunks_, p_.partition.chunks(holder), step == 0);
}

std::vector<size_t> Ring::chunks_of(const LocalCall& local) const {
  std::vector<size_t> found;
  for (size_t i = 0; i < chunks_.size(); ++i) {
    const int64_t slot = chunks_[i].slot - local.first_query;
    if (slot >= 0 && slot < local.queries) found.push_back(i);
  }
  return found;
}

Rows Ring::queries(Place place, int64_t dim, DType type) const {
  return {{place}, whole_.heads_q * dim, size_of(type)};
}

Rows Ring::query_room(int64_t dim) {
  const int64_t columns = whole_.heads_q * dim;
  return {room.take(batch() * local_seqlen() * columns * kFloatBytes), columns, kFloatBytes};
}

KeyRows Ring::key_room(DType type) {
  const auto rows = [&](int64_t dim) {
    const int64_t columns = whole_.heads_kv * dim, bytes = size_of(type);
    return Rows{room.take(batch() * local_seqlen() * columns * bytes), columns, bytes};
  };
  const Rows k = rows(whole_.head_dim);
  return {k, rows(whole_.head_dim_v)};
}

KeyRows Ring::keys_of(int step) const {
  KeyRows held = buffers_[step % 2];
  if (step == 0) held.k.at = {Place::kK}, held.v.at = {Place::kV};
  return held;
}

bool Ring::begins(const LocalCall& local) {
  const std::vector<size_t> chunks = chunks_of(local);
  const bool begins = !begun_[chunks.front()];
  for (const size_t chunk : chunks) begun_[chunk] = true;
  return begins;
}

CallStep Ring::call(const LocalCall& local, int step, bool is_first) {
  const KeyRows held = keys_of(step);
  const bool has_sink = is_first && whole_.has_sink;
  return {.call = number_of(local, has_sink),
          .q = queries(Place::kQ, whole_.head_dim, whole_.dtype).row(local.first_query),
          .k = held.k.row(local.first_key),
          .v = held.v.row(local.first_key),
          .sink = {has_sink ? Place::kSink : Place::kNone}};
}

void Ring::exchange(const std::vector<Passed>& tensors, const std::string& what) {
  wait(Lane::kExchange);
  wait(Lane::kCompute);
  if (tensors.empty()) return;
  const int behind = (p_.rank + 1) % ranks(), before = (p_.rank + ranks() - 1) % ranks();
  ExchangeStep step{.sends = {}, .receives = {}, .what = p_.description() + ", " + what};
  for (const Passed& tensor : tensors) {
    const int64_t bytes = batch() * local_seqlen() * tensor.given.columns * tensor.given.bytes;
    step.sends.push_back({behind, tensor.given.at, static_cast<size_t>(bytes)});
    step.receives.push_back({before, tensor.taken.at, static_cast<size_t>(bytes)});
  }
  program_.push_back({Lane::kExchange, std::move(step)});
}

std::vector<Passed> Ring::next_keys(int step) const {
  if (step + 1 >= ranks()) return {};
  const KeyRows held = keys_of(step), next = keys_of(step + 1);
  return {{held.k, next.k}, {held.v, next.v}};
}

void Ring::add_rows(const Rows& terms, const Rows& sums, int64_t first, int64_t count) {
  for (int64_t b = 0; b < batch() && count > 0; ++b) {
    const int64_t row = b * local_seqlen() + first;
    compute(add_step(terms.row(row), sums.row(row), count, sums.columns));
  }
}

void Ring::round(const Rows& sums, const Rows& to, DType type) {
  compute(round_step(sums.at, to.at, batch() * local_seqlen(), sums.columns, to.columns, type));
}

CopyStep Ring::copy_lse(Address from, int64_t from_rows, Address to, int64_t to_rows,
                        int64_t count) const {
  return copy_step(from, from_rows * kFloatBytes, to, to_rows * kFloatBytes, count * kFloatBytes,
                   batch() * whole_.heads_q);
}

Program Ring::take_program() {
  wait(Lane::kCompute);
  return std::move(program_);
}

size_t Ring::number_of(const LocalCall& local, bool has_sink) {
  LocalCall shape = local;  // where it lies changes no plan
  shape.first_query = shape.start = shape.first_key = 0;
  const auto known = std::find(shapes_.begin(), shapes_.end(), std::pair(shape, has_sink));
  if (known != shapes_.end()) return static_cast<size_t>(known - shapes_.begin());
  AttentionProblem whole = whole_;
  whole.has_sink = has_sink;
  shapes_.emplace_back(shape, has_sink);
  calls_.push_back(problem_of(whole, local,
                              {.heads_q = whole.heads_q,
                               .heads_kv = whole.heads_kv,
                               .local_seqlen = local_seqlen(),
                               .dq_heads = whole.heads_q,
                               .key_rows = local_seqlen()}));
  return calls_.size() - 1;
}

}  // namespace fa4::internal
