#include <fmt/format.h>

#include "distributed/ring.h"
#include "distributed/ring_steps.h"

namespace fa4::internal {
namespace {

// out and lse of the rank's chunks, sums of what the calls make of them.
class Merged {
 public:
  Merged(Ring& ring, const ShardedProblem& p)
      : ring_(ring),
        whole_(p.whole),
        sums_(ring.query_room(whole_.head_dim_v)),
        made_(ring.query_room(whole_.head_dim_v)),
        made_lse_(ring.room.take(ring.lse_bytes(ring.local_seqlen()))),
        left_(ring.chunks().size(), 0),
        is_out_(ring.chunks().size(), false) {
    for (const Chunk& chunk : ring.chunks()) {
      lses_.push_back(ring.room.take(ring.lse_bytes(chunk.length)));
      part_lses_.push_back(ring.room.take(ring.lse_bytes(chunk.length)));
    }
    for (int step = 0; step < ring.ranks(); ++step) {
      for (const LocalCall& local : ring.local_calls(step)) {
        for (const size_t chunk : ring.chunks_of(local)) ++left_[chunk];
      }
    }
  }

  // Makes a local call and adds what it has made.
  void add(const LocalCall& local, int step) {
    const std::vector<size_t> chunks = ring_.chunks_of(local);
    const bool is_first = ring_.begins(local);
    CallStep call = ring_.call(local, step, is_first);
    const std::vector<Address>& lses = is_first ? lses_ : part_lses_;
    call.out = (is_first ? sums_ : made_).row(local.first_query);
    call.lse = chunks.size() == 1 ? lses[chunks.front()] : made_lse_;
    ring_.compute(call);
    for (const size_t i : chunks) {
      const Chunk& chunk = ring_.chunks()[i];
      if (chunks.size() > 1) {
        const Address from = made_lse_ + static_cast<size_t>(chunk.slot * kFloatBytes);
        ring_.compute(
            ring_.copy_lse(from, ring_.local_seqlen(), lses[i], chunk.length, chunk.length));
      }
      --left_[i];
      if (!is_first) merge(i);
    }
  }
  // Of chunks that one call has made the sums are out.
  void finish(bool wants_lse) {
    for (size_t i = 0; i < ring_.chunks().size(); ++i) {
      const Chunk& chunk = ring_.chunks()[i];
      if (!is_out_[i]) {
        for (int64_t b = 0; b < ring_.batch(); ++b) {
          const int64_t row = b * ring_.local_seqlen() + chunk.slot;
          ring_.compute(round_step(sums_.row(row), out().row(row), chunk.length, sums_.columns,
                                   sums_.columns, whole_.out_dtype));
        }
      }
      if (!wants_lse) continue;
      ring_.compute(ring_.copy_lse(lses_[i], chunk.length,
                                   {Place::kLse, static_cast<size_t>(chunk.slot * kFloatBytes)},
                                   ring_.local_seqlen(), chunk.length));
    }
  }

 private:
  Rows out() const { return ring_.queries(Place::kOut, whole_.head_dim_v, whole_.out_dtype); }
  // The last one of a chunk is out itself.
  void merge(size_t i) {
    const Chunk& chunk = ring_.chunks()[i];
    const bool is_last = left_[i] == 0;
    ring_.compute(MergeStep{.out = sums_.row(chunk.slot),
                            .part_out = made_.row(chunk.slot),
                            .to = (is_last ? out() : sums_).row(chunk.slot),
                            .lse = lses_[i],
                            .part_lse = part_lses_[i],
                            .to_type = is_last ? whole_.out_dtype : DType::kF32,
                            .batch = ring_.batch(),
                            .rows = chunk.length,
                            .heads = whole_.heads_q,
                            .dim = whole_.head_dim_v,
                            .batch_stride = ring_.local_seqlen() * sums_.columns});
    is_out_[i] = is_last;
  }

  Ring& ring_;
  const AttentionProblem& whole_;
  Rows sums_, made_;
  Address made_lse_;  // of all chunks
  std::vector<Address> lses_, part_lses_;
  std::vector<int> left_;  // calls of a chunk that are still to come
  std::vector<bool> is_out_;
};

// `made` gets the calls, and the bytes that they need.
Program forward_program(const ShardedProblem& p, bool wants_lse, ContextProgram& made) {
  AttentionProblem in_floats = p.whole;
  in_floats.out_dtype = DType::kF32;
  Ring ring(p, in_floats);
  Merged out(ring, p);
  for (int step = 0; step < ring.ranks(); ++step) {
    ring.exchange(ring.next_keys(step), fmt::format("keys {} of the forward", step));
    for (const LocalCall& local : ring.local_calls(step)) out.add(local, step);
  }
  out.finish(wants_lse);
  made.calls = ring.calls();
  made.whole_bytes = ring.room.end();
  return ring.take_program();
}

}  // namespace

ContextProgram ring_forward(const ShardedProblem& p) {
  ContextProgram made;
  made.program = forward_program(p, true, made);
  made.without_lse = forward_program(p, false, made);
  return made;
}

}  // namespace fa4::internal
