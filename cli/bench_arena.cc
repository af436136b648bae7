#include "bench_arena.h"

#include <algorithm>
#include <cstring>

#include "verify/random.h"

namespace fa4::cli {

using namespace fa4::internal;

namespace {

constexpr float kDescale = 1.0f / 64;  // normal numbers reach 4 to 6: 256 to 384 of 448

}  // namespace

BenchBuffer::BenchBuffer(const DeviceChoice& device, int64_t bytes) : device_(device) {
  const auto size = static_cast<size_t>(std::max<int64_t>(1, bytes));
  if (device.is_gpu()) {
    device_memory_ = Buffer(*device.device, size);
  } else {
    host_.resize(size);
  }
}

std::vector<unsigned char> BenchBuffer::read(int64_t first, int64_t count, DType dtype) const {
  const size_t at = static_cast<size_t>(first * size_of(dtype));
  const size_t bytes = static_cast<size_t>(count * size_of(dtype));
  std::vector<unsigned char> data(bytes);
  if (bytes == 0) return data;
  if (host_.empty()) {
    const auto* from = static_cast<const unsigned char*>(device_memory_.data()) + at;
    device_.device->copy_to_host(data.data(), from, bytes);
  } else {
    std::copy_n(host_.begin() + static_cast<int64_t>(at), bytes, data.begin());
  }
  return data;
}

void BenchBuffer::write(const std::vector<unsigned char>& from) {
  if (host_.empty()) {
    device_.device->copy_to_device(device_memory_.data(), from.data(), from.size());
  } else {
    std::copy(from.begin(), from.end(), host_.begin());
  }
}

void BenchBuffer::poison() {
  if (!host_.empty()) {
    std::fill(host_.begin(), host_.end(), 0xff);
  } else if (device_memory_.data() != nullptr) {
    device_.device->fill(device_memory_.data(), 0xff, device_memory_.bytes());
  }
}

void Arena::reserve(const AttentionProblem& problem, bool backward) {
  const TensorExtents extents = extents_of(problem);
  const auto raise = [](int64_t& most, int64_t wanted) { most = std::max(most, wanted); };
  raise(most_.q, extents.q);
  raise(most_.k, extents.k);
  raise(most_.v, extents.v);
  raise(most_out_bytes_, extents.out * size_of(problem.out_dtype));
  if (!backward) return;
  raise(most_.dout, extents.dout);
  raise(most_.dq, extents.dq);
  raise(most_.dk, extents.dk);
  raise(most_.dv, extents.dv);
}

void Arena::fill() {
  Random random(2026);
  const auto input = [&](std::vector<unsigned char>& host, BenchBuffer& buffer, int64_t elements,
                         DType dtype, float amplitude) {
    if (elements == 0) return;
    host.resize(static_cast<size_t>(elements) * size_of(dtype));
    for (int64_t i = 0; i < elements; ++i) {
      store_from_float(dtype, host.data(), i, amplitude * random.normal());
    }
    if (!device_.is_gpu()) return;
    buffer = BenchBuffer(device_, static_cast<int64_t>(host.size()));
    buffer.write(host);
  };
  const bool quantised = kv_dtype_ == DType::kE4M3;
  const float amplitude = quantised ? 1 / kDescale : 1.0f;
  input(host_q_, q_, most_.q, dtype_, 1.0f);
  input(host_k_, k_, most_.k, kv_dtype_, amplitude);
  input(host_v_, v_, most_.v, kv_dtype_, amplitude);
  input(host_dout_, dout_, most_.dout, dtype_, 1.0f);
  if (quantised) {
    host_descale_.resize(sizeof(float));
    std::memcpy(host_descale_.data(), &kDescale, sizeof(float));
    descale_ = BenchBuffer(device_, sizeof(float));
    descale_.write(host_descale_);
  }
  const auto output = [&](BenchBuffer& buffer, int64_t bytes) {
    if (bytes > 0) buffer = BenchBuffer(device_, bytes);
  };
  output(out, most_out_bytes_);
  output(dq, most_.dq * size_of(dtype_));
  output(dk, most_.dk * size_of(dtype_));
  output(dv, most_.dv * size_of(dtype_));
}

void Arena::poison_outputs() {
  for (BenchBuffer* buffer : {&out, &dq, &dk, &dv}) buffer->poison();
}

ForwardArgs Arena::host_inputs() const {
  ForwardArgs args;
  args.q = host_q_.data();
  args.k = host_k_.data();
  args.v = host_v_.data();
  if (!host_descale_.empty()) {
    args.k_descale = args.v_descale = reinterpret_cast<const float*>(host_descale_.data());
  }
  return args;
}

BackwardArgs Arena::host_gradient_inputs() const {
  BackwardArgs args;
  args.q = host_q_.data();
  args.k = host_k_.data();
  args.v = host_v_.data();
  args.dout = host_dout_.data();
  return args;
}

ForwardArgs Arena::forward_args() {
  ForwardArgs args = host_inputs();
  args.out = out.data();
  if (!device_.is_gpu()) return args;
  args.q = q_.data();
  args.k = k_.data();
  args.v = v_.data();
  if (!host_descale_.empty()) {
    args.k_descale = args.v_descale = static_cast<const float*>(descale_.data());
  }
  return args;
}

BackwardArgs Arena::backward_args(const float* lse) {
  BackwardArgs args = host_gradient_inputs();
  args.out = out.data();
  args.lse = lse;
  args.dq = dq.data();
  args.dk = dk.data();
  args.dv = dv.data();
  if (!device_.is_gpu()) return args;
  args.q = q_.data();
  args.k = k_.data();
  args.v = v_.data();
  args.dout = dout_.data();
  return args;
}

}  // namespace fa4::cli
