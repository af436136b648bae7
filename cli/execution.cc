#include "execution.h"

#include <algorithm>
#include <chrono>

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

Execution::Execution(const AttentionProblem& problem, const DeviceChoice& device, int threads)
    : Execution(plan_forward(problem, device.spec, with_threads(threads)), device) {}

Execution::Execution(const ForwardPlan& made, const DeviceChoice& device)
    : device_(device), op_(prepare(made, device.device)) {
  const size_t bytes = made.workspace.bytes();
  if (device_.is_gpu()) {
    stream_ = device_.device->create_stream();
    if (bytes > 0) device_workspace_ = Buffer(*device_.device, bytes);
  } else if (bytes > 0) {
    host_workspace_.resize(bytes + 255);
  }
}

Execution::~Execution() {
  if (stream_ != nullptr) device_.device->destroy_stream(stream_);
}

std::string Execution::kernel_name() const {
  if (const auto* cpu = std::get_if<CpuKernelSpec>(&plan().main)) {
    return std::string(name_of(cpu->isa));
  }
  return plan().steps.front().source.display_name;
}

int Execution::tile_m() const {
  if (const auto* cpu = std::get_if<CpuKernelSpec>(&plan().main)) return cpu->tile_m;
  return gpu_tiling(plan())->shape.tile_m;
}

const void* Execution::upload(const void* data, size_t bytes) {
  if (data == nullptr) return nullptr;
  buffers_.emplace_back(*device_.device, std::max<size_t>(bytes, 16));
  if (bytes > 0) device_.device->copy_to_device(buffers_.back().data(), data, bytes);
  return buffers_.back().data();
}

void Execution::bind(const ForwardArgs& host) {
  host_ = host;
  if (!device_.is_gpu()) return bind_in_place(host);
  const AttentionProblem& p = plan().problem;
  const TensorExtents extents = extents_of(p);
  const auto tensor = [&](const void* data, int64_t elements) {
    return upload(data, static_cast<size_t>(elements) * size_of(p.dtype));
  };
  const auto words = [&](const auto* data, int64_t count) {
    return static_cast<decltype(data)>(upload(data, static_cast<size_t>(count) * 4));
  };
  buffers_.clear();
  ForwardArgs args = host;
  args.q = tensor(host.q, extents.q);
  args.k = tensor(host.k, extents.k);
  args.v = tensor(host.v, extents.v);
  args.out = const_cast<void*>(tensor(host.out, extents.out));
  args.lse = const_cast<float*>(words(const_cast<const float*>(host.lse), p.lse_elements()));
  args.sink = words(host.sink, p.heads_q);
  args.cu_seqlens_q = words(host.cu_seqlens_q, p.batch + 1);
  args.cu_seqlens_k = words(host.cu_seqlens_k, p.batch + 1);
  args.seqused_k = words(host.seqused_k, p.batch);
  args.page_table = words(host.page_table, p.batch * p.pages_per_seq);
  bind_in_place(args);
}

void Execution::bind_in_place(const ForwardArgs& args) {
  args_ = args;
  args_.stream = stream_;
  args_.workspace_bytes = plan().workspace.bytes();
  args_.workspace = device_workspace_.data();
  if (!host_workspace_.empty()) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(host_workspace_.data());
    args_.workspace = reinterpret_cast<void*>((at + 255) / 256 * 256);
  }
}

void Execution::run() {
  op_->execute(args_);
  if (device_.is_gpu()) device_.device->synchronize(stream_);
}

double Execution::milliseconds(int repeats) {
  if (device_.is_gpu()) {
    const std::unique_ptr<Event> begin = device_.device->create_event();
    const std::unique_ptr<Event> end = device_.device->create_event();
    begin->record(stream_);
    for (int i = 0; i < repeats; ++i) op_->execute(args_);
    end->record(stream_);
    end->synchronize();
    return end->milliseconds_since(*begin) / repeats;
  }
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < repeats; ++i) op_->execute(args_);
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
  return time.count() / repeats;
}

void Execution::fetch() {
  if (!device_.is_gpu()) return;
  const AttentionProblem& p = plan().problem;
  const size_t out_bytes = static_cast<size_t>(extents_of(p).out) * size_of(p.dtype);
  if (out_bytes > 0) device_.device->copy_to_host(host_.out, args_.out, out_bytes);
  const size_t lse_bytes = static_cast<size_t>(p.lse_elements()) * sizeof(float);
  if (host_.lse != nullptr && lse_bytes > 0) {
    device_.device->copy_to_host(host_.lse, args_.lse, lse_bytes);
  }
}

}  // namespace fa4::cli
