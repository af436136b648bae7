#include "distributed/all_to_all.h"

#include <algorithm>

#include "distributed/exchange_builder.h"

namespace fa4::internal {
namespace {

// The tensors of this rank's heads, and where they lie.
class Heads {
 public:
  explicit Heads(const ShardedProblem& problem)
      : p_(problem),
        ranks_(problem.ranks()),
        copies_(std::max<int64_t>(1, ranks_ / problem.whole.heads_kv)),
        heads_q_(problem.whole.heads_q / ranks_),
        heads_kv_(std::max<int64_t>(1, problem.whole.heads_kv / ranks_)) {}

  // Ranks that take the same key head: the terms of dk and dv are then f32, and are added up.
  int copies() const { return static_cast<int>(copies_); }

  // With gradients of that type.
  AttentionProblem attention(DType grad_dtype) const {
    AttentionProblem whole = p_.whole;
    whole.grad_dtype = grad_dtype;
    return resized(whole, {whole.seqlen_q, whole.seqlen_k, heads_q_, heads_kv_});
  }

  RowTensor of_queries(Place shard, int64_t dim, DType type) {
    return rows(shard, p_.whole.heads_q, heads_q_, 1, dim * size_of(type));
  }
  RowTensor of_keys(Place shard, int64_t dim, DType type) {
    return rows(shard, p_.whole.heads_kv, heads_kv_, copies(), dim * size_of(type));
  }
  LseTensor of_lse(Place shard) {
    const int64_t bytes = tokens() * heads_q_ * 4;
    return {{shard}, room_.take(bytes), p_.whole.heads_q, heads_q_};
  }
  // This rank's of a vector with an element a query head.
  Address own(Place place, int bytes) const {
    return {place, static_cast<size_t>(p_.rank * heads_q_ * bytes)};
  }

  // Of the whole.
  int64_t tokens() const { return p_.outer() * p_.partition.seqlen(); }
  // Rows behind the last packed sequence, which attention leaves as they are, become 0.
  void zero_where_packed(const RowTensor& tensor, Program& program) const {
    zero_where_packed(tensor.whole, tensor.heads_mine * tensor.head_bytes, program);
  }
  void zero_where_packed(const LseTensor& tensor, Program& program) const {
    zero_where_packed(tensor.whole, tensor.heads_mine * 4, program);
  }

  int64_t bytes() const { return room_.bytes(); }

