#include "distributed/all_to_all.h"

#include <algorithm>

#include "distributed/exchange_builder.h"

namespace fa4::internal {
namespace {

// The tensors of this rank's heads of one slice, and where they lie: from `first_byte` on.
class Heads {
 public:
  Heads(const ShardedProblem& problem, int slice, int64_t first_byte)
      : p_(problem),
        slice_(slice),
        heads_q_(problem.slice_heads_q()),
        heads_kv_(problem.slice_heads_kv()),
        room_(Place::kWhole, first_byte) {}

  RowTensor of_queries(Place shard, int64_t dim, DType type) {
    return rows(shard, queries(), dim * size_of(type));
  }
  RowTensor of_keys(Place shard, int64_t dim, DType type) {
    return rows(shard, deal(p_.whole.heads_kv, heads_kv_, copies(p_)), dim * size_of(type));
  }
  LseTensor of_lse(Place shard) {
    const int64_t bytes = tokens() * heads_q_ * kFloatBytes;
    return {{shard}, room_.take(bytes), room_.take(bytes), queries()};
  }
  // This rank's of a vector with an element a query head.
  Address own(Place place, int bytes) const {
    return {place, static_cast<size_t>(queries().first_of(p_.rank) * bytes)};
  }

  // The tokens of all sequences, of all ranks.
  int64_t tokens() const { return p_.outer() * p_.partition.seqlen(); }
  // Rows behind the last packed sequence, which attention leaves as they are, become 0.
  void zero_where_packed(const RowTensor& tensor, std::vector<Work>& works) const {
    zero_where_packed(tensor.whole, tensor.row_bytes(), works);
  }
  void zero_where_packed(const LseTensor& tensor, std::vector<Work>& works) const {
    zero_where_packed(tensor.whole, tensor.deal.taken * kFloatBytes, works);
  }

  // Where the last tensor ends.
  int64_t end() const { return room_.end(); }

  // Ranks that take the same key head: the terms of dk and dv are then f32, and are added up.
  static int copies(const ShardedProblem& p) {
    return static_cast<int>(std::max<int64_t>(1, p.ranks() / p.whole.heads_kv));
  }

 private:
  HeadDeal deal(int64_t heads, int64_t taken, int ranks_per_head) const {
    return {heads, taken, slice_ * taken, p_.slices * taken, ranks_per_head};
  }
  HeadDeal queries() const { return deal(p_.whole.heads_q, heads_q_, 1); }
  void zero_where_packed(Address whole, int64_t bytes_of_token, std::vector<Work>& works) const {
    if (!p_.is_packed()) return;
    works.push_back(ZeroStep{whole, static_cast<size_t>(tokens() * bytes_of_token)});
  }
  RowTensor rows(Place shard, const HeadDeal& deal, int64_t head_bytes) {
    return {{shard}, room_.take(tokens() * deal.taken * head_bytes), deal, head_bytes};
  }

