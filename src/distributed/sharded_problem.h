// A problem of a whole sequence, as one of the ranks that share the sequence sees it. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "distributed/local_calls.h"
#include "distributed/sequence_partition.h"
#include "problem/attention_problem.h"

namespace fa4::internal {

// The values are those of fa4_context_parallel_options in distributed.h.
enum class ContextMethod : int32_t { kAuto = 0, kAllToAll = 1, kAllGather = 2, kRing = 3 };

std::string_view name_of(ContextMethod method);

struct ContextOptions {
  ContextMethod method = ContextMethod::kAuto;
  SequenceLayout layout = SequenceLayout::kZigzag;
  int num_threads = 0;  // CPU; 0: as many as the device has
  int slices = 0;       // 0: the plan decides
};

// Tokens of a sequence that a rank has room for in tensors of keys: their rows lie one range behind
// the other.
class HeldTokens {
 public:
  explicit HeldTokens(std::vector<KeyRange> ranges) : ranges_(std::move(ranges)) {}

  int64_t rows() const;  // of a sequence
  // Of a token that is held; those of its range follow each other. A call of no keys may begin
  // elsewhere.
  int64_t row(int64_t sequence, int64_t token) const { return sequence * rows() + row_of(token); }

 private:
  int64_t row_of(int64_t token) const;

  std::vector<KeyRange> ranges_;  // ascending and apart
};

struct ShardedProblem {
  AttentionProblem whole;
  AttentionProblem local;  // the same of this rank's tokens: shapes and pointers of an execution
  SequencePartition partition;
  int rank = 0;
  ContextMethod method = ContextMethod::kAllToAll;  // the one that was chosen
  std::string why;                                  // it was
  int slices = 1;                                   // computed one after the other

  int ranks() const { return partition.ranks(); }
  // The heads of each slice on a rank.
  int64_t slice_heads_q() const;
  int64_t slice_heads_kv() const;
  bool is_packed() const { return whole.layout_q == Layout::kPacked; }
  // Whether what goes from rank to rank goes under attention.
  bool overlaps() const { return ranks() > 1 && (slices > 1 || method == ContextMethod::kRing); }
  // So many sequences are cut, each for itself; packed ones are cut as one.
  int64_t outer() const { return is_packed() ? 1 : whole.batch; }
  // The calls of a rank by all-gather, by its slots.
  std::vector<LocalCall> local_calls(int rank) const;
  // Which of the whole's tokens a rank takes of others', ranges that ascend and do not touch: all,
  // or by all-gather the keys that its queries may see.
  std::vector<KeyRange> taken_tokens(int rank) const;
  // Those that this rank has or takes.
  HeldTokens held_tokens() const;
  // What of the holder's chunks the taker takes.
  std::vector<Chunk> taken_chunks(int taker, int holder) const;
  // What every rank says alike: the problem, the method, the layout and the slices.
  std::string description() const;

  // `num_sms`: of each rank's GPU, 0 for a CPU. Throws Error{kInvalidArgument} for a sequence or
  // heads that cannot be cut so, and Error{kNotSupported} for what is not there yet.
  static ShardedProblem make(const AttentionProblem& whole, const ContextOptions& options, int rank,
                             int ranks, int num_sms = 0);

 private:
  // The heads of all slices on a rank.
  int64_t rank_heads_q() const;
  int64_t rank_heads_kv() const;
  int choose_slices(int asked, int num_sms) const;
};

// The same attention of other sizes; tensors are contiguous.
struct AttentionSizes {
  int64_t seqlen_q, seqlen_k, heads_q, heads_kv;
};
AttentionProblem resized(const AttentionProblem& problem, const AttentionSizes& sizes);

}  // namespace fa4::internal
