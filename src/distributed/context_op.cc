#include "distributed/context_op.h"

#include <fmt/format.h>

#include "attention/cpu_threads.h"
#include "attention/planned_workspace.h"

namespace fa4::internal {
namespace {

void set_inputs(Bases& bases, const ForwardArgs& args) {
  bases.set(Place::kOut, args.out);
  bases.set(Place::kLse, args.lse);
}

void set_inputs(Bases& bases, const BackwardArgs& args) {
  bases.set(Place::kOut, args.out);
  bases.set(Place::kLse, args.lse);
  bases.set(Place::kDout, args.dout);
  bases.set(Place::kDlse, args.dlse);
  bases.set(Place::kDq, args.dq);
  bases.set(Place::kDk, args.dk);
  bases.set(Place::kDv, args.dv);
  bases.set(Place::kDsink, args.dsink);
}

template <class Type>
Type* typed(const Bases& bases, const Address& address) {
  return static_cast<Type*>(static_cast<void*>(bases.resolve(address)));
}

void fill(ForwardArgs& args, const CallStep& call, const Bases& bases) {
  args.out = bases.resolve(call.out);
  args.lse = typed<float>(bases, call.lse);
}

void fill(BackwardArgs& args, const CallStep& call, const Bases& bases) {
  args.out = bases.resolve(call.out);
  args.lse = typed<float>(bases, call.lse);
  args.dout = bases.resolve(call.dout);
  args.dlse = typed<float>(bases, call.dlse);
  args.dq = bases.resolve(call.dq);
  args.dk = bases.resolve(call.dk);
  args.dv = bases.resolve(call.dv);
  args.dsink = typed<float>(bases, call.dsink);
}

bool wants_lse(const ForwardArgs& args) { return args.lse != nullptr; }
bool wants_lse(const BackwardArgs&) { return true; }

void check_given(const ForwardArgs&) {}

// What one device leaves out, another rank may want: the ranks' exchanges are the same.
void check_given(const BackwardArgs& args) {
  const auto check = [](const char* name, const void* data, const char* otherwise) {
    if (data != nullptr) return;
    throw Error(
        ErrorCode::kNotSupported,
        fmt::format("{} is NULL; accepted over several ranks: a pointer{}", name, otherwise));
  };
  check("dout", args.dout, ", to zeros where out has no gradient");
  check("dq", args.dq, "");
  check("dk", args.dk, "");
  check("dv", args.dv, "");
}

// How rows are cut depends on how many there are.
void check_totals(const AttentionProblem& local, const SequenceArgs& args) {
  const auto check = [&](const char* name, int64_t given, int64_t wanted) {
    if (given == -1 || given == wanted) return;
    throw Error(ErrorCode::kNotSupported,
                fmt::format("{} {}; accepted over several ranks: {}, this rank's part of the "
                            "problem's (cu_seqlens may end before it)",
                            name, given, wanted));
  };
  check("total_q", args.total_q, local.total_q);
  check("total_k", args.total_k, local.total_k);
}

// A cut would hide what is wrong with the numbers.
void check_whole_sequences(const AttentionProblem& whole, SequenceArgs args) {
  args.total_q = args.total_k = -1;
  check_index_tensors(whole, args);
}

bool runs_on_host(const ForwardPlan& plan) { return plan.device.kind == DeviceKind::kCpu; }
bool runs_on_host(const BackwardPlan& plan) { return plan.device.kind == DeviceKind::kCpu; }

int threads_of(const ForwardPlan& plan) { return std::get<CpuKernelSpec>(plan.main).num_threads; }
int threads_of(const BackwardPlan& plan) {
  return std::get<CpuBackwardSpec>(plan.main).num_threads;
}

std::byte* part_of(const WorkspaceLayout& layout, std::string_view name, void* workspace) {
  const WorkspacePart* part = layout.find(name);
  if (part == nullptr || part->bytes == 0) return nullptr;
  return static_cast<std::byte*>(workspace) + part->offset;
}

}  // namespace

template <class Plan, class Op, class Args>
ContextOp<Plan, Op, Args>::ContextOp(const ContextPlan<Plan>& plan, std::shared_ptr<Device> device,
                                     void* stream)
    : plan_(plan),
      on_host_(runs_on_host(plan.calls.front())),
      checks_sequences_(on_host_ && has<CutStep>(plan.program)) {
  for (const Plan& call : plan_.calls) calls_.push_back(prepare(call, device, stream));
  const bool overlaps = !on_host_ && plan_.problem.overlaps();
  lanes_ = overlaps ? std::make_unique<Lanes>(device) : std::make_unique<Lanes>();
  memory_ = on_host_ ? host_memory(shared_threads(threads_of(plan_.calls.front())))
                     : device_memory(std::move(device), plan_.program, stream);
}

template <class Plan, class Op, class Args>
void ContextOp<Plan, Op, Args>::execute(const Args& given) const {
  plan_.communicator->in_turn([&] {
    if (on_host_) check_host_stream(given.stream);
    const Args args = with_planned_workspace(given, plan_.workspace);
    if (plan_.problem.ranks() > 1) check_given(args);
    check_pointers(plan_.problem.local, args);
    if (plan_.problem.ranks() > 1) check_totals(plan_.problem.local, args);
    if (checks_sequences_) check_whole_sequences(plan_.problem.whole, args);
    Bases bases;
    bases.set(Place::kQ, args.q);
    bases.set(Place::kK, args.k);
    bases.set(Place::kV, args.v);
    bases.set(Place::kSink, args.sink);
    set_inputs(bases, args);
    bases.set(Place::kWhole, part_of(plan_.workspace, kWholeTensors, args.workspace));
    bases.set(Place::kStaging, part_of(plan_.workspace, kStaging, args.workspace));
    bases.set(Place::kCallWorkspace, part_of(plan_.workspace, kCallWorkspace, args.workspace));
    const Program& program = wants_lse(args) ? plan_.program : plan_.without_lse;
    const Lanes::Streams streams = lanes_->of_execution(args.stream);
    try {
      run(program, streams, bases, args);
    } catch (...) {
      lanes_->join_failed(streams);
      throw;
    }
  });
}

template <class Plan, class Op, class Args>
void ContextOp<Plan, Op, Args>::run(const Program& program, const Lanes::Streams& streams,
                                    const Bases& bases, const Args& given) const {
  for (const Step& step : program) {
    if (std::holds_alternative<WaitStep>(step.work)) {
      lanes_->wait(step.lane, streams);
    } else {
      run(step.work, streams.of(step.lane), bases, given);
    }
  }
}

template <class Plan, class Op, class Args>
void ContextOp<Plan, Op, Args>::run(const Work& work, void* stream, const Bases& bases,
                                    const Args& given) const {
  if (const auto* copy = std::get_if<CopyStep>(&work)) {
    memory_->copy({.to = bases.resolve(copy->to),
                   .to_pitch = copy->to_pitch,
                   .from = bases.resolve(copy->from),
                   .from_pitch = copy->from_pitch,
                   .width = copy->width,
                   .rows = copy->rows},
                  stream);
  } else if (const auto* zero = std::get_if<ZeroStep>(&work)) {
    std::byte* to = bases.resolve(zero->to);
    if (to != nullptr) memory_->zero(to, zero->bytes, stream);
  } else if (const auto* sum = std::get_if<SumStep>(&work)) {
    if (bases.resolve(sum->to) == nullptr) return;
    const bool is_apart = sum->second.place != Place::kNone;
    memory_->sum({.parts = typed<const float>(bases, sum->parts),
                  .part_stride = is_apart ? bases.resolve(sum->second) - bases.resolve(sum->parts)
                                          : sum->part_stride,
                  .num_parts = sum->num_parts,
                  .rows = sum->rows,
                  .columns = sum->columns,
                  .part_pitch = sum->part_pitch,
                  .to = bases.resolve(sum->to),
                  .to_type = sum->to_type,
                  .to_pitch = sum->to_pitch},
                 stream);
  } else if (const auto* merge = std::get_if<MergeStep>(&work)) {
    const void* outs[] = {bases.resolve(merge->out), bases.resolve(merge->part_out)};
    const float* lses[] = {typed<float>(bases, merge->lse), typed<float>(bases, merge->part_lse)};
    const int64_t row = merge->heads * merge->dim;
    const Strides rows{merge->batch_stride, row, merge->dim};
    memory_->merge({.dtype = DType::kF32,
                    .out_dtype = merge->to_type,
                    .num_parts = 2,
                    .batch = merge->batch,
                    .seqlen = merge->rows,
                    .heads = merge->heads,
                    .head_dim = merge->dim,
                    .part_outs = outs,
                    .part_lses = lses,
                    .out = bases.resolve(merge->to),
                    .lse = typed<float>(bases, merge->lse),
                    .part_out = rows,
                    .part_lse = {merge->heads * merge->rows, 1, merge->rows},
                    .output = rows,
                    .stream = stream});
  } else if (const auto* cut = std::get_if<CutStep>(&work)) {
    memory_->cut({.cu_seqlens_q = given.cu_seqlens_q,
                  .cu_seqlens_k = given.cu_seqlens_k,
                  .shard_q = typed<int32_t>(bases, cut->to_q),
                  .shard_k = typed<int32_t>(bases, cut->to_k),
                  .count = cut->count,
                  .first_query = cut->first_query,
                  .end_query = cut->end_query,
                  .first_key = cut->first_key,
                  .end_key = cut->end_key},
                 stream);
  } else if (const auto* exchange = std::get_if<ExchangeStep>(&work)) {
    plan_.communicator->exchange(*exchange, bases, *memory_, stream);
  } else {
    const CallStep& call = std::get<CallStep>(work);
    const Op& op = *calls_[call.call];
    Args args;
    static_cast<SequenceArgs&>(args) = given;
    if (plan_.problem.ranks() > 1) args.total_q = args.total_k = -1;  // those of the whole
    args.q = bases.resolve(call.q);
    args.k = bases.resolve(call.k);
    args.v = bases.resolve(call.v);
    args.sink = bases.resolve(call.sink);
    if (call.cu_seqlens_q.place != Place::kNone) {
      args.cu_seqlens_q = typed<const int32_t>(bases, call.cu_seqlens_q);
      args.cu_seqlens_k = typed<const int32_t>(bases, call.cu_seqlens_k);
    }
    fill(args, call, bases);
    args.workspace = bases.resolve({Place::kCallWorkspace});
    args.workspace_bytes = op.plan().workspace.bytes();
    args.stream = stream;
    op.execute(args);
  }
}

template class ContextOp<ForwardPlan, ForwardOp, ForwardArgs>;
template class ContextOp<BackwardPlan, BackwardOp, BackwardArgs>;

}  // namespace fa4::internal
