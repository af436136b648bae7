// Attention of a sequence that is cut over the ranks of a group, end to end: plan -> prepare ->
// execute, on one rank.
#pragma once

#include <memory>

#include "attention/backward_op.h"
#include "attention/forward_op.h"
#include "distributed/context_plan.h"
#include "distributed/lanes.h"

namespace fa4::internal {

// `Op` is ForwardOp or BackwardOp, `Args` what it executes. Prepared; one execution of a
// communicator runs at a time, and others wait.
template <class Plan, class Op, class Args>
class ContextOp {
 public:
  // As prepare() of one device's plan.
  ContextOp(const ContextPlan<Plan>& plan, std::shared_ptr<Device> device, void* stream = nullptr);

  // Enqueues (GPU) or runs (CPU) this rank's part, and waits for the other ranks where they are
  // threads of this process. What is enqueued is done when args.stream is through with it, though
  // exchanges run on a stream of this operation's. The pointers are this rank's shards. Allocates
  // nothing, synchronises no stream; capturable. Throws Error.
  void execute(const Args& args) const;

 private:
  void run(const Program& program, const Lanes::Streams& streams, const Bases& bases,
           const Args& given) const;
  void run(const Work& work, void* stream, const Bases& bases, const Args& given) const;

  ContextPlan<Plan> plan_;
  bool on_host_;
  bool checks_sequences_;  // on a host, of those that are cut
  std::unique_ptr<const Memory> memory_;
  std::unique_ptr<Lanes> lanes_;
  std::vector<std::shared_ptr<const Op>> calls_;
};

using ContextForwardOp = ContextOp<ForwardPlan, ForwardOp, ForwardArgs>;
using ContextBackwardOp = ContextOp<BackwardPlan, BackwardOp, BackwardArgs>;
extern template class ContextOp<ForwardPlan, ForwardOp, ForwardArgs>;
extern template class ContextOp<BackwardPlan, BackwardOp, BackwardArgs>;

}  // namespace fa4::internal
