#include "verify_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "accuracy_report.h"
#include "axes.h"
#include "core/error.h"
#include "execution.h"
#include "jit/hash.h"
#include "poisoned_output.h"

namespace fa4::cli {

using namespace fa4::internal;

namespace {

// Hash of all outputs one after another.
std::string digest_of(const std::vector<std::vector<unsigned char>>& outputs) {
  std::vector<unsigned char> all;
  for (const auto& output : outputs) all.insert(all.end(), output.begin(), output.end());
  return to_hex(hash128(all.data(), all.size()));
}

size_t bytes_of(int64_t count, int size) {
  return static_cast<size_t>(std::max<int64_t>(count, 1)) * static_cast<size_t>(size);
}

// One output: its memory, and what it must be compared with.
struct Output {
  OutputTensor tensor;
  PoisonedOutput memory;
  bool has_rows = true;  // with strides; else every element belongs to it
};

// Runs on poisoned outputs; `execution` is bound to `args`, whose outputs these are.
template <class Execution, class Args>
void run_poisoned(Execution& execution, const Args& args, std::vector<Output>& outputs) {
  for (Output& output : outputs) output.memory.poison();
  execution.bind(args);
  execution.run();
  execution.fetch();
}

template <class Execution, class Args>
double timed_run(Execution& execution, const Args& args, std::vector<Output>& outputs) {
  const auto start = std::chrono::steady_clock::now();
  run_poisoned(execution, args, outputs);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// What holds for any operation: nothing written elsewhere, and the same bits again.
template <class Execution, class Args>
void check_writes_and_bits(Execution& execution, const Args& args, int64_t repeat,
                           std::vector<Output>& outputs, CaseResult& result) {
  std::vector<std::vector<unsigned char>> first;
  for (const Output& output : outputs) {
    first.push_back(output.memory.copy());
    if (!result.detail.empty()) continue;
    if (output.has_rows) {
      result.detail = find_stray_write(result.problem, args, output.tensor, output.memory);
    } else if (!output.memory.guard_intact()) {
      result.detail = fmt::format("{} was written outside its bounds", output.tensor.name);
    }
  }
  result.digest = digest_of(first);
  for (int64_t run = 2; run <= repeat && result.detail.empty(); ++run) {
    run_poisoned(execution, args, outputs);
    for (size_t i = 0; i < outputs.size() && result.detail.empty(); ++i) {
      result.detail = check_bits(outputs[i].memory, first[i], outputs[i].tensor.name, run);
    }
  }
}

void run_case(const Case& c, Execution& execution, const VerifyOptions& options,
              CaseResult& result) {
  const AttentionProblem& p = result.problem;
  const CaseTensors tensors(c, options.oracle_threads);
  std::vector<Output> outputs{{{"out", p.out_dtype, p.out, false, p.heads_q, p.head_dim_v},
                               PoisonedOutput(bytes_of(extents_of(p).out, size_of(p.out_dtype)))},
                              {{"lse", DType::kF32, {}, false, 0, 0},
                               PoisonedOutput(bytes_of(p.lse_elements(), 4)),
                               false}};
  ForwardArgs args = tensors.args();
  args.out = outputs[0].memory.data();
  if (c.wants_lse) args.lse = reinterpret_cast<float*>(outputs[1].memory.data());
  result.seconds = timed_run(execution, args, outputs);

  const Reference reference = reference_forward(p, args, options.oracle_threads);
  result.out = check_out(p, args, reference, args.out, execution.tile_m());
  result.detail = result.out.detail;
  if (c.wants_lse) {
    result.lse = check_lse(p, args, reference, args.lse, exp_error_of(execution.plan()));
    if (result.detail.empty()) result.detail = result.lse.detail;
  }
  check_writes_and_bits(execution, args, options.repeat, outputs, result);
}

// out and lse, as every forward hands them over, are the oracle's.
void run_case(const Case& c, BackwardExecution& execution, const VerifyOptions& options,
              CaseResult& result) {
  const AttentionProblem& p = result.problem;
  const CaseTensors tensors(c, options.oracle_threads);
  BackwardArgs args = tensors.backward_args();
  const BackwardReference reference = reference_backward(p, args, options.oracle_threads);
  std::vector<unsigned char> out(bytes_of(extents_of(p).out, size_of(p.out_dtype)), 0xff);
  std::vector<float> lse(bytes_of(p.lse_elements(), 1), std::nanf(""));
  store_forward_results(p, args, reference, out.data(), lse.data());
  const TensorExtents extents = extents_of(p);
  const DType grad = p.grad_dtype;
  const auto memory = [&](int64_t elements) {
    return PoisonedOutput(bytes_of(elements, size_of(grad)));
  };
  std::vector<Output> outputs{
      {{"dq", grad, p.dq, false, p.heads_q, p.head_dim}, memory(extents.dq)},
      {{"dk", grad, p.dk, true, p.heads_kv, p.head_dim}, memory(extents.dk)},
      {{"dv", grad, p.dv, true, p.heads_kv, p.head_dim_v}, memory(extents.dv)},
      {{"dsink", DType::kF32, {}, false, 0, 0}, PoisonedOutput(bytes_of(p.heads_q, 4)), false}};
  args.out = out.data();
  args.lse = lse.data();
  args.dq = outputs[0].memory.data();
  args.dk = outputs[1].memory.data();
  args.dv = outputs[2].memory.data();
  if (p.has_sink) args.dsink = reinterpret_cast<float*>(outputs[3].memory.data());
  result.seconds = timed_run(execution, args, outputs);
  result.gradients = check_backward(p, args, reference, execution.tile_m());
  result.detail = result.gradients.detail();
  check_writes_and_bits(execution, args, options.repeat, outputs, result);
}

template <class Execution>
void run_on(const Case& c, const DeviceChoice& device, const VerifyOptions& options,
            CaseResult& result) {
  Execution execution(result.problem, device, options.threads);
  result.kernel = execution.kernel_name();
  const auto formal = [&] { return device.is_gpu() ? device.device->formal_findings() : 0; };
  const int64_t formal_before = formal();
  try {
    run_case(c, execution, options, result);
  } catch (const Error& error) {
    const bool emulated = device.spec.kind == DeviceKind::kEmulated;
    if (!emulated || error.code() != ErrorCode::kDriver) throw;
    result.detail = error.what();
  }
  result.formal_findings = formal() - formal_before;
  result.passed = result.detail.empty();
}

}  // namespace

CaseResult verify_case(const Case& c, const DeviceChoice& device, const VerifyOptions& options) {
  CaseResult result;
  result.problem = make_problem(c.desc);
  result.wants_lse = c.wants_lse;
  const Support support = options.backward ? query_backward_support(result.problem, device.spec)
                                           : query_support(result.problem, device.spec);
  if (!support.supported) {
    result.skipped = true;
    result.skip_reason = support.reason;
  } else if (options.backward) {
    run_on<BackwardExecution>(c, device, options, result);
  } else {
    run_on<Execution>(c, device, options, result);
  }
  return result;
}

}  // namespace fa4::cli
