#include "distributed/all_gather.h"

#include <algorithm>
#include <optional>

#include "distributed/gather.h"

namespace fa4::internal {
namespace {

// Gradients of a call have one type, which is f32 for dk and dv: dq is rounded behind it.
bool rounds_dq(const AttentionProblem& whole) { return whole.grad_dtype != DType::kF32; }

// The problem of each local call, the same in every slice.
std::vector<AttentionProblem> calls_of(const ShardedProblem& p) {
  AttentionProblem in_floats = p.whole;
  in_floats.grad_dtype = DType::kF32;
  const CallHeads heads{.heads_q = p.slice_heads_q(),
                        .heads_kv = p.slice_heads_kv(),
                        .local_seqlen = p.partition.local_seqlen(),
                        .dq_heads = rounds_dq(p.whole) ? p.slice_heads_q() : p.whole.heads_q,
                        .key_rows = p.held_tokens().rows()};
  std::vector<AttentionProblem> calls;
  for (const LocalCall& local : local_calls_of(p)) {
    calls.push_back(problem_of(in_floats, local, heads));
  }
  return calls;
}

// What calls of both directions have of a slice; a forward writes out, a backward reads it.
class Operands {
 public:
  Operands(Gather& gather, const AttentionProblem& whole)
      : gather_(gather),
        whole_(whole),
        k_(gather.keys(Place::kK, whole.head_dim, whole.dtype)),
        v_(gather.keys(Place::kV, whole.head_dim_v, whole.dtype)),
        q_(gather.queries(Place::kQ, whole.head_dim, whole.dtype)),
        out_(gather.queries(Place::kOut, whole.head_dim_v, whole.out_dtype)) {}

  void gather_keys(ExchangeBuilder& in) const {
    in.to_heads(k_);
    in.to_heads(v_);
  }
  CallStep call(size_t index) const {
    const LocalCall& local = gather_.local_calls()[index];
    return {.call = index,
            .q = q_.row(local.first_query),
            .k = Gather::rows_of(k_, whole_.head_dim).row(gather_.key_row(0, local.first_key)),
            .v = Gather::rows_of(v_, whole_.head_dim_v).row(gather_.key_row(0, local.first_key)),
            .out = out_.row(local.first_query),
            .sink = gather_.own(Place::kSink, size_of(whole_.sink_dtype))};
  }

 private:
  const Gather& gather_;
  const AttentionProblem& whole_;
  RowTensor k_, v_;
  Rows q_, out_;
};

Slice forward_slice(const ShardedProblem& p, int index, int64_t first_byte, bool wants_lse) {
  Gather gather(p, index, first_byte);
  const Operands operands(gather, p.whole);
  ExchangeBuilder in(p);
  operands.gather_keys(in);

  std::vector<Work> calls;
  if (index == 0) {  // of all slices
    const int64_t row = p.whole.heads_q * p.whole.head_dim_v * size_of(p.whole.out_dtype);
    gather.zero_where_packed({Place::kOut}, gather.local_rows() * row, calls);
  }
  for (size_t i = 0; i < gather.local_calls().size(); ++i) {
    const LocalCall& local = gather.local_calls()[i];
    CallStep call = operands.call(i);
    gather.cut_sequences(local, call, calls);
    if (wants_lse) {
      call.lse = gather.call_lse(local);
      gather.zero_where_packed(call.lse, gather.call_lse_bytes(local), calls);
    }
    calls.push_back(call);
    if (wants_lse) gather.from_call(local, call.lse, Place::kLse, calls);
  }
  return {.in = in.exchange("k and v of the forward"),
          .calls = std::move(calls),
          .back = {},
          .whole_end = gather.room.end(),
          .staging_end = in.staging_end()};
}

// dq of a slice, which calls write where it stays or, where it is rounded, beside it.
class QueryGradient {
 public:
  QueryGradient(Gather& gather, const ShardedProblem& p)
      : gather_(gather),
        rows_(gather.local_rows()),
        columns_(p.slice_heads_q() * p.whole.head_dim),
        type_(p.whole.grad_dtype),
        dq_(gather.queries(Place::kDq, p.whole.head_dim, type_)),
        made_(dq_) {
    // Of the slice's heads alone.
    if (rounds_dq(p.whole))
      made_ = {gather.room.take(rows_ * columns_ * kFloatBytes), columns_, kFloatBytes};
  }

