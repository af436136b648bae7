// Where the tensors of one slice of the all-gather lie, and the copies and sums among them. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "distributed/exchange_builder.h"
#include "distributed/local_calls.h"
#include "distributed/sharded_problem.h"

namespace fa4::internal {

// The rank's calls in a slice; the one of the most keys comes first: in a backward it leaves the
// fewest zeros.
std::vector<LocalCall> local_calls_of(const ShardedProblem& problem);

// What both directions share: one slice of the heads, whose tensors lie from `first_byte` on.
class Gather {
 public:
  Gather(const ShardedProblem& problem, int slice, int64_t first_byte);

  const std::vector<LocalCall>& local_calls() const { return local_calls_; }
  int64_t local_rows() const { return p_.outer() * p_.partition.local_seqlen(); }
  // Rows of keys: those of every sequence that the rank has or takes.
  int64_t rows() const { return p_.outer() * rows_of_sequence(); }
  int64_t rows_of_sequence() const { return held_.rows(); }
  int64_t key_row(int64_t sequence, int64_t token) const { return held_.row(sequence, token); }

  // This slice's of a vector with so many bytes a query head.
  Address own(Place place, int64_t bytes) const;
  // And of the rank's q, out and their gradients.
  Rows queries(Place place, int64_t dim, DType type) const;
  // The slice's key heads of the tokens that the rank has or takes.
  RowTensor keys(Place shard, int64_t dim, DType type);
  static Rows rows_of(const RowTensor& tensor, int64_t dim);

  // lse of a call's queries, contiguous: (batch, the slice's heads of q, queries).
  Address call_lse(const LocalCall& local);
  int64_t call_lse_bytes(const LocalCall& local) const;
  // Between its place among the rank's and there.
  void from_call(const LocalCall& local, Address of_call, Place lse,
                 std::vector<Work>& works) const;
  void to_call(const LocalCall& local, Place lse, Address of_call, std::vector<Work>& works) const;

  // Gives a local call's step where its packed sequences begin.
  void cut_sequences(const LocalCall& local, CallStep& call, std::vector<Work>& works);
  // Rows behind the last packed sequence, which attention leaves as they are, become 0.
  void zero_where_packed(Address tensor, int64_t bytes, std::vector<Work>& works) const;

  Room room;

 private:
  // From a call's place, of one sequence.
  CopyStep lse_copy(const LocalCall& local, Address of_call, Place lse, int64_t b) const;

  const ShardedProblem& p_;
  HeldTokens held_;
  int slice_;
  std::vector<LocalCall> local_calls_;
};

// f32 terms of dk or dv over the keys that the rank has or takes, from one or two calls, of which
// the first has the most keys. Its call writes the sums themselves; so does the second one's where
// it sees keys that the first does not: what it would overwrite is put aside before and added
// behind.
class KeyTerms {
 public:
  KeyTerms(Gather& gather, const ShardedProblem& problem, Place shard, int64_t dim);

  const RowTensor& tensor() const { return tensor_; }

  // Where a local call writes.
  Address place(const LocalCall& local, bool is_first) const;
  // Zeros for keys of this rank that no call sees, and where calls may write nothing.
  void prepare(std::vector<Work>& works) const;
  // Before the second call, and behind it.
  void put_aside(std::vector<Work>& works) const;
  void add(std::vector<Work>& works) const;

 private:
  bool has_terms() const { return twice_.begin < twice_.end; }
  // Where what is put aside of a sequence, or what a second call writes, begins.
  Address terms_of(int64_t sequence) const {
    return terms_.row(sequence * gather_.rows_of_sequence());
  }

  const Gather& gather_;
  const ShardedProblem& p_;
  RowTensor tensor_;
  Rows sums_;
  std::vector<KeyRange> written_;  // by calls, where the sums are
  bool puts_aside_ = false;
  KeyRange twice_;  // keys of two terms, one of which lies in `terms_`, sequences as far apart
  Rows terms_;
};

}  // namespace fa4::internal
