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

void ExchangeBuilder::to_heads(const RowTensor& t) {
  const int64_t row = t.heads_mine * t.head_bytes, pitch = t.heads * t.head_bytes;
  for (int peer = 0; peer < problem_.ranks(); ++peer) {
    const Address columns = at(t.shard, first_head(t, peer) * t.head_bytes);
    if (peer == problem_.rank) {
      for (int64_t b = 0; b < batch_; ++b) {
        for (const Chunk& c : chunks_[peer]) {
          before_.push_back(copy_step(at(columns, (b * local_ + c.slot) * pitch), pitch,
                                      at(t.whole, (b * seqlen_ + c.start) * row), row, row,
                                      c.length));
        }
      }
      continue;
    }
    Address packed = t.shard;  // where every rank takes all heads
    if (row != pitch) {
      packed = stage(batch_ * local_ * row);
      before_.push_back(copy_step(columns, pitch, packed, row, row, batch_ * local_));
    }
    for (int64_t b = 0; b < batch_; ++b) {
      for (const Chunk& c : chunks_[problem_.rank]) {
        exchange_.sends.push_back(
            message(peer, packed, (b * local_ + c.slot) * row, c.length * row));
      }
      for (const Chunk& c : chunks_[peer]) {
        exchange_.receives.push_back(
            message(peer, t.whole, (b * seqlen_ + c.start) * row, c.length * row));
      }
    }
  }
}

void ExchangeBuilder::to_tokens(const RowTensor& t) {
  const int64_t row = t.heads_mine * t.head_bytes, pitch = t.heads * t.head_bytes;
  for (int peer = 0; peer < problem_.ranks(); ++peer) {
    const Address columns = at(t.shard, first_head(t, peer) * t.head_bytes);
    if (peer == problem_.rank) {
      for (int64_t b = 0; b < batch_; ++b) {
        for (const Chunk& c : chunks_[peer]) {
          before_.push_back(copy_step(at(t.whole, (b * seqlen_ + c.start) * row), row,
                                      at(columns, (b * local_ + c.slot) * pitch), pitch, row,
                                      c.length));
        }
      }
      continue;
    }
    const Address packed = stage(batch_ * local_ * row);
    for (int64_t b = 0; b < batch_; ++b) {
      for (const Chunk& c : chunks_[peer]) {
        exchange_.sends.push_back(
            message(peer, t.whole, (b * seqlen_ + c.start) * row, c.length * row));
      }
      for (const Chunk& c : chunks_[problem_.rank]) {
        exchange_.receives.push_back(
            message(peer, packed, (b * local_ + c.slot) * row, c.length * row));
      }
    }
    after_.push_back(copy_step(packed, row, columns, pitch, row, batch_ * local_));
  }
}

void ExchangeBuilder::sums_to_tokens(const RowTensor& t, int64_t columns, DType type) {
  const int64_t row = t.heads_mine * t.head_bytes;
  const int64_t part = round_up(batch_ * local_ * row, 256);
  const Address parts = stage(part * problem_.ranks());  // in the order of ranks
  for (int peer = 0; peer < problem_.ranks(); ++peer) {
    const Address packed = at(parts, peer * part);
    for (int64_t b = 0; b < batch_; ++b) {
      if (peer == problem_.rank) {
        for (const Chunk& c : chunks_[peer]) {
          before_.push_back(copy_step(at(t.whole, (b * seqlen_ + c.start) * row), row,
                                      at(packed, (b * local_ + c.slot) * row), row, row, c.length));
        }
        continue;
      }
      for (const Chunk& c : chunks_[peer]) {
        exchange_.sends.push_back(
            message(peer, t.whole, (b * seqlen_ + c.start) * row, c.length * row));
      }
      for (const Chunk& c : chunks_[problem_.rank]) {
        exchange_.receives.push_back(
            message(peer, packed, (b * local_ + c.slot) * row, c.length * row));
      }
    }
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

void ExchangeBuilder::to_tokens(const LseTensor& t) {
  const int64_t row = local_ * kLseBytes, pitch = seqlen_ * kLseBytes;
  for (int peer = 0; peer < problem_.ranks(); ++peer) {
    const bool is_mine = peer == problem_.rank;
    const Address packed = is_mine ? Address{} : stage(batch_ * t.heads_mine * row);
    for (const Chunk& c : chunks_[peer]) {
      const int64_t slot = c.slot * kLseBytes, start = c.start * kLseBytes;
      const int64_t width = c.length * kLseBytes;
      if (!is_mine) {
        before_.push_back(copy_step(at(t.whole, start), pitch, at(packed, slot), row, width,
                                    batch_ * t.heads_mine));
        continue;
      }
      for (int64_t b = 0; b < batch_; ++b) {
        const int64_t head = b * t.heads + peer * t.heads_mine;
        before_.push_back(copy_step(at(t.whole, b * t.heads_mine * pitch + start), pitch,
                                    at(t.shard, head * row + slot), row, width, t.heads_mine));
      }
    }
    if (is_mine) continue;
    const int64_t bytes = t.heads_mine * row;
    for (int64_t b = 0; b < batch_; ++b) {
      const int64_t head = b * t.heads + peer * t.heads_mine;
      exchange_.sends.push_back(message(peer, packed, b * bytes, bytes));
      exchange_.receives.push_back(message(peer, t.shard, head * row, bytes));
    }
  }
}

void ExchangeBuilder::to_heads(const LseTensor& t) {
  const int64_t row = local_ * kLseBytes, pitch = seqlen_ * kLseBytes;
  for (int peer = 0; peer < problem_.ranks(); ++peer) {
    const bool is_mine = peer == problem_.rank;
    const Address packed = is_mine ? Address{} : stage(batch_ * t.heads_mine * row);
    const int64_t bytes = t.heads_mine * row;
    for (int64_t b = 0; b < batch_ && !is_mine; ++b) {
      const int64_t head = b * t.heads + peer * t.heads_mine;
      exchange_.sends.push_back(message(peer, t.shard, head * row, bytes));
      exchange_.receives.push_back(message(peer, packed, b * bytes, bytes));
    }
    for (const Chunk& c : chunks_[peer]) {
      const int64_t slot = c.slot * kLseBytes, start = c.start * kLseBytes;
      const int64_t width = c.length * kLseBytes;
      if (!is_mine) {
        after_.push_back(copy_step(at(packed, slot), row, at(t.whole, start), pitch, width,
                                   batch_ * t.heads_mine));
        continue;
      }
      for (int64_t b = 0; b < batch_; ++b) {
        const int64_t head = b * t.heads + peer * t.heads_mine;
        before_.push_back(copy_step(at(t.shard, head * row + slot), row,
                                    at(t.whole, b * t.heads_mine * pitch + start), pitch, width,
                                    t.heads_mine));
      }
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
