// A prepared forward operation with its memory on the device that runs it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "attention/forward_op.h"
#include "devices.h"

namespace fa4::cli {

class Execution {
 public:
  // Plans and prepares. Throws the library's Error.
  Execution(const fa4::internal::AttentionProblem& problem, const DeviceChoice& device,
            int threads);
  Execution(const fa4::internal::ForwardPlan& plan, const DeviceChoice& device);
  ~Execution();
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  const fa4::internal::ForwardPlan& plan() const { return op_->plan(); }
  std::string kernel_name() const;
  int tile_m() const;

  // Host pointers, borrowed; on a GPU everything is copied there, outputs included.
  void bind(const fa4::internal::ForwardArgs& host);
  // Pointers of the device itself, borrowed; the workspace is this object's.
  void bind_in_place(const fa4::internal::ForwardArgs& args);

  // Runs to the end.
  void run();
  // Mean time of `repeats` runs one after another, by the device's own clock.
  double milliseconds(int repeats);
  // Copies out and lse to the host pointers that bind() was given.
  void fetch();

 private:
  const void* upload(const void* data, size_t bytes);

  DeviceChoice device_;
  std::shared_ptr<const fa4::internal::ForwardOp> op_;
  fa4::internal::ForwardArgs host_, args_;
  std::vector<fa4::internal::Buffer> buffers_;
  std::vector<unsigned char> host_workspace_;
  fa4::internal::Buffer device_workspace_;
  void* stream_ = nullptr;
};

}  // namespace fa4::cli
