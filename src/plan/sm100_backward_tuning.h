// The Blackwell backward kernel's shapes: rows of data, each with its reason.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/sm100/backward/traits.h"

namespace fa4::internal {

struct Sm100BackwardRow {
  int head_dim;  // of the kernel; problems round up to the first row that holds them
  int head_dim_v;
  int64_t min_keys;  // of the longest sequence
  int cta_group;
  int q_stages;
  int dout_stages;
  int sum_stages;
  bool apart;
  const char* reason;
  // Works for dv alone, and stages of theirs; 0: none.
  int dv_stages = 0;
  // With which no variant of the row spills.
  int reduce_registers = 152;
  int compute_registers = 136;
};

std::span<const Sm100BackwardRow> sm100_backward_rows();

// The first row that takes a problem, or nullptr when none holds its head dimensions.
const Sm100BackwardRow* find_sm100_backward(int64_t head_dim, int64_t head_dim_v, int64_t keys);

sm100::BwdTraits traits_of(const Sm100BackwardRow& row, Element element, bool softcap);

}  // namespace fa4::internal
