// Everything here that can run a forward: each CPU path by name, each CUDA device.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "devices.h"
#include "plan/forward_plan.h"
#include "verify/accuracy.h"
#include "verify/cases.h"

namespace fa4::internal {

struct Backend {
  std::string name;
  cli::DeviceChoice device;
  std::optional<CpuIsa> isa;  // CPU
  bool is_gpu() const { return device.is_gpu(); }
};

// The paths that this machine has (and the scalar model of AMX), then its CUDA devices.
std::vector<Backend> all_backends();

// Those that this program's tests run on, by its own choice; empty where an emulated GPU lacks the
// compiler that it needs.
const std::vector<Backend>& tested_backends();

// Of these the GPUs, emulated ones too; and of those the Hopper ones.
std::vector<Backend> tested_gpus();
std::vector<Backend> tested_hoppers();

// Skips where there are none.
class BackendTest : public testing::Test {
 protected:
  void SetUp() override {
    if (tested_backends().empty()) GTEST_SKIP() << "no NVRTC for an emulated GPU";
  }
};

// Why `backend` does not run `problem`; empty when it does.
std::string unsupported(const Backend& backend, const AttentionProblem& problem);

// The tested ones that run it.
std::vector<Backend> backends_that_take(const AttentionProblem& problem);

struct Result {
  std::vector<unsigned char> out;  // with the problem's strides
  std::vector<float> lse;
  int tile_m = 0;
  std::string kernel;
  double exp_error = 0;  // of the exponential in use
};

// Outputs begin as NaN. `threads` counts on the CPU.
Result run_on(const Backend& backend, const AttentionProblem& problem, const ForwardArgs& inputs,
              int threads = 2);
// The same by a plan that was made with options.
Result run_plan(const Backend& backend, const ForwardPlan& plan, const ForwardArgs& inputs);
// Plans are those of a GPU of so many SMs.
Backend with_sms(Backend backend, int num_sms);

// Of out and lse.
bool same_bits(const Result& a, const Result& b);
// Out and lse are as near to the reference as the contract says.
void expect_accurate(const AttentionProblem& problem, const ForwardArgs& inputs,
                     const Reference& reference, const Result& result);

}  // namespace fa4::internal
