// The 128 bytes that describe a tensor to TMA (cuTensorMapEncodeTiled writes them). Host and
// device.
#pragma once

#include "kernels/base/integers.h"

namespace fa4 {

struct alignas(64) TensorMap {
  uint64_t opaque[16];
};

}  // namespace fa4
