#include "distributed/exchange_builder.h"

#include <algorithm>

#include "core/rounding.h"

namespace fa4::internal {
namespace {

Address at(Address base, int64_t bytes) { return base + static_cast<size_t>(bytes); }

Message message(int peer, Address base, int64_t offset, int64_t bytes) {
  return {peer, at(base, offset), static_cast<size_t>(bytes)};
}

}  // namespace

ExchangeBuilder::ExchangeBuilder(const ShardedProblem& problem, int64_t first_byte)
    : problem_(problem),
      batch_(problem.outer()),
      seqlen_(problem.partition.seqlen()),
      local_(problem.partition.local_seqlen()),
      held_(problem.held_tokens()),
      staging_(Place::kStaging, first_byte) {
  for (int rank = 0; rank < problem.ranks(); ++rank) {
    chunks_.push_back(problem.partition.chunks(rank));
    of_peer_.push_back(problem.taken_chunks(problem.rank, rank));
    for_peer_.push_back(problem.taken_chunks(rank, problem.rank));
  }
}

void ExchangeBuilder::keep(Address whole, Address local, int64_t pitch, int64_t row, Way way) {
  for (int64_t b = 0; b < batch_; ++b) {
    for (const Chunk& c : chunks_[problem_.rank]) {
      const Address of_whole = at(whole, held_.row(b, c.start) * row);
      const Address of_local = at(local, (b * local_ + c.slot) * pitch);
      made_.after.push_back(way == Way::kToHeads
                                ? copy_step(of_local, pitch, of_whole, row, row, c.length)
                                : copy_step(of_whole, row, of_local, pitch, row, c.length));
    }
  }
}

void ExchangeBuilder::add_of_whole(int peer, Address whole, int64_t row,
                                   std::vector<Message>& messages) const {
  for (int64_t b = 0; b < batch_; ++b) {
    for (const Chunk& c : of_peer_[static_cast<size_t>(peer)]) {
      messages.push_back(message(peer, whole, held_.row(b, c.start) * row, c.length * row));
    }
  }
}

void ExchangeBuilder::add_of_local(int peer, Address local, int64_t row,
                                   std::vector<Message>& messages) const {
  for (int64_t b = 0; b < batch_; ++b) {
    for (const Chunk& c : for_peer_[static_cast<size_t>(peer)]) {
      messages.push_back(message(peer, local, (b * local_ + c.slot) * row, c.length * row));
    }
  }
}

void ExchangeBuilder::to_heads(const RowTensor& t) {
  const int64_t row = t.row_bytes(), pitch = t.deal.heads * t.head_bytes;
  Address packed;
  int64_t first_packed = -1;  // ranks that take the same heads get the same copy
  for (int peer = 0; peer < problem_.ranks(); ++peer) {
    const int64_t first = t.deal.first_of(peer);
    const Address columns = at(t.shard, first * t.head_bytes);
    if (peer == problem_.rank) {
      keep(t.whole, columns, pitch, row, Way::kToHeads);
      continue;
    }
    if (row == pitch) {
      packed = t.shard;
    } else if (first != first_packed) {
      packed = staging_.take(batch_ * local_ * row);
      made_.before.push_back(copy_step(columns, pitch, packed, row, row, batch_ * local_));
      first_packed = first;
    }
    add_of_local(peer, packed, row, made_.messages.sends);
    add_of_whole(peer, t.whole, row, made_.messages.receives);
  }
}

void ExchangeBuilder::to_tokens(const RowTensor& t) {
  const int64_t row = t.row_bytes(), pitch = t.deal.heads * t.head_bytes;
  for (int peer = 0; peer < problem_.ranks(); ++peer) {
    const Address columns = at(t.shard, t.deal.first_of(peer) * t.head_bytes);
    if (peer == problem_.rank) {
      keep(t.whole, columns, pitch, row, Way::kToTokens);
      continue;
    }
    const Address packed = staging_.take(batch_ * local_ * row);
    add_of_whole(peer, t.whole, row, made_.messages.sends);
    add_of_local(peer, packed, row, made_.messages.receives);
    made_.after.push_back(copy_step(packed, row, columns, pitch, row, batch_ * local_));
  }
}

int64_t ExchangeBuilder::taken_by(int rank) const {
  int64_t tokens = 0;
  for (const Chunk& c : for_peer_[static_cast<size_t>(rank)]) tokens += c.length;
  return tokens;
}

void ExchangeBuilder::add_some_terms(int peer, const RowTensor& t, int64_t columns) {
  const int64_t row = t.row_bytes();
  for (int64_t b = 0; b < batch_; ++b) {
    for (const Chunk& c : for_peer_[static_cast<size_t>(peer)]) {
      const Address terms = staging_.take(c.length * row);
      made_.messages.receives.push_back(message(peer, terms, 0, c.length * row));
      made_.after.push_back(add_step(terms, at(t.whole, held_.row(b, c.start) * row), c.length,
                                     t.deal.taken * columns));
    }
  }
}

void ExchangeBuilder::round_own(const RowTensor& t, int64_t columns, DType type) {
  const int64_t heads = t.deal.heads * columns;
  const Address shard = at(t.shard, t.deal.first_of(problem_.rank) * columns * size_of(type));
  for (int64_t b = 0; b < batch_; ++b) {
    for (const Chunk& c : chunks_[problem_.rank]) {
      made_.after.push_back(round_step(at(t.whole, held_.row(b, c.start) * t.row_bytes()),
                                       at(shard, (b * local_ + c.slot) * heads * size_of(type)),
                                       c.length, t.deal.taken * columns, heads, type));
    }
  }
}

void ExchangeBuilder::sums_to_tokens(const RowTensor& t, int64_t columns, DType type) {
  const int64_t row = t.row_bytes();
  const int64_t part = round_up(batch_ * local_ * row, kWorkspaceAlignment);
  for (int first = 0; first < problem_.ranks(); first += t.deal.ranks_per_head) {
    std::vector<int> givers;  // of all of this rank's tokens: itself, too
    for (int peer = first; peer < first + t.deal.ranks_per_head; ++peer) {
      if (peer == problem_.rank || taken_by(peer) == local_) {
        givers.push_back(peer);
      } else {
        add_some_terms(peer, t, columns);
      }
    }
    if (givers == std::vector{problem_.rank}) {
      round_own(t, columns, type);
      continue;
    }
    const auto num_parts = static_cast<int>(givers.size());
    const Address parts = staging_.take(part * num_parts);
    for (int i = 0; i < num_parts; ++i) {
      const int peer = givers[static_cast<size_t>(i)];
      const Address packed = at(parts, i * part);
      if (peer == problem_.rank) {
        keep(t.whole, packed, row, row, Way::kToTokens);
      } else {
        add_of_local(peer, packed, row, made_.messages.receives);
      }
    }
    made_.after.push_back(
        SumStep{.parts = parts,
                .to = at(t.shard, t.deal.first_of(first) * columns * size_of(type)),
                .part_stride = part,
                .num_parts = num_parts,
                .rows = batch_ * local_,
                .columns = t.deal.taken * columns,
                .part_pitch = t.deal.taken * columns,
                .to_pitch = t.deal.heads * columns,
                .to_type = type});
  }
  for (int peer = 0; peer < problem_.ranks(); ++peer) {
    if (peer != problem_.rank) add_of_whole(peer, t.whole, row, made_.messages.sends);
  }
}

void ExchangeBuilder::to_heads(const LseTensor& t) { move(t, Way::kToHeads); }
void ExchangeBuilder::to_tokens(const LseTensor& t) { move(t, Way::kToTokens); }

void ExchangeBuilder::move(const LseTensor& t, Way way) {
  const bool to_heads = way == Way::kToHeads;
  const int64_t row = local_ * kFloatBytes, pitch = seqlen_ * kFloatBytes;
  const auto copy = [&](Address local, Address whole, int64_t width, int64_t rows) {
    return to_heads ? copy_step(local, row, whole, pitch, width, rows)
                    : copy_step(whole, pitch, local, row, width, rows);
  };
  ExchangeStep& messages = made_.messages;
  std::vector<Message>& of_shard = to_heads ? messages.sends : messages.receives;
  std::vector<Message>& of_packed = to_heads ? messages.receives : messages.sends;
  std::vector<Work>& of_others = to_heads ? made_.after : made_.before;
  const int64_t taken = t.deal.taken, bytes = taken * row;
  for (int peer = 0; peer < problem_.ranks(); ++peer) {
    const bool is_mine = peer == problem_.rank;
    const auto in_shard = [&](int64_t b) {
      return (b * t.deal.heads + t.deal.first_of(peer)) * row;
    };
    const Address packed = at(t.packed, peer * batch_ * bytes);
    for (const Chunk& c : chunks_[peer]) {
      const int64_t slot = c.slot * kFloatBytes, start = c.start * kFloatBytes;
      const int64_t width = c.length * kFloatBytes;
      if (!is_mine) {
        of_others.push_back(copy(at(packed, slot), at(t.whole, start), width, batch_ * taken));
        continue;
      }
      for (int64_t b = 0; b < batch_; ++b) {
        made_.after.push_back(copy(at(t.shard, in_shard(b) + slot),
                                   at(t.whole, b * taken * pitch + start), width, taken));
      }
    }
    for (int64_t b = 0; b < batch_ && !is_mine; ++b) {
      of_shard.push_back(message(peer, t.shard, in_shard(b), bytes));
      of_packed.push_back(message(peer, packed, b * bytes, bytes));
    }
  }
}

Exchange ExchangeBuilder::exchange(const std::string& what) {
  made_.messages.what = what;
  return made_;
}

}  // namespace fa4::internal
