// The one parameter of the kernel that cuts packed sequences (sequences/cut.cuh). Host and device.
#pragma once

#include "kernels/base/integers.h"

namespace fa4 {

inline constexpr int kCutThreads = 256;  // of a CTA, one for each number

struct CutParams {
  const int32_t* cu_seqlens_q;  // (count), of the whole
  const int32_t* cu_seqlens_k;
  int32_t* shard_q;  // (count), of rows [first_query, end_query) alone
  int32_t* shard_k;  // of rows [first_key, end_key)
  int32_t count;
  int32_t first_query, end_query;
  int32_t first_key, end_key;
};

}  // namespace fa4
