// Which rank holds which token of a sequence that is cut over the ranks of a group. Pure.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace fa4::internal {

// The values are those of fa4_context_parallel_options in distributed.h.
enum class SequenceLayout : int32_t { kZigzag = 0, kContiguous = 1 };

std::string_view name_of(SequenceLayout layout);

// Neighbouring tokens that one rank holds: `slot` is where they begin among the rank's, `start`
// where they begin in the whole.
struct Chunk {
  int64_t slot = 0;
  int64_t start = 0;
  int64_t length = 0;
  bool operator==(const Chunk&) const = default;
};

// Contiguous gives rank r the r-th of `ranks` equal pieces. Zigzag cuts the sequence into 2 ranks
// chunks and gives rank r chunks r and 2 ranks - 1 - r, in this order: under a causal mask, where
// late queries see many keys and early ones few, every rank then has the same work.
class SequencePartition {
 public:
  // Throws Error{kInvalidArgument} unless seqlen is a multiple of ranks, for zigzag of 2 ranks,
  // and not 0. `name` is what the caller calls seqlen.
  SequencePartition(int ranks, int64_t seqlen, SequenceLayout layout, const char* name = "seqlen");

  int ranks() const { return ranks_; }
  int64_t seqlen() const { return seqlen_; }
  SequenceLayout layout() const { return layout_; }
  int64_t local_seqlen() const { return seqlen_ / ranks_; }

  // The rank's, in the order of its slots, which is that of their tokens too. `rank` is in [0,
  // ranks).
  std::vector<Chunk> chunks(int rank) const;
  // Where the token of the rank's slot lies in the whole.
  int64_t position(int rank, int64_t slot) const;

 private:
  int ranks_;
  int64_t seqlen_;
  SequenceLayout layout_;
};

}  // namespace fa4::internal
