// Writes the copies and messages of one exchange of some heads. Pure.
#pragma once

#include <string>

#include "distributed/pipeline.h"
#include "distributed/program.h"
#include "distributed/sharded_problem.h"

namespace fa4::internal {

// Which heads of a shard each rank takes in an exchange.
struct HeadDeal {
  int64_t heads = 0;       // of the shard
  int64_t taken = 0;       // by each rank
  int64_t first = 0;       // of those that rank 0 takes
  int64_t apart = 0;       // from them to the next ones
  int ranks_per_head = 1;  // so many ranks take the same heads

  int64_t first_of(int rank) const { return first + rank / ranks_per_head * apart; }
};

// A tensor (batch, seqlen, heads, dim): this rank's tokens of all heads, and all tokens of some, or
// of them those that it has or takes (HeldTokens).
struct RowTensor {
  Address shard;  // (batch, local_seqlen, deal.heads, dim)
  Address whole;  // (batch, held rows, deal.taken, dim)
  HeadDeal deal;
  int64_t head_bytes = 0;  // of a head's row

  int64_t row_bytes() const { return deal.taken * head_bytes; }  // of the whole
};

// lse or its gradient, f32: (batch, deal.heads, local_seqlen) and (batch, deal.taken, seqlen), of
// which `packed` has the other ranks' tokens as messages bring or take them: for each rank (batch,
// deal.taken, local_seqlen).
struct LseTensor {
  Address shard, whole, packed;
  HeadDeal deal;
};

class ExchangeBuilder {
 public:
  // Builds an exchange to heads.
  explicit ExchangeBuilder(const ShardedProblem& problem) : ExchangeBuilder(problem, 0) {}
  // Builds the exchange back. With several slices another exchange runs at the same time, so that
  // its staging lies behind that of `in`.
  ExchangeBuilder(const ShardedProblem& problem, const ExchangeBuilder& in)
      : ExchangeBuilder(problem, problem.slices > 1 ? in.staging_end() : 0) {}

  // From this rank's tokens to this rank's heads.
  void to_heads(const RowTensor& tensor);
  void to_heads(const LseTensor& tensor);
  // And back.
  void to_tokens(const RowTensor& tensor);
  void to_tokens(const LseTensor& tensor);
  // Back of f32 terms of the same heads, which ranks have in parts: their sums go to the shard,
  // whose type is `type` and whose heads' rows have `columns` elements. Terms of ranks that have
  // them for some of this rank's tokens are added to its own first, where those lie, then come
  // those of the others; each in the order of ranks.
  void sums_to_tokens(const RowTensor& tensor, int64_t columns, DType type);

  // What has been written; `what` names it among the exchanges of the program.
  Exchange exchange(const std::string& what);
  // Where what it needs of the staging place ends.
  int64_t staging_end() const { return staging_.end(); }

 private:
  enum class Way { kToHeads, kToTokens };

  ExchangeBuilder(const ShardedProblem& problem, int64_t first_byte);

  // Copies what stays on this rank: its tokens, rows of `row` bytes, between the whole's tensor and
  // one of this rank's tokens, in which rows lie `pitch` bytes apart.
  void keep(Address whole, Address local, int64_t pitch, int64_t row, Way way);
  // Adds messages to or from `peer` of contiguous rows, a chunk's or a part of it: of the peer's
  // tokens in the whole's tensor those that this rank takes, or of this rank's tokens those that
  // the peer takes.
  void add_of_whole(int peer, Address whole, int64_t row, std::vector<Message>& messages) const;
  void add_of_local(int peer, Address local, int64_t row, std::vector<Message>& messages) const;
  // Adds the terms of a peer that has some.
  void add_some_terms(int peer, const RowTensor& tensor, int64_t columns);
  // Rounds this rank's own sums.
  void round_own(const RowTensor& tensor, int64_t columns, DType type);
  void move(const LseTensor& tensor, Way way);
  // How many of this rank's tokens, of one sequence, a rank takes.
  int64_t taken_by(int rank) const;

  const ShardedProblem& problem_;
  int64_t batch_, seqlen_, local_;
  HeldTokens held_;
  std::vector<std::vector<Chunk>> chunks_;  // of each rank
  // By ranks: of their chunks what this rank takes, of this rank's what they take.
  std::vector<std::vector<Chunk>> of_peer_, for_peer_;
  Room staging_;
  Exchange made_;
};

}  // namespace fa4::internal
