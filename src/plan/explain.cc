#include "plan/explain.h"

#include <fmt/format.h>

namespace fa4::internal {
namespace {

std::string describe(const AttentionProblem& p) {
  static constexpr const char* kLayouts[] = {"dense", "packed", "paged"};
  const std::string stored = p.is_quantised() ? fmt::format("{}, ", name_of(p.kv_dtype)) : "";
  return fmt::format("{} q {}x{}x{}x{} ({}), k {}x{}x{} ({}{}), v head_dim {}", name_of(p.dtype),
                     p.batch, p.seqlen_q, p.heads_q, p.head_dim,
                     kLayouts[static_cast<int>(p.layout_q)], p.seqlen_k, p.heads_kv, p.head_dim,
                     stored, kLayouts[static_cast<int>(p.layout_kv)], p.head_dim_v);
}

std::string describe(const MaskSpec& mask) {
  if (mask.is_full()) return "full";
  if (mask == MaskSpec{-1, 0}) return "causal";
  const auto side = [](bool is_bounded, int64_t size) {
    return is_bounded && size < 0 ? fmt::format("{} as a bound", size) : fmt::format("{}", size);
  };
  return fmt::format("window ({}, {})", side(mask.is_bounded_left(), mask.window_left),
                     side(mask.is_bounded_right(), mask.window_right));
}

// "threads of 1024 bytes, heads of 512 bytes: "; nothing when there are no parts.
std::string describe(const WorkspaceLayout& workspace) {
  std::string text;
  for (const WorkspacePart& part : workspace.parts()) {
    text += fmt::format("{}{} of {} bytes{}", text.empty() ? "" : ", ", part.name, part.bytes,
                        part.zeroed ? " (zeroed before the first launch)" : "");
  }
  return text.empty() ? text : text + ": ";
}

}  // namespace

std::string line_of(const PlanStep& step) {
  return fmt::format("{}: {} ({})", step.what, step.choice, step.why);
}

void explain_problem(const AttentionProblem& p, const DeviceSpec& device,
                     std::vector<PlanStep>* steps) {
  steps->push_back({"problem", describe(p), "validated; defaults filled in"});
  steps->push_back(
      {"mask", describe(p.mask),
       fmt::format("{} of {} (query, key) pairs of the longest sequence are visible",
                   visible_pairs(p.seqlen_q, p.seqlen_k, p.mask), p.seqlen_q * p.seqlen_k)});
  steps->push_back(
      {"device", device.name, fmt::format("{}, {}", device.model, device.architecture)});
}

void explain_launches(const std::vector<KernelStep>& launches, const WorkspaceLayout& workspace,
                      std::vector<PlanStep>* steps) {
  for (size_t i = 0; i < launches.size(); ++i) {
    const KernelStep& step = launches[i];
    steps->push_back(
        {fmt::format("launch {} of {}", i + 1, launches.size()),
         fmt::format("{} x {} threads in clusters of {}", step.grid, step.threads, step.cluster),
         fmt::format("{}, {} bytes of shared memory", step.source.display_name, step.smem_bytes)});
  }
  steps->push_back({"workspace", fmt::format("{} bytes", workspace.bytes()),
                    describe(workspace) +
                        "the caller's, 256-byte aligned, contents undefined before and after"});
}

}  // namespace fa4::internal
