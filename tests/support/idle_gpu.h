// What counting_driver() passes on to: a GPU that accepts everything and runs nothing.
#pragma once

#include "device/cuda/driver_api.h"

namespace fa4::internal {

inline const CuStream kNoStream = reinterpret_cast<CuStream>(~uintptr_t{0});
// The stream that is being captured now.
inline CuStream captured_stream = kNoStream;

// Of Hopper (9) or Blackwell (10), with 132 SMs.
template <int kComputeMajor>
DriverApi idle_gpu() {
  DriverApi api;
  api.device_name = [](char* name, int, CuDevice) {
    name[0] = '\0';
    return kCuSuccess;
  };
  api.device_attribute = [](int* value, int attribute, CuDevice) {
    *value = attribute == kCuComputeMajor ? kComputeMajor : attribute == kCuNumSms ? 132 : 0;
    if (attribute == kCuSmemPerBlockOptin) *value = 232448;
    return kCuSuccess;
  };
  api.context_current = [](CuContext* context) {
    *context = nullptr;
    return kCuSuccess;
  };
  api.stream_is_capturing = [](CuStream stream, int* status) {
    *status = stream == captured_stream ? 1 : 0;
    return kCuSuccess;
  };
  return api;
}

}  // namespace fa4::internal
