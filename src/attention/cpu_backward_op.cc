#include "attention/cpu_backward_op.h"

#include "attention/cpu_threads.h"
#include "attention/planned_workspace.h"
#include "cpu/backward.h"

namespace fa4::internal {
namespace {

class CpuBackwardOp final : public BackwardOp {
 public:
  explicit CpuBackwardOp(const BackwardPlan& plan)
      : BackwardOp(plan),
        spec_(std::get<CpuBackwardSpec>(plan.main)),
        pool_(shared_threads(spec_.num_threads)) {}

  void execute(const BackwardArgs& given) const override {
    check_host_stream(given.stream);
    const BackwardArgs args = with_planned_workspace(given, plan_.workspace);
    check_host_args(plan_.problem, args);
    cpu_backward(plan_.problem, spec_, args, *pool_);
  }

 private:
  CpuBackwardSpec spec_;
  std::shared_ptr<ThreadPool> pool_;
};

}  // namespace

std::shared_ptr<const BackwardOp> prepare_cpu(const BackwardPlan& plan) {
  return std::make_shared<CpuBackwardOp>(plan);
}

}  // namespace fa4::internal