 private:
  void zero_where_packed(Address whole, int64_t bytes_of_token, Program& program) const {
    if (!p_.is_packed()) return;
    program.push_back(ZeroStep{whole, static_cast<size_t>(tokens() * bytes_of_token)});
  }
  RowTensor rows(Place shard, int64_t heads, int64_t mine, int copies, int64_t head_bytes) {
    const int64_t bytes = tokens() * mine * head_bytes;
    return {{shard}, room_.take(bytes), heads, mine, head_bytes, copies};
  }
  const ShardedProblem& p_;
  int64_t ranks_, copies_, heads_q_, heads_kv_;
  Room room_{Place::kWhole};
};

// Elements of a row of dq.
int64_t call_columns(const AttentionProblem& call) { return call.heads_q * call.head_dim; }

int64_t most_staging(const ExchangeBuilder& a, const ExchangeBuilder& b) {
  return static_cast<int64_t>(std::max(a.staging_bytes(), b.staging_bytes()));
}

}  // namespace

bool can_deal_out_heads(const AttentionProblem& whole, int ranks) {
  return whole.heads_q % ranks == 0 && (whole.heads_kv % ranks == 0 || ranks % whole.heads_kv == 0);
}

ContextProgram all_to_all_forward(const ShardedProblem& p) {
  const AttentionProblem& whole = p.whole;
  Heads heads(p);
  const RowTensor q = heads.of_queries(Place::kQ, whole.head_dim, whole.dtype);
  const RowTensor k = heads.of_keys(Place::kK, whole.head_dim, whole.dtype);
  const RowTensor v = heads.of_keys(Place::kV, whole.head_dim_v, whole.dtype);
  const RowTensor out = heads.of_queries(Place::kOut, whole.head_dim_v, whole.out_dtype);
  const LseTensor lse = heads.of_lse(Place::kLse);

  ExchangeBuilder in(p), back(p), back_without_lse(p);
  for (const RowTensor& tensor : {q, k, v}) in.to_heads(tensor);
  back.to_tokens(out);
  back.to_tokens(lse);
  back_without_lse.to_tokens(out);

  ContextProgram made;
  made.calls = {heads.attention(whole.grad_dtype)};
  in.append_to(made.program, "q k v of the forward");
  CallStep call{.q = q.whole,
                .k = k.whole,
                .v = v.whole,
                .out = out.whole,
                .lse = lse.whole,
                .sink = heads.own(Place::kSink, size_of(whole.sink_dtype))};
  heads.zero_where_packed(out, made.program);
  made.without_lse = made.program;
  heads.zero_where_packed(lse, made.program);
  made.program.push_back(call);
  back.append_to(made.program, "out and lse of the forward");
  call.lse = {};
  made.without_lse.push_back(call);
  back_without_lse.append_to(made.without_lse, "out of the forward");
  made.whole_bytes = heads.bytes();
  made.staging_bytes = most_staging(in, back);
  return made;
}

ContextProgram all_to_all_backward(const ShardedProblem& p) {
  const AttentionProblem& whole = p.whole;
  Heads heads(p);
  const DType type = heads.copies() > 1 ? DType::kF32 : whole.grad_dtype;  // of attention's own
  const RowTensor q = heads.of_queries(Place::kQ, whole.head_dim, whole.dtype);
  const RowTensor k = heads.of_keys(Place::kK, whole.head_dim, whole.dtype);
  const RowTensor v = heads.of_keys(Place::kV, whole.head_dim_v, whole.dtype);
  const RowTensor out = heads.of_queries(Place::kOut, whole.head_dim_v, whole.out_dtype);
  const RowTensor dout = heads.of_queries(Place::kDout, whole.head_dim_v, whole.dtype);
  const LseTensor lse = heads.of_lse(Place::kLse);
  const RowTensor dq = heads.of_queries(Place::kDq, whole.head_dim, whole.grad_dtype);
  const RowTensor dk = heads.of_keys(Place::kDk, whole.head_dim, type);
  const RowTensor dv = heads.of_keys(Place::kDv, whole.head_dim_v, type);
  // dq comes with the type of dk and dv, and is rounded before it goes.
  const bool rounds_dq = type != whole.grad_dtype;
  const RowTensor dq_made = rounds_dq ? heads.of_queries(Place::kDq, whole.head_dim, type) : dq;

  ExchangeBuilder in(p), back(p);
  for (const RowTensor& tensor : {q, k, v, out, dout}) in.to_heads(tensor);
  in.to_heads(lse);
  CallStep call{.q = q.whole,
                .k = k.whole,
                .v = v.whole,
                .out = out.whole,
                .lse = lse.whole,
                .sink = heads.own(Place::kSink, size_of(whole.sink_dtype)),
                .dout = dout.whole,
                .dlse = {},
                .dq = dq_made.whole,
                .dk = dk.whole,
                .dv = dv.whole,
                .dsink = heads.own(Place::kDsink, 4)};
  if (whole.has_dlse) {
    const LseTensor dlse = heads.of_lse(Place::kDlse);
    in.to_heads(dlse);
    call.dlse = dlse.whole;
  }
  back.to_tokens(dq);
  if (heads.copies() > 1) {
    back.sums_to_tokens(dk, whole.head_dim, whole.grad_dtype);
    back.sums_to_tokens(dv, whole.head_dim_v, whole.grad_dtype);
  } else {
    back.to_tokens(dk);
    back.to_tokens(dv);
  }

  ContextProgram made;
  made.calls = {heads.attention(type)};
  if (whole.has_sink) {
    made.program.push_back(ZeroStep{{Place::kDsink}, static_cast<size_t>(whole.heads_q) * 4});
  }
  in.append_to(made.program, "what the backward is given");
  for (const RowTensor& tensor : {dq_made, dk, dv}) {
    heads.zero_where_packed(tensor, made.program);
  }
  made.program.push_back(call);
  if (rounds_dq) {
    const int64_t columns = call_columns(made.calls[0]);
    const int64_t rows = heads.tokens();
    made.program.push_back(SumStep{.parts = dq_made.whole,
                                   .to = dq.whole,
                                   .num_parts = 1,
                                   .rows = rows,
                                   .columns = columns,
                                   .part_pitch = columns,
                                   .to_pitch = columns,
                                   .to_type = whole.grad_dtype});
  }
  back.append_to(made.program, "the gradients of the backward");
  made.whole_bytes = heads.bytes();
  made.staging_bytes = most_staging(in, back);
  return made;
}

}  // namespace fa4::internal
