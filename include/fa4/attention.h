// fa4 in C++: RAII and exceptions over the C ABI of fa4.h. Header-only, C++17; nothing of the
// standard library crosses the boundary of libfa4.so.0.
//
//   fa4::Problem problem;
//   problem.dtype = FA4_BF16;
//   problem.batch = 2;  // and seqlen_q, seqlen_k, heads_q, heads_kv, head_dim
//   fa4::ForwardArgs args;
//   args.q = q;  // and k, v, out
//   fa4::forward(fa4::Device("cpu"), problem, args);
//
// BackwardArgs and fa4::backward compute the gradients.
//
// Meaning, shapes and rules are those of fa4.h. Every failure is thrown as fa4::Error. Handles move
// and are not copied; one handle may be used by any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "fa4/fa4.h"

namespace fa4 {

// what() is the library's line: argument, value, what is accepted.
class Error : public std::runtime_error {
 public:
  Error(fa4_status status, const std::string& message)
      : std::runtime_error(message), status_(status) {}
  fa4_status status() const { return status_; }
  const char* status_name() const { return fa4_status_name(status_); }

 private:
  fa4_status status_;
};

// Throws unless `status` is FA4_OK.
inline void check(fa4_status status) {
  if (status != FA4_OK) throw Error(status, fa4_last_error());
}

// "0.1.0"; the library's, which may be newer than this header.
inline std::string version() { return fa4_version(); }

// Before the first call that reads the configuration; keys as in fa4.h.
inline void configure(const std::string& key, const std::string& value) {
  check(fa4_configure(key.c_str(), value.c_str()));
}

// fa4_problem with its struct_size set: fill in the fields. Contiguous bf16 self-attention needs
// dtype, batch, seqlen_q, seqlen_k, heads_q, heads_kv and head_dim.
struct Problem : fa4_problem {
  Problem() : fa4_problem() { struct_size = sizeof(fa4_problem); }
};

// fa4_forward_args with its struct_size set. The pointers are borrowed, see rule 7.
struct ForwardArgs : fa4_forward_args {
  ForwardArgs() : fa4_forward_args() { struct_size = sizeof(fa4_forward_args); }
};

// fa4_backward_args with its struct_size set.
struct BackwardArgs : fa4_backward_args {
  BackwardArgs() : fa4_backward_args() { struct_size = sizeof(fa4_backward_args); }
};

// fa4_append_args with its struct_size set.
struct AppendArgs : fa4_append_args {
  AppendArgs() : fa4_append_args() { struct_size = sizeof(fa4_append_args); }
};

// fa4_merge_args with its struct_size set.
struct MergeArgs : fa4_merge_args {
  MergeArgs() : fa4_merge_args() { struct_size = sizeof(fa4_merge_args); }
};

struct DeviceInfo : fa4_device_info {
  DeviceInfo() : fa4_device_info() { struct_size = sizeof(fa4_device_info); }
};

// Every device of this machine, "cpu" first.
inline std::vector<DeviceInfo> devices() {
  int32_t count = 0;
  check(fa4_device_count(&count));
  std::vector<DeviceInfo> infos(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) check(fa4_describe_device(i, &infos[static_cast<size_t>(i)]));
  return infos;
}

// Owns a handle of the C ABI.
template <class Handle, void (*kDestroy)(Handle*)>
class Owned {
 public:
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() { kDestroy(handle_); }
  Handle* get() const { return handle_; }

 protected:
  Owned() = default;
  Handle* handle_ = nullptr;
};

class Device : public Owned<fa4_device, fa4_close_device> {
 public:
  // "cpu", "cuda:0".
  explicit Device(const std::string& name) { check(fa4_open_device(name.c_str(), &handle_)); }
};

enum class Direction { kForward, kBackward };

// Nothing when `device` runs `problem`, else the reason. Throws for a problem that no device runs.
inline std::optional<std::string> unsupported_reason(const Device& device, const Problem& problem,
                                                     Direction direction = Direction::kForward) {
  const fa4_status status = direction == Direction::kForward
                                ? fa4_query_support(device.get(), &problem)
                                : fa4_query_backward_support(device.get(), &problem);
  if (status == FA4_NOT_SUPPORTED) return fa4_last_error();
  check(status);
  return std::nullopt;
}

// How `device` will run `problem`; pure and quick.
class Plan : public Owned<fa4_plan, fa4_destroy_plan> {
 public:
  // num_threads: of the CPU; 0: all.
  Plan(const Device& device, const Problem& problem, int32_t num_threads = 0,
       Direction direction = Direction::kForward) {
    fa4_plan_options options{};
    options.struct_size = sizeof(options);
    options.num_threads = num_threads;
    const auto make = direction == Direction::kForward ? fa4_plan_forward : fa4_plan_backward;
    check(make(device.get(), &problem, &options, &handle_));
  }
  Plan(const Device& device, const Problem& problem, Direction direction)
      : Plan(device, problem, 0, direction) {}

  size_t workspace_bytes() const { return fa4_plan_workspace_bytes(handle_); }
  std::string kernel_name() const { return fa4_plan_kernel_name(handle_); }

  // The chain of decisions, a line each.
  std::string describe() const {
    size_t length = 0;
    check(fa4_plan_describe(handle_, nullptr, 0, &length));
    std::string text(length + 1, '\0');
    check(fa4_plan_describe(handle_, text.data(), text.size(), nullptr));
    text.resize(length);
    return text;
  }

 protected:
  Plan() = default;  // of another kind: context_parallel.h
};

// A prepared operation: compiled, loaded, threads started. It must outlive the calls of execute,
// not what they enqueued on a stream.
class ForwardOp : public Owned<fa4_op, fa4_destroy_op> {
 public:
  explicit ForwardOp(const Plan& plan) { check(fa4_prepare(plan.get(), &handle_)); }

  // Allocates nothing, synchronises nothing; each thread brings its own workspace and outputs.
  void execute(const ForwardArgs& args) const { check(fa4_execute(handle_, &args)); }
};

// The same of a plan in Direction::kBackward; it must outlive the calls of execute likewise.
class BackwardOp : public Owned<fa4_op, fa4_destroy_op> {
 public:
  explicit BackwardOp(const Plan& plan) { check(fa4_prepare(plan.get(), &handle_)); }

  void execute(const BackwardArgs& args) const { check(fa4_execute_backward(handle_, &args)); }
};

// All steps in one call; the device keeps what it prepared. Shapes, ownership, errors: fa4_forward.
// On a GPU the workspace is the caller's, as large as a plan of the same problem says; on the CPU
// it may be NULL.
inline void forward(const Device& device, const Problem& problem, const ForwardArgs& args) {
  check(fa4_forward(device.get(), &problem, &args));
}

// The gradients. Shapes, ownership, errors: fa4_backward; the workspace: as for forward.
inline void backward(const Device& device, const Problem& problem, const BackwardArgs& args) {
  check(fa4_backward(device.get(), &problem, &args));
}

// New keys and values into the cache of `problem`, which is written in place. Shapes, ownership,
// errors: fa4_append.
inline void append(const Device& device, const Problem& problem, const AppendArgs& args) {
  check(fa4_append(device.get(), &problem, &args));
}

// Attention over all keys from attention over parts of them. Shapes, ownership, errors: fa4_merge;
// the two arrays of pointers are in host memory on every device.
inline void merge(const Device& device, const MergeArgs& args) {
  check(fa4_merge(device.get(), &args));
}

}  // namespace fa4
