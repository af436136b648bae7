#include <fmt/format.h>

#include "distributed/ring.h"
#include "distributed/ring_steps.h"

namespace fa4::internal {
namespace {

// dq of the rank's rows and dsink, sums of what the calls write.
class QueryGradients {
 public:
  QueryGradients(Ring& ring, const ShardedProblem& p)
      : ring_(ring),
        whole_(p.whole),
        dq_(ring.query_room(whole_.head_dim)),
        made_(ring.query_room(whole_.head_dim)),
        dsink_(ring.room, whole_.heads_q, static_cast<int>(ring.chunks().size())) {}

  // Says where a local call writes. `is_first`: of its rows.
  void place(const LocalCall& local, bool is_first, CallStep& call) {
    call.dq = (is_first ? dq_ : made_).row(local.first_query);
    if (is_first && whole_.has_sink) call.dsink = dsink_.place();
  }
  // Behind the call.
  void add(const LocalCall& local, bool is_first) const {
    if (!is_first) ring_.add_rows(made_, dq_, local.first_query, local.queries);
  }
  void finish() const {
    const Rows to = ring_.queries(Place::kDq, whole_.head_dim, whole_.grad_dtype);
    ring_.round(dq_, to, whole_.grad_dtype);
    if (whole_.has_sink) ring_.compute(dsink_.add_up({Place::kDsink}));
  }

 private:
  Ring& ring_;
  const AttentionProblem& whole_;
  Rows dq_, made_;
  SinkGradient dsink_;
};

// Sums of dk and dv over the keys of a step, in the two buffers in turn: while those of one step
// are computed, those of the step before are on their way.
class KeyGradients {
 public:
  KeyGradients(Ring& ring, const ShardedProblem& p)
      : ring_(ring), type_(p.whole.grad_dtype), come_(ring.key_room(DType::kF32)) {
    for (KeyRows& sums : sums_) sums = ring.key_room(DType::kF32);
    bool has_more = false;
    for (int step = 0; step < ring.ranks(); ++step) has_more |= ring.local_calls(step).size() > 1;
    if (has_more) more_ = ring.key_room(DType::kF32);
  }

  // What goes on while a step is computed.
  void add_to(std::vector<Passed>& exchanged, int step) const {
    if (step == 0) return;
    const KeyRows& done = sums_[(step - 1) % 2];
    exchanged.insert(exchanged.end(), {{done.k, come_.k}, {done.v, come_.v}});
  }
  // Before a step's calls.
  void prepare(const std::vector<LocalCall>& local_calls, int step) const {
    const LocalCall first = local_calls.empty() ? LocalCall{.window = {}} : local_calls.front();
    std::vector<Work> zeros;
    for (const Rows& rows : {sums_[step % 2].k, sums_[step % 2].v}) {
      for (int64_t b = 0; b < ring_.batch(); ++b) {
        const int64_t begin = b * ring_.local_seqlen(), seen = begin + first.first_key;
        zero_rows(rows, begin, seen, zeros);
        zero_rows(rows, seen + first.keys, begin + ring_.local_seqlen(), zeros);
      }
    }
    for (const Work& zero : zeros) ring_.compute(zero);
  }
  void place(const LocalCall& local, int step, bool is_first, CallStep& call) const {
    const KeyRows& to = is_first ? sums_[step % 2] : more_;
    call.dk = to.k.row(local.first_key);
    call.dv = to.v.row(local.first_key);
  }
  // Behind another call than the step's first one.
  void add(const LocalCall& local, int step) const {
    const KeyRows& sums = sums_[step % 2];
    ring_.add_rows(more_.k, sums.k, local.first_key, local.keys);
    ring_.add_rows(more_.v, sums.v, local.first_key, local.keys);
  }
  // Behind a step's calls: those of the ranks before this one.
  void add_come(int step) const {
    if (step == 0) return;
    ring_.wait(Lane::kCompute);
    const KeyRows& sums = sums_[step % 2];
    ring_.add_rows(come_.k, sums.k, 0, ring_.local_seqlen());
    ring_.add_rows(come_.v, sums.v, 0, ring_.local_seqlen());
  }
  // When all have come home.
  void finish() const {
    ring_.wait(Lane::kCompute);
    ring_.round(come_.k, {{Place::kDk}, come_.k.columns, size_of(type_)}, type_);
    ring_.round(come_.v, {{Place::kDv}, come_.v.columns, size_of(type_)}, type_);
  }

 private:
  Ring& ring_;
  DType type_;
  KeyRows come_, more_;
  KeyRows sums_[2];
};

// lse or dlse of a call's rows, copied once.
class RowsOfCalls {
 public:
  RowsOfCalls(Ring& ring, Place place)
      : ring_(ring), place_(place), copies_(ring.chunks().size()) {}
  Address of(const LocalCall& local) {
    if (local.queries == ring_.local_seqlen()) return {place_};
    Address& copy = copies_[ring_.chunks_of(local).front()];
    if (copy.place == Place::kNone) copy = copied(local);
    return copy;
  }

 private:
  Address copied(const LocalCall& local) {
    const Address from{place_, static_cast<size_t>(local.first_query * kFloatBytes)};
    const Address to = ring_.room.take(ring_.lse_bytes(local.queries));
    ring_.compute(ring_.copy_lse(from, ring_.local_seqlen(), to, local.queries, local.queries));
    return to;
  }

  Ring& ring_;
  Place place_;
  std::vector<Address> copies_;
};

}  // namespace

ContextProgram ring_backward(const ShardedProblem& p) {
  const AttentionProblem& whole = p.whole;
  AttentionProblem in_floats = whole;
  in_floats.grad_dtype = DType::kF32;
  Ring ring(p, in_floats);
  QueryGradients dq(ring, p);
  const KeyGradients dkv(ring, p);
  RowsOfCalls lse(ring, Place::kLse), dlse(ring, Place::kDlse);
  const Rows out = ring.queries(Place::kOut, whole.head_dim_v, whole.out_dtype);
  const Rows dout = ring.queries(Place::kDout, whole.head_dim_v, whole.dtype);
  for (int step = 0; step <= ring.ranks(); ++step) {  // behind the last one sums come home
    std::vector<Passed> exchanged = ring.next_keys(step);
    dkv.add_to(exchanged, step);
    ring.exchange(exchanged, fmt::format("keys and sums {} of the backward", step));
    if (step == ring.ranks()) break;
    const std::vector<LocalCall> local_calls = ring.local_calls(step);
    dkv.prepare(local_calls, step);
    for (size_t i = 0; i < local_calls.size(); ++i) {
      const LocalCall& local = local_calls[i];
      const bool is_first = ring.begins(local);
      CallStep call = ring.call(local, step, is_first);
      call.out = out.row(local.first_query);
      call.dout = dout.row(local.first_query);
      call.lse = lse.of(local);
      if (whole.has_dlse) call.dlse = dlse.of(local);
      dq.place(local, is_first, call);
      dkv.place(local, step, i == 0, call);
      ring.compute(call);
      dq.add(local, is_first);
      if (i > 0) dkv.add(local, step);
    }
    dkv.add_come(step);
  }
  dkv.finish();
  dq.finish();
  ContextProgram made;
  made.program = ring.take_program();
  made.calls = ring.calls();
  made.whole_bytes = ring.room.end();
  return made;
}

}  // namespace fa4::internal
