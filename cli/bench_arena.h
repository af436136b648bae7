// The tensors that the rows of `fa4 bench` share, on the host and on the device.
#pragma once

#include <vector>

#include "devices.h"
#include "problem/backward_args.h"
#include "problem/forward_args.h"
#include "verify/cases.h"

namespace fa4::cli {

// Memory of the device.
class BenchBuffer {
 public:
  BenchBuffer() = default;
  BenchBuffer(const DeviceChoice& device, int64_t bytes);
  void* data() { return host_.empty() ? device_memory_.data() : host_.data(); }
  // `count` elements from `first` on.
  std::vector<unsigned char> read(int64_t first, int64_t count, fa4::internal::DType dtype) const;
  void write(const std::vector<unsigned char>& from);
  void poison();

 private:
  DeviceChoice device_;
  std::vector<unsigned char> host_;
  mutable fa4::internal::Buffer device_memory_;
};

// The tensors of all rows of one pair of types, as large as the largest needs.
class Arena {
 public:
  Arena(fa4::internal::DType dtype, fa4::internal::DType kv_dtype, const DeviceChoice& device)
      : dtype_(dtype), kv_dtype_(kv_dtype), device_(device) {}
  void reserve(const fa4::internal::AttentionProblem& problem, bool backward);
  // Allocates and fills what was reserved.
  void fill();
  void poison_outputs();

  fa4::internal::ForwardArgs host_inputs() const;
  fa4::internal::BackwardArgs host_gradient_inputs() const;  // without out and lse
  // Pointers of the device.
  fa4::internal::ForwardArgs forward_args();
  fa4::internal::BackwardArgs backward_args(const float* lse);

  BenchBuffer out, dq, dk, dv;

 private:
  fa4::internal::DType dtype_, kv_dtype_;
  DeviceChoice device_;
  fa4::internal::TensorExtents most_;
  int64_t most_out_bytes_ = 0;
  std::vector<unsigned char> host_q_, host_k_, host_v_, host_dout_;
  std::vector<unsigned char> host_descale_;  // of quantised keys and values: one number
  BenchBuffer q_, k_, v_, dout_, descale_;
};

}  // namespace fa4::cli
