#include "distributed/exchange_builder.h"

#include "core/rounding.h"

namespace fa4::internal {
namespace {

constexpr int64_t kLseBytes = 4;

Address at(Address base, int64_t bytes) { return base + static_cast<size_t>(bytes); }

Message message(int peer, Address base, int64_t offset, int64_t bytes) {
  return {peer, at(base, offset), static_cast<size_t>(bytes)};
}

}  // namespace

ExchangeBuilder::ExchangeBuilder(const ShardedProblem& problem)
    : problem_(problem),
      batch_(problem.outer()),
      seqlen_(problem.partition.seqlen()),
      local_(problem.partition.local_seqlen()) {
  for (int rank = 0; rank < problem.ranks(); ++rank) {
    chunks_.push_back(problem.partition.chunks(rank));
  }
}

Address ExchangeBuilder::stage(int64_t bytes) {
  const Address address{Place::kStaging, staging_};
  staging_ += static_cast<size_t>(round_up(bytes, 256));
  return address;
}

int64_t ExchangeBuilder::first_head(const RowTensor& t, int rank) const {
  return rank / t.ranks_per_head * t.heads_mine;
}

void ExchangeBuilder::keep(Address whole, Address local, int64_t pitch, int64_t row, Way way) {
  for (int64_t b = 0; b < batch_; ++b) {
    for (const Chunk& c : chunks_[problem_.rank]) {
      const Address of_whole = at(whole, (b * seqlen_ + c.start) * row);
      const Address of_local = at(local, (b * local_ + c.slot) * pitch);
      before_.push_back(way == Way::kToHeads
                            ? copy_step(of_local, pitch, of_whole, row, row, c.length)
                            : copy_step(of_whole, row, of_local, pitch, row, c.length));
    }
  }
}

void ExchangeBuilder::add_of_whole(int peer, Address whole, int64_t row,
                                   std::vector<Message>& messages) const {
  for (int64_t b = 0; b < batch_; ++b) {
    for (const Chunk& c : chunks_[peer]) {
      messages.push_back(message(peer, whole, (b * seqlen_ + c.start) * row, c.length * row));
    }
  }
}

void ExchangeBuilder::add_of_local(int peer, Address local, int64_t row,
                                   std::vector<Message>& messages) const {
  for (int64_t b = 0; b < batch_; ++b) {
    for (const Chunk& c : chunks_[problem_.rank]) {
      messages.push_back(message(peer, local, (b * local_ + c.slot) * row, c.length * row));
    }
  }
}

void ExchangeBuilder::to_heads(const RowTensor& t) {
  const int64_t row = t.heads_mine * t.head_bytes, pitch = t.heads * t.head_bytes;
  for (int peer = 0; peer < problem_.ranks(); ++peer) {
    const Address columns = at(t.shard, first_head(t, peer) * t.head_bytes);
    if (peer == problem_.rank) {
      keep(t.whole, columns, pitch, row, Way::kToHeads);
      continue;
    }
    Address packed = t.shard;  // where every rank takes all heads
    if (row != pitch) {
      packed = stage(batch_ * local_ * row);
      before_.push_back(copy_step(columns, pitch, packed, row, row, batch_ * local_));
    }
    add_of_local(peer, packed, row, exchange_.sends);
    add_of_whole(peer, t.whole, row, exchange_.receives);
  }
}

void ExchangeBuilder::to_tokens(const RowTensor& t) {
  const int64_t row = t.heads_mine * t.head_bytes, pitch = t.heads * t.head_bytes;
  for (int peer = 0; peer < problem_.ranks(); ++peer) {
    const Address columns = at(t.shard, first_head(t, peer) * t.head_bytes);
    if (peer == problem_.rank) {
      keep(t.whole, columns, pitch, row, Way::kToTokens);
      continue;
    }
    const Address packed = stage(batch_ * local_ * row);
    add_of_whole(peer, t.whole, row, exchange_.sends);
    add_of_local(peer, packed, row, exchange_.receives);
    after_.push_back(copy_step(packed, row, columns, pitch, row, batch_ * local_));
  }
}

void ExchangeBuilder::sums_to_tokens(const RowTensor& t, int64_t columns, DType type) {
  const int64_t row = t.heads_mine * t.head_bytes;
  const int64_t part = round_up(batch_ * local_ * row, 256);
  const Address parts = stage(part * problem_.ranks());  // in the order of ranks
  for (int peer = 0; peer < problem_.ranks(); ++peer) {
    const Address packed = at(parts, peer * part);
    if (peer == problem_.rank) {
      keep(t.whole, packed, row, row, Way::kToTokens);
      continue;
    }
    add_of_whole(peer, t.whole, row, exchange_.sends);
    add_of_local(peer, packed, row, exchange_.receives);
  }
  for (int64_t first = 0; first < t.heads; first += t.heads_mine) {
    const int64_t rank = first / t.heads_mine * t.ranks_per_head;
    after_.push_back(SumStep{.parts = at(parts, rank * part),
                             .to = at(t.shard, first * columns * size_of(type)),
                             .part_stride = part,
                             .num_parts = t.ranks_per_head,
                             .rows = batch_ * local_,
                             .columns = t.heads_mine * columns,
                             .part_pitch = t.heads_mine * columns,
                             .to_pitch = t.heads * columns,
                             .to_type = type});
  }
}

void ExchangeBuilder::to_heads(const LseTensor& t) { move(t, Way::kToHeads); }
void ExchangeBuilder::to_tokens(const LseTensor& t) { move(t, Way::kToTokens); }

void ExchangeBuilder::move(const LseTensor& t, Way way) {
  const bool to_heads = way == Way::kToHeads;
  const int64_t row = local_ * kLseBytes, pitch = seqlen_ * kLseBytes;
  const auto copy = [&](Address local, Address whole, int64_t width, int64_t rows) {
    return to_heads ? copy_step(local, row, whole, pitch, width, rows)
                    : copy_step(whole, pitch, local, row, width, rows);
  };
  std::vector<Message>& of_shard = to_heads ? exchange_.sends : exchange_.receives;
  std::vector<Message>& of_packed = to_heads ? exchange_.receives : exchange_.sends;
  Program& of_others = to_heads ? after_ : before_;
  for (int peer = 0; peer < problem_.ranks(); ++peer) {
    const bool is_mine = peer == problem_.rank;
    const auto in_shard = [&](int64_t b) { return (b * t.heads + peer * t.heads_mine) * row; };
    const Address packed = is_mine ? Address{} : stage(batch_ * t.heads_mine * row);
    for (const Chunk& c : chunks_[peer]) {
      const int64_t slot = c.slot * kLseBytes, start = c.start * kLseBytes;
      const int64_t width = c.length * kLseBytes;
      if (!is_mine) {
        of_others.push_back(
            copy(at(packed, slot), at(t.whole, start), width, batch_ * t.heads_mine));
        continue;
      }
      for (int64_t b = 0; b < batch_; ++b) {
        before_.push_back(copy(at(t.shard, in_shard(b) + slot),
                               at(t.whole, b * t.heads_mine * pitch + start), width, t.heads_mine));
      }
    }
    const int64_t bytes = t.heads_mine * row;
    for (int64_t b = 0; b < batch_ && !is_mine; ++b) {
      of_shard.push_back(message(peer, t.shard, in_shard(b), bytes));
      of_packed.push_back(message(peer, packed, b * bytes, bytes));
    }
  }
}

void ExchangeBuilder::append_to(Program& program, const std::string& what) {
  exchange_.what = problem_.description() + ", " + what;
  program.insert(program.end(), before_.begin(), before_.end());
  program.push_back(exchange_);
  program.insert(program.end(), after_.begin(), after_.end());
}

}  // namespace fa4::internal
