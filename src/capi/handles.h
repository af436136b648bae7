// What is behind the opaque handles of fa4.h.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <variant>

#include "attention/backward_op.h"
#include "attention/forward_op.h"
#include "attention/gpu_append.h"
#include "capi/prepared_ops.h"
#include "core/thread_pool.h"
#include "device/device.h"
#include "distributed/context_op.h"
#include "fa4/fa4.h"

struct fa4_plan {
  std::variant<fa4::internal::ForwardPlan, fa4::internal::BackwardPlan,
               fa4::internal::ContextForwardPlan, fa4::internal::ContextBackwardPlan>
      plan;
  std::shared_ptr<fa4::internal::Device> device;  // null: the CPU
  std::string kernel_name;
};

// One of them is there.
struct fa4_op {
  std::shared_ptr<const fa4::internal::ForwardOp> forward;
  std::shared_ptr<const fa4::internal::BackwardOp> backward;
  // Over the ranks of a communicator.
  std::shared_ptr<const fa4::internal::ContextForwardOp> context_forward;
  std::shared_ptr<const fa4::internal::ContextBackwardOp> context_backward;
};

struct fa4_device {
  fa4::internal::DeviceSpec spec;
  std::shared_ptr<fa4::internal::Device> device;  // null: the CPU

  // The operations of fa4_forward and of fa4_backward.
  fa4::internal::PreparedOps<fa4::internal::ForwardOp> forward_ops;
  fa4::internal::PreparedOps<fa4::internal::BackwardOp> backward_ops;

  // The threads of what needs no plan, of the CPU; started at the first call.
  fa4::internal::ThreadPool& threads();
  // What appends to such caches, of a GPU; prepared at the first call for their types.
  std::shared_ptr<const fa4::internal::GpuAppend> append_op(
      const fa4::internal::AttentionProblem& problem, void* stream);

 private:
  std::mutex threads_mutex_;
  std::shared_ptr<fa4::internal::ThreadPool> threads_;
  std::mutex append_mutex_;
  std::shared_ptr<const fa4::internal::GpuAppend> append_ops_[4];  // 2 element + is_quantised
};
