#include "attention/cpu_forward_op.h"

#include <map>
#include <mutex>

#include <fmt/format.h>

#include "core/error.h"
#include "core/thread_pool.h"
#include "cpu/forward.h"

namespace fa4::internal {
namespace {

std::shared_ptr<ThreadPool> pool_of(int num_threads) {
  static std::mutex mutex;
  static std::map<int, std::weak_ptr<ThreadPool>> pools;
  const std::lock_guard lock(mutex);
  std::weak_ptr<ThreadPool>& slot = pools[num_threads];
  std::shared_ptr<ThreadPool> pool = slot.lock();
  if (pool == nullptr) {
    pool = std::make_shared<ThreadPool>(num_threads);
    slot = pool;
  }
  return pool;
}

class CpuForwardOp final : public ForwardOp {
 public:
  explicit CpuForwardOp(const ForwardPlan& plan)
      : ForwardOp(plan),
        spec_(std::get<CpuKernelSpec>(plan.main)),
        pool_(pool_of(spec_.num_threads)) {}

  void execute(const ForwardArgs& given) const override {
    if (given.stream != nullptr) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("stream {}; accepted: NULL on the CPU", given.stream));
    }
    const ForwardArgs args = with_planned_workspace(given);
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
