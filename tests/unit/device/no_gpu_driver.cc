// A libcuda.so.1 that finds no GPU, as the true one where CUDA_VISIBLE_DEVICES is empty.
#include "device/cuda/driver_api.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

#define FA4_NO_GPU(member, symbol, parameters)                                                  \
  extern "C" __attribute__((visibility("default"))) fa4::internal::CuResult symbol parameters { \
    return fa4::internal::kCuNoDevice;                                                          \
  }

namespace fa4::internal {
FA4_DRIVER_FUNCTIONS(FA4_NO_GPU)
}
