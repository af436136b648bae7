#include "distributed/all_gather.h"

#include <algorithm>

#include "distributed/exchange_builder.h"
#include "distributed/parts.h"

namespace fa4::internal {
namespace {

constexpr int64_t kFloat = 4;

// A tensor with a row of `columns` elements a token, and where the rows of a part begin.
struct Rows {
  Address at;
  int64_t columns;
  int64_t bytes;  // of an element
  Address row(int64_t index) const { return at + static_cast<size_t>(index * columns * bytes); }
};

// What both directions share.
class Gather {
 public:
  explicit Gather(const ShardedProblem& problem)
      : p_(problem),
        whole_(problem.whole),
        local_(problem.partition.local_seqlen()),
        parts_(parts_of(problem.whole.mask, problem.partition.chunks(problem.rank),
                        problem.whole.seqlen_k)) {}

  const std::vector<Part>& parts() const { return parts_; }
  int64_t local() const { return local_; }

  Rows queries(Place place, int64_t dim, DType type) const {
    return {{place}, whole_.heads_q * dim, size_of(type)};
  }
  // Every rank has all key heads of the whole sequence.
  RowTensor keys(Place shard, int64_t dim, DType type) {
    const int64_t bytes = dim * size_of(type);
    const Address all = room.take(whole_.batch * whole_.seqlen_k * whole_.heads_kv * bytes);
    return {{shard}, all, whole_.heads_kv, whole_.heads_kv, bytes, p_.ranks()};
  }
  static Rows rows_of(const RowTensor& tensor, int64_t dim) {
    return {tensor.whole, tensor.heads * dim, tensor.head_bytes / dim};
  }

  // lse of a part's queries, contiguous: (batch, heads_q, queries).
  Address part_lse(const Part& part) {
    return room.take(whole_.batch * whole_.heads_q * part.queries * kFloat);
  }
  // Between its place among the rank's and there.
  CopyStep from_part(const Part& part, Address of_part, Place lse) const {
    return copy_step(of_part, part.queries * kFloat,
                     {lse, static_cast<size_t>(part.first_query * kFloat)}, local_ * kFloat,
                     part.queries * kFloat, whole_.batch * whole_.heads_q);
  }
  CopyStep to_part(const Part& part, Place lse, Address of_part) const {
    const CopyStep back = from_part(part, of_part, lse);
    return {back.to, back.from, back.to_pitch, back.from_pitch, back.width, back.rows};
  }

  Room room{Place::kWhole};

 private:
  const ShardedProblem& p_;
  const AttentionProblem& whole_;
  int64_t local_;
  std::vector<Part> parts_;
};

// f32 terms of dk or dv over the keys of the whole, from one or two parts.
class KeyTerms {
 public:
  KeyTerms(Gather& gather, const AttentionProblem& whole, Place shard, int64_t dim)
      : whole_(whole),
        tensor_(gather.keys(shard, dim, DType::kF32)),
        sums_(Gather::rows_of(tensor_, dim)),
        terms_{gather.parts().size() > 1
                   ? gather.room.take(whole.batch * whole.seqlen_k * sums_.columns * kFloat)
                   : Address{},
               sums_.columns, kFloat} {}

  const RowTensor& tensor() const { return tensor_; }

  // Where a part's call writes. The first one writes the sums themselves.
  Address place(const Part& part, bool is_first) const {
    return (is_first ? sums_ : terms_).row(part.first_key);
  }
  // Zeros for the keys that the first part does not see.
  void zero_others(const Part& first, Program& program) const {
    const auto zero = [&](int64_t from, int64_t to) {
      if (from >= to) return;
      program.push_back(
          ZeroStep{sums_.row(from), static_cast<size_t>((to - from) * sums_.columns * kFloat)});
    };
    for (int64_t b = 0; b < whole_.batch; ++b) {
      const int64_t begin = b * whole_.seqlen_k;
      zero(begin, begin + first.first_key);
      zero(begin + first.first_key + first.keys, begin + whole_.seqlen_k);
    }
  }
  // Adds a later part's terms to the sums.
  void add(const Part& part, Program& program) const {
    for (int64_t b = 0; b < whole_.batch && part.keys > 0; ++b) {
      const int64_t row = b * whole_.seqlen_k + part.first_key;
      program.push_back(
          SumStep{.parts = sums_.row(row),
                  .to = sums_.row(row),
                  .part_stride = static_cast<int64_t>(terms_.at.offset - sums_.at.offset),
                  .num_parts = 2,
                  .rows = part.keys,
                  .columns = sums_.columns,
                  .part_pitch = sums_.columns,
                  .to_pitch = sums_.columns,
                  .to_type = DType::kF32});
    }
  }

