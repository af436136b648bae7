// Which calls make attention of a rank's queries over the whole sequence's keys, each with the mask
// that it has there. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "distributed/sequence_partition.h"
#include "problem/attention_problem.h"

namespace fa4::internal {

// One call: so many of the rank's queries, by slots, over so many of the whole's keys.
struct LocalCall {
  int64_t first_query = 0, queries = 0;
  int64_t start = 0;                // where the first of them is in the whole
  int64_t first_key = 0, keys = 0;  // 0 keys: nothing is seen
  MaskSpec window;                  // as the library counts it: the last query at the last key
  bool operator==(const LocalCall&) const = default;
};

// Every query of `chunks`, which ascend, is in one call. `mask` is that of the whole, of `seqlen`
// queries and keys. Chunks that see all keys are one call where their slots are neighbours.
std::vector<LocalCall> local_calls_of(const MaskSpec& mask, const std::vector<Chunk>& chunks,
                                      int64_t seqlen);

// The same of packed sequences, of `total` rows: a call for each chunk, whose sequences are cut at
// its ends. The keys of a sequence that goes on behind it end with its queries, or are all seen.
std::vector<LocalCall> packed_local_calls_of(const MaskSpec& mask, const std::vector<Chunk>& chunks,
                                             int64_t total);
// Other masks let the last query of such a sequence see some keys behind it, and the library counts
// from the last key.
bool can_cut_packed(const MaskSpec& mask);

// The same of the keys that another rank, or the same one (`own`), holds: first_key counts its
// slots. A chunk without a call sees none of them; of `own` every one has a call. Chunks are not
// put together there unless all of them are in the one call that there is.
std::vector<LocalCall> ring_local_calls_of(const MaskSpec& mask, const std::vector<Chunk>& queries,
                                           const std::vector<Chunk>& keys, bool own);

// The heads of a call, of a slice of the whole's, and how far apart the rows lie that it reads and
// writes.
struct CallHeads {
  int64_t heads_q = 0, heads_kv = 0;
  int64_t local_seqlen = 0;  // of q, out, dout and dq, which are the rank's; dense
  int64_t dq_heads = 0;      // from a row of dq to the next; of q, out and dout it is the whole's
  int64_t key_rows = 0;      // of a sequence in k, v and their gradients
};

// The attention of one call: its tensors begin at its first query and key in the rank's, and in
// those of the keys, (batch, key_rows, heads_kv, dim); packed without a batch.
AttentionProblem problem_of(const AttentionProblem& whole, const LocalCall& local,
                            const CallHeads& heads);

}  // namespace fa4::internal