  const ShardedProblem& p_;
  int slice_;
  int64_t heads_q_, heads_kv_;
  Room room_;
};

// Attention of a slice, with gradients of that type.
AttentionProblem attention_of(const ShardedProblem& p, DType grad_dtype) {
  AttentionProblem whole = p.whole;
  whole.grad_dtype = grad_dtype;
  return resized(whole, {whole.seqlen_q, whole.seqlen_k, p.slice_heads_q(), p.slice_heads_kv()});
}

Slice forward_slice(const ShardedProblem& p, int index, int64_t first_byte, bool wants_lse) {
  const AttentionProblem& whole = p.whole;
  Heads heads(p, index, first_byte);
  const RowTensor q = heads.of_queries(Place::kQ, whole.head_dim, whole.dtype);
  const RowTensor k = heads.of_keys(Place::kK, whole.head_dim, whole.dtype);
  const RowTensor v = heads.of_keys(Place::kV, whole.head_dim_v, whole.dtype);
  const RowTensor out = heads.of_queries(Place::kOut, whole.head_dim_v, whole.out_dtype);
  CallStep call{.q = q.whole,
                .k = k.whole,
                .v = v.whole,
                .out = out.whole,
                .sink = heads.own(Place::kSink, size_of(whole.sink_dtype))};

  ExchangeBuilder in(p);
  for (const RowTensor& tensor : {q, k, v}) in.to_heads(tensor);
  ExchangeBuilder back(p, in);
  back.to_tokens(out);
  std::vector<Work> calls;
  heads.zero_where_packed(out, calls);
  if (wants_lse) {
    const LseTensor lse = heads.of_lse(Place::kLse);
    back.to_tokens(lse);
    heads.zero_where_packed(lse, calls);
    call.lse = lse.whole;
  }
  calls.push_back(call);
  return {.in = in.exchange("q k v of the forward"),
          .calls = std::move(calls),
          .back = back.exchange(wants_lse ? "out and lse of the forward" : "out of the forward"),
          .whole_end = heads.end(),
          .staging_end = std::max(in.staging_end(), back.staging_end())};
}

// That of attention's own gradients.
DType call_grad_dtype(const ShardedProblem& p) {
  return Heads::copies(p) > 1 ? DType::kF32 : p.whole.grad_dtype;
}

// dk or dv, whose terms are added up where ranks take the same key head.
void key_gradient_to_tokens(const ShardedProblem& p, const RowTensor& gradient, int64_t dim,
                            ExchangeBuilder& back) {
  if (Heads::copies(p) > 1) {
    back.sums_to_tokens(gradient, dim, p.whole.grad_dtype);
  } else {
    back.to_tokens(gradient);
  }
}

Slice backward_slice(const ShardedProblem& p, int index, int64_t first_byte) {
  const AttentionProblem& whole = p.whole;
  Heads heads(p, index, first_byte);
  const DType type = call_grad_dtype(p);
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
  CallStep call{.q = q.whole,
                .k = k.whole,
                .v = v.whole,
                .out = out.whole,
                .lse = lse.whole,
                .sink = heads.own(Place::kSink, size_of(whole.sink_dtype)),
                .dout = dout.whole,
                .dq = dq_made.whole,
                .dk = dk.whole,
                .dv = dv.whole,
                .dsink = heads.own(Place::kDsink, 4)};

  ExchangeBuilder in(p);
  for (const RowTensor& tensor : {q, k, v, out, dout}) in.to_heads(tensor);
  in.to_heads(lse);
  if (whole.has_dlse) {
    const LseTensor dlse = heads.of_lse(Place::kDlse);
    in.to_heads(dlse);
    call.dlse = dlse.whole;
  }
  ExchangeBuilder back(p, in);
  back.to_tokens(dq);
  key_gradient_to_tokens(p, dk, whole.head_dim, back);
  key_gradient_to_tokens(p, dv, whole.head_dim_v, back);

  std::vector<Work> calls;
  if (whole.has_sink && index == 0) {  // of the heads that other ranks compute, too
    calls.push_back(ZeroStep{{Place::kDsink}, static_cast<size_t>(whole.heads_q * kFloatBytes)});
  }
  for (const RowTensor& tensor : {dq_made, dk, dv}) heads.zero_where_packed(tensor, calls);
  calls.push_back(call);
  if (rounds_dq) {
    const int64_t columns = dq.deal.taken * whole.head_dim;
    calls.push_back(
        round_step(dq_made.whole, dq.whole, heads.tokens(), columns, columns, whole.grad_dtype));
  }
  return {.in = in.exchange("what the backward is given"),
          .calls = std::move(calls),
          .back = back.exchange("the gradients of the backward"),
          .whole_end = heads.end(),
          .staging_end = std::max(in.staging_end(), back.staging_end())};
}

}  // namespace

bool can_deal_out_heads(const AttentionProblem& whole, int ranks) {
  return whole.heads_q % ranks == 0 && (whole.heads_kv % ranks == 0 || ranks % whole.heads_kv == 0);
}

ContextProgram all_to_all_forward(const ShardedProblem& p) {
  return write_forward(p, {attention_of(p, p.whole.grad_dtype)}, forward_slice);
}

ContextProgram all_to_all_backward(const ShardedProblem& p) {
  return write_backward(p, {attention_of(p, call_grad_dtype(p))}, backward_slice);
}

}  // namespace fa4::internal
