// Keys and values of bytes on a GPU: which variant of the kernel for them a problem runs on.
#pragma once

#include <span>
#include <vector>

#include "core/device_spec.h"
#include "plan/forward_plan.h"

namespace fa4::internal {

struct E4m3TuningRow {
  int head_dim;  // of the kernel; problems round up to the first row that holds them
  int head_dim_v;
  int row_warps;
  int key_warps;
  int turns;
  int q_stages;
  int kv_stages;
  int page_row_stages = 0;  // kv_stages where threads copy rows out of pages; 0: the same
  const char* reason;
};

std::span<const E4m3TuningRow> e4m3_tuning_rows();
mma::FwdTraits traits_of(const E4m3TuningRow& row, Element element, bool softcap);

// Rows of a tile: 16 where those of a key head are no more, else 64, or 32 at head_dim 256.
int e4m3_tile_rows(const AttentionProblem& problem);

// For a problem that query_gpu_support takes: every head dimension has a kernel.
E4m3ForwardSpec plan_e4m3(const AttentionProblem& problem, const DeviceSpec& device);

void explain_e4m3(const ForwardPlan& plan, std::vector<PlanStep>* steps);

}  // namespace fa4::internal
