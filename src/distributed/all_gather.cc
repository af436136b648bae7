#include "distributed/all_gather.h"

#include <algorithm>

#include "core/rounding.h"
#include "distributed/gather.h"

namespace fa4::internal {
namespace {

constexpr int64_t kFloat = 4;

// Gradients of a call have one type, which is f32 for dk and dv: dq is rounded behind it.
bool rounds_dq(const AttentionProblem& whole) { return whole.grad_dtype != DType::kF32; }

// A call for each part, the same in every slice.
std::vector<AttentionProblem> calls_of(const ShardedProblem& p) {
  AttentionProblem in_floats = p.whole;
  in_floats.grad_dtype = DType::kF32;
  const PartHeads heads{.heads_q = p.slice_heads_q(),
                        .heads_kv = p.slice_heads_kv(),
                        .local_seqlen = p.partition.local_seqlen(),
                        .dq_heads = rounds_dq(p.whole) ? p.slice_heads_q() : p.whole.heads_q};
  std::vector<AttentionProblem> calls;
  for (const Part& part : parts_of(p)) calls.push_back(problem_of(in_floats, part, heads));
  return calls;
}

Slice forward_slice(const ShardedProblem& p, int index, int64_t first_byte, bool wants_lse) {
  const AttentionProblem& whole = p.whole;
  Gather gather(p, index, first_byte);
  const RowTensor k = gather.keys(Place::kK, whole.head_dim, whole.dtype);
  const RowTensor v = gather.keys(Place::kV, whole.head_dim_v, whole.dtype);
  const Rows q = gather.queries(Place::kQ, whole.head_dim, whole.dtype);
  const Rows out = gather.queries(Place::kOut, whole.head_dim_v, whole.out_dtype);
  ExchangeBuilder in(p);
  in.to_heads(k);
  in.to_heads(v);

  std::vector<Work> calls;
  for (size_t i = 0; i < gather.parts().size(); ++i) {
    const Part& part = gather.parts()[i];
    CallStep call{.call = i,
                  .q = q.row(part.first_query),
                  .k = Gather::rows_of(k, whole.head_dim).row(part.first_key),
                  .v = Gather::rows_of(v, whole.head_dim_v).row(part.first_key),
                  .out = out.row(part.first_query),
                  .lse = wants_lse ? gather.part_lse(part) : Address{},
                  .sink = gather.own(Place::kSink, size_of(whole.sink_dtype))};
    calls.push_back(call);
    if (wants_lse) gather.from_part(part, call.lse, Place::kLse, calls);
  }
  return {.in = in.exchange("k and v of the forward"),
          .calls = std::move(calls),
          .back = {},
          .whole_end = gather.room.end(),
          .staging_end = in.staging_end()};
}

Slice backward_slice(const ShardedProblem& p, int index, int64_t first_byte) {
  const AttentionProblem& whole = p.whole;
  Gather gather(p, index, first_byte);
  const RowTensor k = gather.keys(Place::kK, whole.head_dim, whole.dtype);
  const RowTensor v = gather.keys(Place::kV, whole.head_dim_v, whole.dtype);
  const Rows q = gather.queries(Place::kQ, whole.head_dim, whole.dtype);
  const Rows out = gather.queries(Place::kOut, whole.head_dim_v, whole.out_dtype);
  const Rows dout = gather.queries(Place::kDout, whole.head_dim_v, whole.dtype);
  const Rows dq = gather.queries(Place::kDq, whole.head_dim, whole.grad_dtype);
  const KeyTerms dk(gather, whole, Place::kDk, whole.head_dim);
  const KeyTerms dv(gather, whole, Place::kDv, whole.head_dim_v);
  Rows dq_made = dq;
  if (rounds_dq(whole)) {  // of the slice's heads alone
    const int64_t columns = p.slice_heads_q() * whole.head_dim;
    dq_made = {gather.room.take(gather.local_rows() * columns * kFloat), columns, kFloat};
  }
  const int64_t sink_bytes = round_up(p.slice_heads_q() * kFloat, 256);
  const auto num_parts = static_cast<int>(gather.parts().size());
  const Address dsinks = whole.has_sink ? gather.room.take(num_parts * sink_bytes) : Address{};
  ExchangeBuilder in(p);
  in.to_heads(k);
  in.to_heads(v);
  ExchangeBuilder back(p, in);
  back.sums_to_tokens(dk.tensor(), whole.head_dim, whole.grad_dtype);
  back.sums_to_tokens(dv.tensor(), whole.head_dim_v, whole.grad_dtype);

  std::vector<Work> calls;
  dk.zero_others(gather.parts().front(), calls);
  dv.zero_others(gather.parts().front(), calls);
  for (size_t i = 0; i < gather.parts().size(); ++i) {
    const Part& part = gather.parts()[i];
    const bool is_first = i == 0;
    CallStep call{.call = i,
                  .q = q.row(part.first_query),
                  .k = Gather::rows_of(k, whole.head_dim).row(part.first_key),
                  .v = Gather::rows_of(v, whole.head_dim_v).row(part.first_key),
                  .out = out.row(part.first_query),
                  .lse = gather.part_lse(part),
                  .sink = gather.own(Place::kSink, size_of(whole.sink_dtype)),
                  .dout = dout.row(part.first_query),
                  .dlse = {},
                  .dq = dq_made.row(part.first_query),
                  .dk = dk.place(part, is_first),
                  .dv = dv.place(part, is_first),
                  .dsink = whole.has_sink ? dsinks + i * static_cast<size_t>(sink_bytes) : dsinks};
    gather.to_part(part, Place::kLse, call.lse, calls);
    if (whole.has_dlse) {
      call.dlse = gather.part_lse(part);
      gather.to_part(part, Place::kDlse, call.dlse, calls);
    }
    calls.push_back(call);
    if (!is_first) {
      dk.add(part, calls);
      dv.add(part, calls);
    }
  }
  if (rounds_dq(whole)) {
    calls.push_back(SumStep{.parts = dq_made.at,
                            .to = dq.at,
                            .num_parts = 1,
                            .rows = gather.local_rows(),
                            .columns = dq_made.columns,
                            .part_pitch = dq_made.columns,
                            .to_pitch = dq.columns,
                            .to_type = whole.grad_dtype});
  }
  if (whole.has_sink) {
    calls.push_back(SumStep{.parts = dsinks,
                            .to = gather.own(Place::kDsink, kFloat),
                            .part_stride = sink_bytes,
                            .num_parts = num_parts,
                            .rows = 1,
                            .columns = p.slice_heads_q(),
                            .part_pitch = p.slice_heads_q(),
                            .to_pitch = p.slice_heads_q(),
                            .to_type = DType::kF32});
  }
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
