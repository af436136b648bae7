// The Hopper backward kernel's shapes: rows of data, each with its reason.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/sm90/backward/traits.h"

namespace fa4::internal {

struct Sm90BackwardRow {
  int head_dim;  // of the kernel; problems round up to the first row that holds them
  int head_dim_v;
  int q_rows;  // of a step
  int k_stages;
  int stages;
  int dout_stages;
  int dv_stages;
  int ds_stages;
  int dq_stages;
  int finish_stages;
  bool split;
  bool takes_softcap;  // else the next row that holds the head dimensions does
  const char* reason;
};

std::span<const Sm90BackwardRow> sm90_backward_rows();

// The first row that takes a problem, or nullptr when none holds its head dimensions.
const Sm90BackwardRow* find_sm90_backward(int64_t head_dim, int64_t head_dim_v, bool softcap);

sm90::BwdTraits traits_of(const Sm90BackwardRow& row, Element element, bool softcap);

}  // namespace fa4::internal
