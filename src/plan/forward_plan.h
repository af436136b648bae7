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
#include "plan/explain.h"
#include "plan/kernel_spec.h"
#include "plan/steps.h"
#include "problem/attention_problem.h"

namespace fa4::internal {

struct PlanOptions {
  int num_threads = 0;  // CPU: 0: as many as the device has
  // GPU: where blocks find their tiles, if the kernel can for this problem; for tests, and where
  // other kernels run beside it.
  std::optional<TileSource> tile_source = {};
};

// The kernel that does the work, in its variant.
using ForwardSpec = std::variant<CpuKernelSpec, Sm90ForwardSpec, Sm100ForwardSpec, E4m3ForwardSpec>;

// The sequences of a packed call that have at most so many queries, and the kernel of their launch,
// which comes first. The main kernel has the others then, and runs beside it.
struct FewQueries {
  int64_t most;
  ForwardSpec spec;
};

struct ForwardPlan {
  AttentionProblem problem;
  DeviceSpec device;
  ForwardSpec main;
  std::optional<FewQueries> few;
  // That a GPU launches, the main kernel first or behind that of few queries; none on the CPU.
  std::vector<KernelStep> steps;
  WorkspaceLayout workspace;
};

// Whether `device` runs `problem`, and the reason when it does not.
Support query_support(const AttentionProblem& problem, const DeviceSpec& device);

// Throws Error{kNotSupported} with query_support's reason.
ForwardPlan plan_forward(const AttentionProblem& problem, const DeviceSpec& device,
                         const PlanOptions& options = {});

// The plan that runs `problem` as `main` says, beside `few`: steps and workspace follow from them.
ForwardPlan plan_with(const AttentionProblem& problem, const DeviceSpec& device,
                      const ForwardSpec& main, const std::optional<FewQueries>& few = {});

// How a kernel of a GPU cuts the problem into tiles, whichever kernel it is.
struct GpuTiling {
  TileSchedule schedule;
  LaunchShape shape;
  KeyParts parts;
};
GpuTiling tiling_of(const ForwardSpec& spec);  // not of a CPU's
// Of the main kernel; nullopt for a CPU plan.
std::optional<GpuTiling> gpu_tiling(const ForwardPlan& plan);
// Of the launch of few queries; nullopt where there is none.
std::optional<GpuTiling> few_tiling(const ForwardPlan& plan);

// Its name to users: "cpu_avx512_bf16", "fwd_sm90_bf16_d128_m128n128".
std::string kernel_name(const ForwardPlan& plan);

// The chain of decisions, for `fa4 plan`.
std::vector<PlanStep> explain(const ForwardPlan& plan);

}  // namespace fa4::internal
