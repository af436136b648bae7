// How a forward problem will be run on a device: a pure function of values, made in microseconds.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/device_spec.h"
#include "core/error.h"
#include "plan/cpu_kernel_spec.h"
#include "plan/kernel_spec.h"
#include "problem/attention_problem.h"

namespace fa4::internal {

struct PlanOptions {
  int num_threads = 0;  // CPU: 0: as many as the device has
  // GPU: where blocks find their tiles, if the kernel can for this problem; for tests.
  std::optional<TileSource> tile_source = {};
};

struct ForwardPlan {
  AttentionProblem problem;
  DeviceSpec device;
  std::variant<CpuKernelSpec, Sm90ForwardSpec, Sm100ForwardSpec> main;
  size_t workspace_bytes = 0;  // a multiple of 256; 0: none is needed
};

struct Support {
  bool supported = true;
  std::string reason;  // when not: argument, value, what is accepted
};

// Whether `device` runs `problem`, and the reason when it does not.
Support query_support(const AttentionProblem& problem, const DeviceSpec& device);

// Throws Error{kNotSupported} with query_support's reason.
ForwardPlan plan_forward(const AttentionProblem& problem, const DeviceSpec& device,
                         const PlanOptions& options = {});

// What a GPU plan launches, whichever kernel it is.
struct GpuLaunch {
  KernelSource source;
  TileSchedule schedule;
  LaunchShape shape;
};
// nullopt for a CPU plan.
std::optional<GpuLaunch> gpu_launch(const ForwardPlan& plan);

// The chain of decisions, for `fa4 plan`.
struct PlanStep {
  std::string what;
  std::string choice;
  std::string why;
};
std::vector<PlanStep> explain(const ForwardPlan& plan);

}  // namespace fa4::internal
