// Writes the copies and messages of one exchange of the all-to-all. Pure.
#pragma once

#include <string>

#include "distributed/program.h"
#include "distributed/sharded_problem.h"

namespace fa4::internal {

// A tensor (batch, seqlen, heads, dim): this rank's tokens of all heads, and all tokens of some.
struct RowTensor {
  Address shard;           // (batch, local_seqlen, heads, dim)
  Address whole;           // (batch, seqlen, heads_mine, dim)
  int64_t heads = 0;       // of the shard
  int64_t heads_mine = 0;  // of each rank
  int64_t head_bytes = 0;  // of a head's row
  int ranks_per_head = 1;  // so many ranks have the same heads
};

// lse or its gradient, f32: (batch, heads, local_seqlen) and (batch, heads_mine, seqlen).
struct LseTensor {
  Address shard, whole;
  int64_t heads = 0;
  int64_t heads_mine = 0;
};

class ExchangeBuilder {
 public:
  explicit ExchangeBuilder(const ShardedProblem& problem);

  // From this rank's tokens to this rank's heads.
  void to_heads(const RowTensor& tensor);
  void to_heads(const LseTensor& tensor);
  // And back.
  void to_tokens(const RowTensor& tensor);
  void to_tokens(const LseTensor& tensor);
  // Back of f32 terms of the same heads, which ranks have in parts: their sums go to the shard,
  // whose type is `type` and whose heads' rows have `columns` elements.
  void sums_to_tokens(const RowTensor& tensor, int64_t columns, DType type);

  // Appends the steps; `what` names the exchange among those of the program.
  void append_to(Program& program, const std::string& what);
  // Of the staging place that the exchange needs.
  size_t staging_bytes() const { return staging_; }

 private:
  enum class Way { kToHeads, kToTokens };

  Address stage(int64_t bytes);
  int64_t first_head(const RowTensor& tensor, int rank) const;
  // Copies what stays on this rank: its tokens, rows of `row` bytes, between the whole's tensor and
  // one of this rank's tokens, in which rows lie `pitch` bytes apart.
  void keep(Address whole, Address local, int64_t pitch, int64_t row, Way way);
  // Adds messages to or from `peer`, one a chunk, of contiguous rows: the peer's tokens in the
  // whole's tensor, or all of this rank's tokens.
  void add_of_whole(int peer, Address whole, int64_t row, std::vector<Message>& messages) const;
  void add_of_local(int peer, Address local, int64_t row, std::vector<Message>& messages) const;
  void move(const LseTensor& tensor, Way way);

  const ShardedProblem& problem_;
  int64_t batch_, seqlen_, local_;
  std::vector<std::vector<Chunk>> chunks_;  // of each rank
  size_t staging_ = 0;
  Program before_, after_;
  ExchangeStep exchange_;
};

}  // namespace fa4::internal
