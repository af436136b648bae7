// What a rank does in the steps of a ring, of both directions: whose keys it has, what goes on to
// the rank behind, and the calls over them. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "distributed/context_program.h"
#include "distributed/local_calls.h"
#include "distributed/sharded_problem.h"

namespace fa4::internal {

// K and V, or the sums of dk and dv: (batch, local_seqlen, heads_kv dim).
struct KeyRows {
  Rows k, v;
};

// A tensor that goes to the rank behind, and where the one comes from the rank before.
struct Passed {
  Rows given, taken;
};

// Writes the program of one direction. A step has the keys of one rank, step 0 the rank's own.
class Ring {
 public:
  // Calls are of `whole`, the problem's attention with results in f32.
  Ring(const ShardedProblem& problem, const AttentionProblem& whole);

  int ranks() const { return p_.ranks(); }
  int64_t batch() const { return p_.whole.batch; }
  int64_t local_seqlen() const { return p_.partition.local_seqlen(); }
  const std::vector<Chunk>& chunks() const { return chunks_; }

  // The calls of a step. A call has one of the rank's chunks or all of them, and in step 0 every
  // chunk has one.
  std::vector<LocalCall> local_calls(int step) const;
  std::vector<size_t> chunks_of(const LocalCall& local) const;

  // Whether a call is the first one of its rows. Asked once for each call, in the order of calls.
  bool begins(const LocalCall& local);

  // An argument, of the rank's rows of q, and room for such rows in f32.
  Rows queries(Place place, int64_t dim, DType type) const;
  Rows query_room(int64_t dim);
  // Room for what a rank has of K and V, and where those of a step are.
  KeyRows key_room(DType type);
  KeyRows keys_of(int step) const;

  // A local call over a step's keys, without what the direction adds. `is_first`: of its rows,
  // which see the sink once.
  CallStep call(const LocalCall& local, int step, bool is_first);

  // The lanes wait for each other; then these go, and others come, while what follows is computed.
  void exchange(const std::vector<Passed>& tensors, const std::string& what);
  // The keys, for the next step.
  std::vector<Passed> next_keys(int step) const;

  void wait(Lane lane) { program_.push_back({lane, WaitStep{}}); }
  void compute(Work work) { program_.push_back({Lane::kCompute, std::move(work)}); }
  // Adds `count` rows of each sequence to others, both f32 and in the workspace.
  void add_rows(const Rows& terms, const Rows& sums, int64_t first, int64_t count);
  void round(const Rows& sums, const Rows& to, DType type);

  // lse and its gradient: (batch, heads_q, rows), f32.
  int64_t lse_bytes(int64_t rows) const { return batch() * p_.whole.heads_q * rows * kFloatBytes; }
  // `count` rows, between tensors with so many rows a head.
  CopyStep copy_lse(Address from, int64_t from_rows, Address to, int64_t to_rows,
                    int64_t count) const;

  // The lanes meet at its end. What follows is made with it.
  Program take_program();
  std::vector<AttentionProblem> calls() const { return calls_; }

  Room room;

 private:
  size_t number_of(const LocalCall& local, bool has_sink);

  const ShardedProblem& p_;
  const AttentionProblem whole_;
  std::vector<Chunk> chunks_;
  std::vector<bool> begun_;                         // chunks
  KeyRows buffers_[2];                              // of steps in turn
  std::vector<std::pair<LocalCall, bool>> shapes_;  // of calls_, and whether they see the sink
  std::vector<AttentionProblem> calls_;
  Program program_;
};

}  // namespace fa4::internal
