#include "plan/forward_plan.h"

#include <fmt/format.h>

#include "core/rounding.h"
#include "kernels/output/traits.h"
#include "plan/cpu_kernel_spec.h"
#include "plan/e4m3_plan.h"
#include "plan/few_queries.h"
#include "plan/gpu_plan.h"
#include "plan/key_parts.h"
#include "plan/sm100_plan.h"
#include "plan/sm100_tuning.h"
#include "plan/sm90_plan.h"

namespace fa4::internal {
namespace {

PlanStep explain_splits(const AttentionProblem& p, const CpuKernelSpec& spec) {
  if (spec.split_keys == 0) {
    return {"splits", "none",
            p.num_splits == 1 ? "num_splits is 1" : "tiles of rows are work for all threads"};
  }
  const char* why = p.split_keys > 0   ? "split_keys says so"
                    : p.num_splits > 1 ? "num_splits of the longest sequence"
                                       : "few rows: parts of the keys are work for all threads";
  return {"splits", fmt::format("{} keys", spec.split_keys),
          fmt::format("{}; {}", why,
                      spec.parts_are_tasks ? "each part is a task, whose sums are put together "
                                             "in the parts' order"
                                           : "a task takes a tile's parts one after another")};
}

void explain_cpu(const ForwardPlan& plan, std::vector<PlanStep>* steps) {
  const auto& spec = std::get<CpuKernelSpec>(plan.main);
  steps->push_back({"kernel", fmt::format("cpu {}", name_of(spec.isa)),
                    fmt::format("the best path for {} that this device has and FA4_CPU_ISA allows",
                                name_of(plan.problem.dtype))});
  steps->push_back({"tile", fmt::format("{} rows x {} keys", spec.tile_m, spec.tile_n),
                    spec.direct ? "few rows: keys and values are read where they lie, not packed"
                                : "scores and packed operands stay in the first two caches"});
  if (plan.problem.is_quantised()) {
    steps->push_back({"bytes of k and v", spec.looks_up_bytes ? "looked up" : "made numbers",
                      "e4m3 is exact in the type that is multiplied; scores and probabilities take "
                      "the descales"});
  }
  steps->push_back(explain_splits(plan.problem, spec));
  steps->push_back(
      {"threads", fmt::format("{}", spec.num_threads), "the result's bits do not depend on it"});
}

// Not of a CPU's.
KernelSource source_of(const ForwardSpec& spec) {
  if (const auto* sm90 = std::get_if<Sm90ForwardSpec>(&spec)) return sm90->source();
  if (const auto* sm100 = std::get_if<Sm100ForwardSpec>(&spec)) return sm100->source();
  return std::get<E4m3ForwardSpec>(spec).source();
}

void add_forward_step(const ForwardSpec& spec, ForwardPlan* plan) {
  const auto [schedule, shape, parts] = tiling_of(spec);
  plan->steps.push_back({.source = source_of(spec),
                         .params = KernelParams::kForward,
                         .grid = schedule.grid,
                         .threads = shape.threads,
                         .cluster = shape.cluster,
                         .smem_bytes = shape.smem_bytes});
}

// What puts the parts together that a step leaves in the workspace: of so many rows of lse, and of
// as many as all sequences may have.
void add_combine_step(const GpuTiling& of, int64_t lse_rows, int64_t rows, ForwardPlan* plan) {
  const int most = of.parts.most, columns = of.shape.columns_v;
  const int64_t parts = lse_rows * most;
  plan->workspace.add(kPartSums, parts * columns * int64_t{sizeof(float)});
  plan->workspace.add(kPartStats, parts * kPartStatsBytes);
  plan->steps.push_back(
      {.source = combine_source(element_of(plan->problem), columns),
       .params = KernelParams::kForward,
       .grid = static_cast<int>(
           ceil_div(std::max<int64_t>(1, rows), combine_rows(most, static_cast<int>(rows)))),
       .threads = kCombineThreads});
}

void add_gpu_steps(ForwardPlan* plan) {
  const GpuTiling main = tiling_of(plan->main);
  const auto counts = [](const GpuTiling& of) {
    return of.schedule.source == TileSource::kCounter;
  };
  const std::optional<GpuTiling> few = few_tiling(*plan);
  const bool few_count = few && counts(*few);
  if (counts(main) || few_count) {
    plan->workspace.add(kTileCounter, (few_count ? 2 : 1) * sizeof(uint32_t), true);
  }
  if (few) add_forward_step(plan->few->spec, plan);
  add_forward_step(plan->main, plan);
  // The steps' order: the second of two launches begins while the first runs, what puts parts
  // together when both have ended.
  const AttentionProblem& p = plan->problem;
  const auto leaves_parts = [](const GpuTiling& of) {
    return of.parts.are_cut() && of.parts.cluster == 1;
  };
  if (leaves_parts(main)) {
    add_combine_step(main, p.lse_elements(), p.batch * p.seqlen_q * p.heads_q, plan);
  } else if (few && leaves_parts(*few)) {
    const int64_t rows = p.batch * plan->few->most * p.heads_q;
    add_combine_step(*few, rows, rows, plan);
  }
}

}  // namespace

Support query_support(const AttentionProblem& problem, const DeviceSpec& device) {
  if (device.kind == DeviceKind::kCpu) return {};
  if (!is_sm100(device.architecture) && device.architecture != "sm_90a") {
    return {false, fmt::format("architecture {} of device {}; accepted in this version: sm_90a, "
                               "sm_100a, sm_103a",
                               device.architecture, device.name)};
  }
  if (const Support support = query_gpu_support(problem); !support.supported) return support;
  return query_key_parts(problem, device);
}

ForwardPlan plan_forward(const AttentionProblem& problem, const DeviceSpec& whole_device,
                         const PlanOptions& options) {
  const DeviceSpec device = without_margin(whole_device, problem);
  const Support support = query_support(problem, device);
  if (!support.supported) throw Error(ErrorCode::kNotSupported, support.reason);
  if (device.kind == DeviceKind::kCpu) {
    return plan_with(problem, device, plan_cpu(problem, device, options.num_threads));
  }
  std::optional<FewQueries> few;
  if (!options.tile_source) few = choose_few_queries(problem, device);
  const AttentionProblem main = few ? without_few_queries(problem, *few) : problem;
  if (problem.is_quantised() && !takes_bytes(problem, device)) {
    return plan_with(problem, device, plan_e4m3(main, device), few);
  }
  if (is_sm100(device.architecture)) {
    return plan_with(problem, device, plan_sm100(main, device, options.tile_source), few);
  }
  return plan_with(problem, device, plan_sm90(main, device, options.tile_source), few);
}

ForwardPlan plan_with(const AttentionProblem& problem, const DeviceSpec& device,
                      const ForwardSpec& main, const std::optional<FewQueries>& few) {
  ForwardPlan plan{
      .problem = problem, .device = device, .main = main, .few = few, .steps = {}, .workspace = {}};
  if (const auto* cpu = std::get_if<CpuKernelSpec>(&main)) {
    const CpuScratch scratch = cpu_scratch(problem, *cpu);
    if (scratch.threads_bytes > 0) plan.workspace.add("threads", scratch.threads_bytes);
    if (scratch.heads_bytes > 0) plan.workspace.add("heads", scratch.heads_bytes);
    if (scratch.parts_bytes > 0) plan.workspace.add("parts", scratch.parts_bytes);
  } else {
    add_gpu_steps(&plan);
  }
  log_decisions(plan);
  return plan;
}

GpuTiling tiling_of(const ForwardSpec& spec) {
  if (const auto* sm90 = std::get_if<Sm90ForwardSpec>(&spec)) {
    return {sm90->schedule, sm90->shape(), sm90->parts};
  }
  if (const auto* sm100 = std::get_if<Sm100ForwardSpec>(&spec)) {
    return {sm100->schedule, sm100->shape(), sm100->parts};
  }
  const auto& e4m3 = std::get<E4m3ForwardSpec>(spec);
  return {e4m3.schedule, e4m3.shape(), e4m3.parts};
}

std::optional<GpuTiling> gpu_tiling(const ForwardPlan& plan) {
  if (std::holds_alternative<CpuKernelSpec>(plan.main)) return std::nullopt;
  return tiling_of(plan.main);
}

std::optional<GpuTiling> few_tiling(const ForwardPlan& plan) {
  if (!plan.few) return std::nullopt;
  return tiling_of(plan.few->spec);
}

std::string kernel_name(const ForwardPlan& plan) {
  if (const auto* cpu = std::get_if<CpuKernelSpec>(&plan.main)) {
    return fmt::format("cpu_{}", name_of(cpu->isa));
  }
  return source_of(plan.main).display_name;
}

std::vector<PlanStep> explain(const ForwardPlan& plan) {
  std::vector<PlanStep> steps;
  explain_problem(plan.problem, plan.device, &steps);
  if (std::holds_alternative<CpuKernelSpec>(plan.main)) {
    explain_cpu(plan, &steps);
  } else if (std::holds_alternative<Sm100ForwardSpec>(plan.main)) {
    explain_sm100(plan, &steps);
  } else if (std::holds_alternative<E4m3ForwardSpec>(plan.main)) {
    explain_e4m3(plan, &steps);
  } else {
    explain_sm90(plan, &steps);
  }
  if (plan.few) explain_few_queries(*plan.few, &steps);
  explain_launches(plan.steps, plan.workspace, &steps);
  return steps;
}

}  // namespace fa4::internal
