#include "backends.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "accuracy_report.h"
#include "core/thread_pool.h"
#include "cpu/exponential.h"
#include "cpu/forward.h"
#include "execution.h"

namespace fa4::internal {

std::vector<Backend> all_backends() {
  std::vector<Backend> backends;
  for (const CpuIsa isa : {CpuIsa::kScalar, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAvx512Bf16,
                           CpuIsa::kAvx512Fp16, CpuIsa::kAmxBf16, CpuIsa::kAmxModel}) {
    if (!has_isa(host_cpu_spec().cpu, isa)) continue;
    backends.push_back({"cpu " + std::string(name_of(isa)), {host_cpu_spec(), nullptr}, isa});
  }
  for (const DeviceSpec& spec : Device::enumerate()) {
    backends.push_back({spec.name, cli::open_device(spec.name), std::nullopt});
  }
  return backends;
}

std::vector<Backend> tested_gpus() {
  std::vector<Backend> found;
  for (const Backend& backend : tested_backends()) {
    if (backend.is_gpu()) found.push_back(backend);
  }
  return found;
}

std::vector<Backend> tested_hoppers() {
  std::vector<Backend> found;
  for (const Backend& backend : tested_gpus()) {
    if (backend.device.spec.architecture == "sm_90a") found.push_back(backend);
  }
  return found;
}

std::vector<Backend> backends_that_take(const AttentionProblem& problem) {
  std::vector<Backend> found;
  for (const Backend& backend : tested_backends()) {
    if (unsupported(backend, problem).empty()) found.push_back(backend);
  }
  return found;
}

std::string unsupported(const Backend& backend, const AttentionProblem& problem) {
  if (backend.isa) {
    return isa_supports(*backend.isa, problem.dtype) ? "" : "this path has another dtype";
  }
  return query_support(problem, backend.device.spec).reason;
}

namespace {

// Room for a problem's outputs, which begin as NaN.
Result poisoned(const AttentionProblem& problem) {
  Result result;
  const int64_t elements = std::max<int64_t>(1, extents_of(problem).out);
  result.out.assign(static_cast<size_t>(elements) * size_of(problem.out_dtype), 0xff);
  result.lse.assign(static_cast<size_t>(std::max<int64_t>(1, problem.lse_elements())),
                    std::nanf(""));
  return result;
}

ForwardArgs outputs_of(Result& result, ForwardArgs args) {
  args.out = result.out.data();
  args.lse = result.lse.data();
  return args;
}

void run_path(CpuIsa isa, const AttentionProblem& problem, ForwardArgs args, int threads,
              Result& result) {
  const CpuKernelSpec spec = plan_cpu(problem, host_cpu_spec(), threads, isa);
  const size_t bytes = cpu_workspace_bytes(problem, spec);
  std::vector<unsigned char> workspace(bytes + 255, 0xff);
  const uintptr_t at = reinterpret_cast<uintptr_t>(workspace.data());
  args.workspace = reinterpret_cast<void*>((at + 255) / 256 * 256);
  args.workspace_bytes = bytes;
  check_host_args(problem, args);
  ThreadPool pool(threads);
  cpu_forward(problem, spec, args, pool);
  result.tile_m = spec.tile_m;
  result.kernel = "cpu_" + std::string(name_of(spec.isa));
}

}  // namespace

Result run_plan(const Backend& backend, const ForwardPlan& plan, const ForwardArgs& inputs) {
  Result result = poisoned(plan.problem);
  cli::Execution execution(plan, backend.device);
  execution.bind(outputs_of(result, inputs));
  execution.run();
  execution.fetch();
  result.tile_m = execution.tile_m();
  result.kernel = execution.kernel_name();
  result.exp_error = cli::exp_error_of(plan);
  return result;
}

Result run_on(const Backend& backend, const AttentionProblem& problem, const ForwardArgs& inputs,
              int threads) {
  if (!backend.isa) {
    PlanOptions options;
    options.num_threads = threads;
    return run_plan(backend, plan_forward(problem, backend.device.spec, options), inputs);
  }
  Result result = poisoned(problem);
  run_path(*backend.isa, problem, outputs_of(result, inputs), threads, result);
  result.exp_error = exp2_max_relative_error(problem.dtype);
  return result;
}

Backend with_sms(Backend backend, int num_sms) {
  backend.device.spec.num_sms = num_sms;
  return backend;
}

bool same_bits(const Result& a, const Result& b) {
  return a.out == b.out && a.lse.size() == b.lse.size() &&
         std::memcmp(a.lse.data(), b.lse.data(), a.lse.size() * sizeof(float)) == 0;
}

void expect_accurate(const AttentionProblem& problem, const ForwardArgs& inputs,
                     const Reference& reference, const Result& result) {
  const Accuracy out = check_out(problem, inputs, reference, result.out.data(), result.tile_m);
  EXPECT_TRUE(out.passed) << result.kernel << ": " << out.detail;
  const Accuracy lse = check_lse(problem, inputs, reference, result.lse.data(), result.exp_error);
  EXPECT_TRUE(lse.passed) << result.kernel << ": " << lse.detail;
}

}  // namespace fa4::internal