 private:
  const AttentionProblem& whole_;
  RowTensor tensor_;
  Rows sums_, terms_;
};

}  // namespace

ContextProgram all_gather_forward(const ShardedProblem& p) {
  const AttentionProblem& whole = p.whole;
  Gather gather(p);
  const RowTensor k = gather.keys(Place::kK, whole.head_dim, whole.dtype);
  const RowTensor v = gather.keys(Place::kV, whole.head_dim_v, whole.dtype);
  const Rows q = gather.queries(Place::kQ, whole.head_dim, whole.dtype);
  const Rows out = gather.queries(Place::kOut, whole.head_dim_v, whole.out_dtype);
  ExchangeBuilder in(p);
  in.to_heads(k);
  in.to_heads(v);

  ContextProgram made;
  in.append_to(made.program, "k and v of the forward");
  made.without_lse = made.program;
  for (const Part& part : gather.parts()) {
    CallStep call{.call = made.calls.size(),
                  .q = q.row(part.first_query),
                  .k = Gather::rows_of(k, whole.head_dim).row(part.first_key),
                  .v = Gather::rows_of(v, whole.head_dim_v).row(part.first_key),
                  .out = out.row(part.first_query),
                  .lse = gather.part_lse(part),
                  .sink = {Place::kSink}};
    made.calls.push_back(problem_of(whole, part, gather.local()));
    made.program.push_back(call);
    made.program.push_back(gather.from_part(part, call.lse, Place::kLse));
    call.lse = {};
    made.without_lse.push_back(call);
  }
  made.whole_bytes = gather.room.bytes();
  made.staging_bytes = static_cast<int64_t>(in.staging_bytes());
  return made;
}

ContextProgram all_gather_backward(const ShardedProblem& p) {
  const AttentionProblem& whole = p.whole;
  Gather gather(p);
  const RowTensor k = gather.keys(Place::kK, whole.head_dim, whole.dtype);
  const RowTensor v = gather.keys(Place::kV, whole.head_dim_v, whole.dtype);
  const Rows q = gather.queries(Place::kQ, whole.head_dim, whole.dtype);
  const Rows out = gather.queries(Place::kOut, whole.head_dim_v, whole.out_dtype);
  const Rows dout = gather.queries(Place::kDout, whole.head_dim_v, whole.dtype);
  const Rows dq = gather.queries(Place::kDq, whole.head_dim, whole.grad_dtype);
  const KeyTerms dk(gather, whole, Place::kDk, whole.head_dim);
  const KeyTerms dv(gather, whole, Place::kDv, whole.head_dim_v);
  // Gradients of a call have one type: dq is rounded behind it.
  Rows dq_made{{Place::kDq}, dq.columns, kFloat};
  const bool rounds_dq = whole.grad_dtype != DType::kF32;
  if (rounds_dq) dq_made.at = gather.room.take(whole.batch * gather.local() * dq.columns * kFloat);
  const int64_t sink_bytes = (whole.heads_q * kFloat + 255) / 256 * 256;
  const auto num_parts = static_cast<int>(gather.parts().size());
  const Address dsinks = whole.has_sink ? gather.room.take(num_parts * sink_bytes) : Address{};
  ExchangeBuilder in(p), back(p);
  in.to_heads(k);
  in.to_heads(v);
  back.sums_to_tokens(dk.tensor(), whole.head_dim, whole.grad_dtype);
  back.sums_to_tokens(dv.tensor(), whole.head_dim_v, whole.grad_dtype);

  ContextProgram made;
  in.append_to(made.program, "k and v of the backward");
  // The part of the most keys comes first: it leaves the fewest zeros.
  std::vector<Part> parts = gather.parts();
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Part& a, const Part& b) { return a.keys > b.keys; });
  dk.zero_others(parts.front(), made.program);
  dv.zero_others(parts.front(), made.program);
  AttentionProblem in_floats = whole;
  in_floats.grad_dtype = DType::kF32;
  for (const Part& part : parts) {
    const size_t index = made.calls.size();
    const bool is_first = index == 0;
    CallStep call{.call = index,
                  .q = q.row(part.first_query),
                  .k = Gather::rows_of(k, whole.head_dim).row(part.first_key),
                  .v = Gather::rows_of(v, whole.head_dim_v).row(part.first_key),
                  .out = out.row(part.first_query),
                  .lse = gather.part_lse(part),
                  .sink = {Place::kSink},
                  .dout = dout.row(part.first_query),
                  .dlse = {},
                  .dq = dq_made.row(part.first_query),
                  .dk = dk.place(part, is_first),
                  .dv = dv.place(part, is_first),
                  .dsink = dsinks.place == Place::kNone
                               ? dsinks
                               : dsinks + index * static_cast<size_t>(sink_bytes)};
    made.calls.push_back(problem_of(in_floats, part, gather.local()));
    made.program.push_back(gather.to_part(part, Place::kLse, call.lse));
    if (whole.has_dlse) {
      call.dlse = gather.part_lse(part);
      made.program.push_back(gather.to_part(part, Place::kDlse, call.dlse));
    }
    made.program.push_back(call);
    if (!is_first) {
      dk.add(part, made.program);
      dv.add(part, made.program);
    }
  }
  if (rounds_dq) {
    made.program.push_back(SumStep{.parts = dq_made.at,
                                   .to = dq.at,
                                   .num_parts = 1,
                                   .rows = whole.batch * gather.local(),
                                   .columns = dq.columns,
                                   .part_pitch = dq.columns,
                                   .to_pitch = dq.columns,
                                   .to_type = whole.grad_dtype});
  }
  if (whole.has_sink) {
    made.program.push_back(SumStep{.parts = dsinks,
                                   .to = {Place::kDsink},
                                   .part_stride = sink_bytes,
                                   .num_parts = num_parts,
                                   .rows = 1,
                                   .columns = whole.heads_q,
                                   .part_pitch = whole.heads_q,
                                   .to_pitch = whole.heads_q,
                                   .to_type = DType::kF32});
  }
  back.append_to(made.program, "dk and dv of the backward");
  made.whole_bytes = gather.room.bytes();
  made.staging_bytes = static_cast<int64_t>(std::max(in.staging_bytes(), back.staging_bytes()));
  return made;
}

}  // namespace fa4::internal
