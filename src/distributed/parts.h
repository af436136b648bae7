// Which calls make attention of a rank's queries over the whole sequence's keys, each with the mask
// that it has there. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "distributed/sequence_partition.h"
#include "problem/attention_problem.h"

namespace fa4::internal {

// One call: so many of the rank's queries, by slots, over so many of the whole's keys.
struct Part {
  int64_t first_query = 0, queries = 0;
  int64_t first_key = 0, keys = 0;  // 0 keys: nothing is seen
  MaskSpec window;                  // as the library counts it: the last query at the last key
  bool operator==(const Part&) const = default;
};

// Every query of `chunks`, which ascend, is in one part. `mask` is that of the whole, of `seqlen`
// queries and keys. Chunks that see all keys are one part where their slots are neighbours.
std::vector<Part> parts_of(const MaskSpec& mask, const std::vector<Chunk>& chunks, int64_t seqlen);

// The attention of one part: strides are those of the rank's and of the whole's tensors, where
// the part's begin at its first query and key.
AttentionProblem problem_of(const AttentionProblem& whole, const Part& part, int64_t local_seqlen);

}  // namespace fa4::internal
