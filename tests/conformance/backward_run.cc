#include "backward_run.h"

#include <algorithm>
#include <cstring>

#include "core/thread_pool.h"
#include "cpu/backward.h"
#include "execution.h"

namespace fa4::internal {
namespace {

constexpr size_t kGuard = 64;  // bytes behind every gradient

void expect_guard(const char* name, const std::vector<unsigned char>& data, int fill) {
  const auto intact = [&](unsigned char byte) { return byte == static_cast<unsigned char>(fill); };
  EXPECT_TRUE(std::all_of(data.end() - kGuard, data.end(), intact)) << "bytes behind " << name;
}

void run_path(CpuIsa isa, const AttentionProblem& p, BackwardArgs args, int threads, int fill) {
  const CpuBackwardSpec spec = plan_cpu_backward(p, host_cpu_spec(), threads, isa);
  const size_t bytes = cpu_backward_workspace(p, spec).bytes();
  std::vector<unsigned char> workspace(bytes + 255, static_cast<unsigned char>(fill));
  const uintptr_t at = reinterpret_cast<uintptr_t>(workspace.data());
  args.workspace = reinterpret_cast<void*>((at + 255) / 256 * 256);
  args.workspace_bytes = bytes;
  check_host_args(p, args);
  ThreadPool pool(threads);
  cpu_backward(p, spec, args, pool);
}

}  // namespace

std::string unsupported_backward(const Backend& backend, const AttentionProblem& problem) {
  if (backend.isa) {
    return isa_supports_backward(*backend.isa, problem.dtype) ? "" : "this path has no backward";
  }
  return query_backward_support(problem, backend.device.spec).reason;
}

bool GradientResult::operator==(const GradientResult& other) const {
  return dq == other.dq && dk == other.dk && dv == other.dv &&
         std::memcmp(dsink.data(), other.dsink.data(), dsink.size() * sizeof(float)) == 0;
}

BackwardArgs GradientResult::outputs_of(const AttentionProblem& p, BackwardArgs args) {
  args.dq = dq.data();
  args.dk = dk.data();
  args.dv = dv.data();
  if (p.has_sink) args.dsink = dsink.data();
  return args;
}

GradientResult run_backward_on(const Backend& backend, const AttentionProblem& p,
                               const BackwardArgs& inputs, int threads, int fill) {
  GradientResult result;
  const TensorExtents extents = extents_of(p);
  const auto memory = [&](int64_t elements) {
    return std::vector<unsigned char>(
        static_cast<size_t>(elements) * size_of(p.grad_dtype) + kGuard,
        static_cast<unsigned char>(fill));
  };
  result.dq = memory(extents.dq);
  result.dk = memory(extents.dk);
  result.dv = memory(extents.dv);
  result.dsink.assign(static_cast<size_t>(p.heads_q), 0);
  std::memset(result.dsink.data(), fill, result.dsink.size() * sizeof(float));
  const BackwardArgs args = result.outputs_of(p, inputs);
  result.tile_m = 128;
  if (backend.isa) {
    run_path(*backend.isa, p, args, threads, fill);
  } else {
    cli::BackwardExecution execution(p, backend.device, threads);
    execution.bind(args);
    execution.run();
    execution.fetch();
    result.tile_m = execution.tile_m();
  }
  expect_guard("dq", result.dq, fill);
  expect_guard("dk", result.dk, fill);
  expect_guard("dv", result.dv, fill);
  return result;
}

void expect_gradients(const BackwardCase& c, GradientResult& result) {
  const BackwardArgs args = result.outputs_of(c.problem(), c.args());
  const BackwardAccuracy accuracy = check_backward(c.problem(), args, c.reference, result.tile_m);
  EXPECT_TRUE(accuracy.passed()) << accuracy.detail() << "; largest errors and bounds: dq "
                                 << accuracy.dq.error << ", " << accuracy.dq.bound << ", dk "
                                 << accuracy.dk.error << ", " << accuracy.dk.bound << ", dv "
                                 << accuracy.dv.error << ", " << accuracy.dv.bound;
}

void expect_gradients(const BackwardCase& c) {
  for_each_backward(c.problem(), [&](const Backend& backend) {
    GradientResult result = run_backward_on(backend, c.problem(), c.args());
    expect_gradients(c, result);
  });
}

void expect_gradients(const Case& c) { expect_gradients(BackwardCase(c)); }

}  // namespace fa4::internal
