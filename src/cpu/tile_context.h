// What all tiles of one call share.
#pragma once

#include <cmath>

#include "plan/cpu_kernel_spec.h"
#include "plan/cpu_tuning.h"
#include "problem/forward_args.h"

namespace fa4::internal {

struct TileContext {
  TileContext(const AttentionProblem& given, const CpuKernelSpec& given_spec,
              const ForwardArgs& given_args)
      : problem(given),
        spec(given_spec),
        args(given_args),
        scratch(cpu_scratch(given, given_spec)),
        packing(cpu_packing(given_spec.isa)),
        workspace(static_cast<char*>(given_args.workspace)),
        q_sign(given.scale > 0   ? 1.0f
               : given.scale < 0 ? -1.0f
                                 : 0.0f),
        abs_scale(given.scale == 0 ? 1.0f : std::fabs(given.scale)) {}

  // `index`: of the heads that a task takes together.
  char* thread_scratch(int64_t slot, int index = 0) const {
    return workspace +
           static_cast<size_t>(slot * spec.heads_together + index) * scratch.bytes_per_thread;
  }
  char* shared_head(int64_t index_in_wave) const {
    return workspace + static_cast<size_t>(spec.num_threads) * scratch.bytes_per_thread +
           static_cast<size_t>(index_in_wave) * scratch.bytes_per_head;
  }

  // Whether an execution brings any.
  bool has_descales() const { return args.k_descale != nullptr || args.v_descale != nullptr; }

  // The sums of a part of a head's keys, tile_m rows.
  float* part_sums(int64_t head, int64_t part) const {
    return reinterpret_cast<float*>(workspace + scratch.threads_bytes + scratch.heads_bytes) +
           (head * scratch.num_parts + part) * spec.tile_m * scratch.sums_stride;
  }

  const AttentionProblem& problem;
  const CpuKernelSpec& spec;
  const ForwardArgs& args;
  CpuScratch scratch;
  CpuPacking packing;
  char* workspace;
  float q_sign;     // 1; -1 for a negative scale, 0 for a scale of 0
  float abs_scale;  // what is left of the scale: > 0
};

}  // namespace fa4::internal