  Address place(const LocalCall& local) const { return made_.row(local.first_query); }
  // Before the calls of a slice.
  void prepare(int slice, std::vector<Work>& works) const {
    const bool is_argument = made_.at.place == Place::kDq;  // the rows of all slices
    if (is_argument && slice > 0) return;
    const Address rows = is_argument ? Address{Place::kDq} : made_.at;
    gather_.zero_where_packed(rows, rows_ * made_.columns * kFloatBytes, works);
  }
  void round(std::vector<Work>& works) const {
    works.push_back(round_step(made_.at, dq_.at, rows_, columns_, dq_.columns, type_));
  }

 private:
  const Gather& gather_;
  int64_t rows_, columns_;
  DType type_;
  Rows dq_, made_;
};

Slice backward_slice(const ShardedProblem& p, int index, int64_t first_byte) {
  const AttentionProblem& whole = p.whole;
  Gather gather(p, index, first_byte);
  const Operands operands(gather, whole);
  const Rows dout = gather.queries(Place::kDout, whole.head_dim_v, whole.dtype);
  const KeyTerms dk(gather, p, Place::kDk, whole.head_dim);
  const KeyTerms dv(gather, p, Place::kDv, whole.head_dim_v);
  const QueryGradient dq(gather, p);
  std::optional<SinkGradient> dsink;
  if (whole.has_sink) {
    dsink.emplace(gather.room, p.slice_heads_q(), static_cast<int>(gather.local_calls().size()));
  }
  ExchangeBuilder in(p);
  operands.gather_keys(in);
  ExchangeBuilder back(p, in);
  back.sums_to_tokens(dk.tensor(), whole.head_dim, whole.grad_dtype);
  back.sums_to_tokens(dv.tensor(), whole.head_dim_v, whole.grad_dtype);

  std::vector<Work> calls;
  dk.prepare(calls);
  dv.prepare(calls);
  dq.prepare(index, calls);
  for (size_t i = 0; i < gather.local_calls().size(); ++i) {
    const LocalCall& local = gather.local_calls()[i];
    const bool is_first = i == 0;
    CallStep call = operands.call(i);
    gather.cut_sequences(local, call, calls);
    call.lse = gather.call_lse(local);
    call.dout = dout.row(local.first_query);
    call.dq = dq.place(local);
    call.dk = dk.place(local, is_first);
    call.dv = dv.place(local, is_first);
    if (dsink) call.dsink = dsink->place();
    gather.to_call(local, Place::kLse, call.lse, calls);
    if (whole.has_dlse) {
      call.dlse = gather.call_lse(local);
      gather.to_call(local, Place::kDlse, call.dlse, calls);
    }
    if (!is_first) {
      dk.put_aside(calls);
      dv.put_aside(calls);
    }
    calls.push_back(call);
    if (!is_first) {
      dk.add(calls);
      dv.add(calls);
    }
  }
  if (rounds_dq(whole)) dq.round(calls);
  if (dsink) calls.push_back(dsink->add_up(gather.own(Place::kDsink, kFloatBytes)));
  return {.in = in.exchange("k and v of the backward"),
          .calls = std::move(calls),
          .back = back.exchange("dk and dv of the backward"),
          .whole_end = gather.room.end(),
          .staging_end = std::max(in.staging_end(), back.staging_end())};
}

}  // namespace

ContextProgram all_gather_forward(const ShardedProblem& p) {
  return write_forward(p, calls_of(p), forward_slice);
}

ContextProgram all_gather_backward(const ShardedProblem& p) {
  return write_backward(p, calls_of(p), backward_slice);
}

}  // namespace fa4::internal
