#include "attention/cpu_forward_op.h"

#include "attention/cpu_threads.h"
#include "attention/planned_workspace.h"
#include "cpu/forward.h"

namespace fa4::internal {
namespace {

class CpuForwardOp final : public ForwardOp {
 public:
  explicit CpuForwardOp(const ForwardPlan& plan)
      : ForwardOp(plan),
        spec_(std::get<CpuKernelSpec>(plan.main)),
        pool_(shared_threads(spec_.num_threads)) {}

  void execute(const ForwardArgs& given) const override {
    check_host_stream(given.stream);
    const ForwardArgs args = with_planned_workspace(given, plan_.workspace);
    check_host_args(plan_.problem, args);
    cpu_forward(plan_.problem, spec_, args, *pool_);
  }

 private:
  CpuKernelSpec spec_;
  std::shared_ptr<ThreadPool> pool_;
};

}  // namespace

std::shared_ptr<const ForwardOp> prepare_cpu(const ForwardPlan& plan) {
  return std::make_shared<CpuForwardOp>(plan);
}

}  // namespace fa4::internal
