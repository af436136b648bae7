#include "execution.h"

#include <algorithm>

#include "problem/tensor_extent.h"
#include "verify/cases.h"

namespace fa4::cli {

using namespace fa4::internal;

namespace {

PlanOptions with_threads(int threads) {
  PlanOptions options;
  options.num_threads = threads;
  return options;
}

}  // namespace

template <class Op, class Args>
void BoundOperation<Op, Args>::upload_indices(Args& args) {
  const AttentionProblem& p = plan().problem;
  args.sink = side_.upload(args.sink, p.heads_q, size_of(p.sink_dtype));
  args.cu_seqlens_q = side_.upload(args.cu_seqlens_q, p.batch + 1, 4);
  args.cu_seqlens_k = side_.upload(args.cu_seqlens_k, p.batch + 1, 4);
  args.seqused_q = side_.upload(args.seqused_q, p.batch, 4);
  args.seqused_k = side_.upload(args.seqused_k, p.batch, 4);
  const auto entries = span_of(page_table_extent(p), p.page_table, 4);  // checked with the problem
  args.page_table = side_.upload(args.page_table, entries->end, 4);
  args.prefix_pages = side_.upload(args.prefix_pages, p.prefix_pages(), 4);
}

Execution::Execution(const AttentionProblem& problem, const DeviceChoice& device, int threads)
    : Execution(plan_forward(problem, device.spec, with_threads(threads)), device) {}

Execution::Execution(const ForwardPlan& made, const DeviceChoice& device)
    : BoundOperation(made, device) {}

int Execution::tile_m() const {
  if (const auto* cpu = std::get_if<CpuKernelSpec>(&plan().main)) return cpu->tile_m;
  return gpu_tiling(plan())->shape.tile_m;
}

void Execution::bind(const ForwardArgs& host) {
  host_ = host;
  if (!side_.is_gpu()) return bind_in_place(host);
  const AttentionProblem& p = plan().problem;
  const TensorExtents extents = extents_of(p);
  const int bytes_k = size_of(p.kv_dtype);
  side_.drop_copies();
  ForwardArgs args = host;
  args.q = side_.upload(host.q, extents.q, size_of(p.dtype));
  args.k = side_.upload(host.k, extents.k, bytes_k);
  args.v = side_.upload(host.v, extents.v, bytes_k);
  args.out = side_.upload(host.out, extents.out, size_of(p.out_dtype));
  args.lse = side_.upload(host.lse, p.lse_elements(), 4);
  const auto descales = [&](const float* data, const Strides& strides) {
    return side_.upload(data, data == nullptr ? 0 : span_of(descale_extent(p), strides, 4)->end, 4);
  };
  args.k_descale = descales(host.k_descale, p.k_descale);
  args.v_descale = descales(host.v_descale, p.v_descale);
  upload_indices(args);
  bind_in_place(args);
}

void Execution::fetch() {
  if (!side_.is_gpu()) return;
  const AttentionProblem& p = plan().problem;
  side_.fetch(host_.out, args_.out, extents_of(p).out * size_of(p.out_dtype));
  side_.fetch(host_.lse, args_.lse, p.lse_elements() * 4);
}

BackwardExecution::BackwardExecution(const AttentionProblem& problem, const DeviceChoice& device,
                                     int threads)
    : BoundOperation(plan_backward(problem, device.spec, with_threads(threads)), device) {}

int BackwardExecution::tile_m() const {
  const auto* cpu = std::get_if<CpuBackwardSpec>(&plan().main);
  return cpu == nullptr ? 128 : cpu->tile_m;
}

void BackwardExecution::bind(const BackwardArgs& host) {
  host_ = host;
  if (!side_.is_gpu()) return bind_in_place(host);
  const AttentionProblem& p = plan().problem;
  const TensorExtents extents = extents_of(p);
  const int bytes = size_of(p.dtype), grad_bytes = size_of(p.grad_dtype);
  side_.drop_copies();
  BackwardArgs args = host;
  args.q = side_.upload(host.q, extents.q, bytes);
  args.k = side_.upload(host.k, extents.k, bytes);
  args.v = side_.upload(host.v, extents.v, bytes);
  args.out = side_.upload(host.out, extents.out, size_of(p.out_dtype));
  args.dout = side_.upload(host.dout, extents.dout, bytes);
  args.lse = side_.upload(host.lse, p.lse_elements(), 4);
  args.dlse = side_.upload(host.dlse, p.lse_elements(), 4);
  args.dq = side_.upload(host.dq, extents.dq, grad_bytes);
  args.dk = side_.upload(host.dk, extents.dk, grad_bytes);
  args.dv = side_.upload(host.dv, extents.dv, grad_bytes);
  args.dsink = side_.upload(host.dsink, p.heads_q, 4);
  upload_indices(args);
  bind_in_place(args);
}

void BackwardExecution::fetch() {
  if (!side_.is_gpu()) return;
  const AttentionProblem& p = plan().problem;
  const TensorExtents extents = extents_of(p);
  const int bytes = size_of(p.grad_dtype);
  side_.fetch(host_.dq, args_.dq, extents.dq * bytes);
  side_.fetch(host_.dk, args_.dk, extents.dk * bytes);
  side_.fetch(host_.dv, args_.dv, extents.dv * bytes);
  side_.fetch(host_.dsink, args_.dsink, p.heads_q * 4);
}

}  // namespace fa4::cli
