// The part of the CUDA driver API that fa4 uses, declared here and opened at run time: no CUDA
// header is needed. Values and signatures as in the CUDA driver API manual, CUDA 12 and 13.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace fa4::internal {

using CuResult = int;
using CuDevice = int;
using CuContext = struct CuContextTag*;
using CuModule = struct CuModuleTag*;
using CuFunction = struct CuFunctionTag*;
using CuEvent = struct CuEventTag*;
using CuStream = void*;
using CuPointer = unsigned long long;

constexpr CuResult kCuSuccess = 0;
constexpr CuResult kCuOutOfMemory = 2;
constexpr CuResult kCuNoDevice = 100;  // of cuInit where no GPU is there, or none is visible
constexpr CuResult kCuStreamCaptureFirst = 900;  // CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
constexpr CuResult kCuStreamCaptureImplicit = 906;
constexpr CuResult kCuStreamCaptureLast = 908;  // CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD

enum CuDeviceAttribute : int {
  kCuNumSms = 16,
  kCuMemoryClockKHz = 36,
  kCuMemoryBusBits = 37,
  kCuL2Bytes = 38,
  kCuComputeMajor = 75,
  kCuComputeMinor = 76,
  kCuSmemPerBlockOptin = 97,
};
enum CuFunctionAttribute : int { kCuMaxDynamicSmem = 8 };
enum CuJitOption : int { kCuJitErrorLog = 5, kCuJitErrorLogBytes = 6 };
enum CuTensorMapType : int { kCuMapF16 = 6, kCuMapF32 = 7, kCuMapBF16 = 9 };
constexpr int kCuLaunchAttributeCluster = 4;
constexpr int kCuLaunchAttributeProgrammaticSerialization = 6;
constexpr int kCuMapL2Promotion128B = 2;
constexpr unsigned kCuStreamNonBlocking = 1;
constexpr int kCuHighestPriority = -1000;  // the driver takes the highest that the device has
constexpr unsigned kCuEventDisableTiming = 2;

struct CuLaunchAttribute {
  int id;
  char padding[4];
  union {
    struct {
      uint32_t x, y, z;
    } cluster;
    int programmatic_serialization;
    char bytes[64];
  } value;
};
static_assert(sizeof(CuLaunchAttribute) == 72);

struct CuLaunchConfig {
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;
  CuStream stream;
  CuLaunchAttribute* attributes;
  uint32_t num_attributes;
};
static_assert(sizeof(CuLaunchConfig) == 56);

// One side of a copy of rows.
struct CuCopySide {
  size_t x, y;
  int memory;
  char padding[4];
  const void* host;
  CuPointer device;
  void* array;
  size_t pitch;
};
constexpr int kCuMemoryOfDevice = 2;

struct CuCopy2d {
  CuCopySide from, to;
  size_t width, height;
};
static_assert(sizeof(CuCopy2d) == 128);

// X(member, symbol in libcuda, parameters): all return a CuResult.
#define FA4_DRIVER_FUNCTIONS(X)                                                                  \
  X(init, cuInit, (unsigned flags))                                                              \
  X(error_name, cuGetErrorName, (CuResult result, const char** name))                            \
  X(error_string, cuGetErrorString, (CuResult result, const char** text))                        \
  X(device_count, cuDeviceGetCount, (int* count))                                                \
  X(device_get, cuDeviceGet, (CuDevice * device, int ordinal))                                   \
  X(device_name, cuDeviceGetName, (char* name, int bytes, CuDevice device))                      \
  X(device_attribute, cuDeviceGetAttribute, (int* value, int attribute, CuDevice device))        \
  X(primary_retain, cuDevicePrimaryCtxRetain, (CuContext * context, CuDevice device))            \
  X(context_current, cuCtxGetCurrent, (CuContext * context))                                     \
  X(context_push, cuCtxPushCurrent_v2, (CuContext context))                                      \
  X(context_pop, cuCtxPopCurrent_v2, (CuContext * context))                                      \
  X(module_load, cuModuleLoadDataEx,                                                             \
    (CuModule * module, const void* image, unsigned num_options, int* options, void** values))   \
  X(module_unload, cuModuleUnload, (CuModule module))                                            \
  X(module_function, cuModuleGetFunction,                                                        \
    (CuFunction * function, CuModule module, const char* name))                                  \
  X(function_set_attribute, cuFuncSetAttribute, (CuFunction function, int attribute, int value)) \
  X(launch, cuLaunchKernelEx,                                                                    \
    (const CuLaunchConfig* config, CuFunction function, void** params, void** extra))            \
  X(tensor_map_encode, cuTensorMapEncodeTiled,                                                   \
    (void* map, int type, uint32_t rank, void* base, const uint64_t* dims,                       \
     const uint64_t* strides_bytes, const uint32_t* box, const uint32_t* element_strides,        \
     int interleave, int swizzle, int l2_promotion, int oob_fill))                               \
  X(memory_allocate, cuMemAlloc_v2, (CuPointer * pointer, size_t bytes))                         \
  X(memory_free, cuMemFree_v2, (CuPointer pointer))                                              \
  X(copy_to_device, cuMemcpyHtoD_v2, (CuPointer to, const void* from, size_t bytes))             \
  X(copy_to_host, cuMemcpyDtoH_v2, (void* to, CuPointer from, size_t bytes))                     \
  X(memory_set, cuMemsetD8_v2, (CuPointer to, unsigned char value, size_t bytes))                \
  X(memory_set_async, cuMemsetD32Async,                                                          \
    (CuPointer to, unsigned value, size_t words, CuStream stream))                               \
  X(copy_async, cuMemcpyDtoDAsync_v2,                                                            \
    (CuPointer to, CuPointer from, size_t bytes, CuStream stream))                               \
  X(copy_2d_async, cuMemcpy2DAsync_v2, (const CuCopy2d* copy, CuStream stream))                  \
  X(stream_create, cuStreamCreate, (CuStream * stream, unsigned flags))                          \
  X(stream_create_with_priority, cuStreamCreateWithPriority,                                     \
    (CuStream * stream, unsigned flags, int priority))                                           \
  X(stream_destroy, cuStreamDestroy_v2, (CuStream stream))                                       \
  X(stream_synchronize, cuStreamSynchronize, (CuStream stream))                                  \
  X(stream_wait_event, cuStreamWaitEvent, (CuStream stream, CuEvent event, unsigned flags))      \
  X(stream_is_capturing, cuStreamIsCapturing, (CuStream stream, int* status))                    \
  X(event_create, cuEventCreate, (CuEvent * event, unsigned flags))                              \
  X(event_destroy, cuEventDestroy_v2, (CuEvent event))                                           \
  X(event_record, cuEventRecord, (CuEvent event, CuStream stream))                               \
  X(event_synchronize, cuEventSynchronize, (CuEvent event))                                      \
  X(event_elapsed, cuEventElapsedTime, (float* milliseconds, CuEvent start, CuEvent end))

// A table, so that a test can stand between fa4 and the driver.
struct DriverApi {
#define FA4_MEMBER(member, symbol, parameters) CuResult(*member) parameters = nullptr;
  FA4_DRIVER_FUNCTIONS(FA4_MEMBER)
#undef FA4_MEMBER
};

// The process's driver, opened and initialised at the first call; null when there is none, and then
// `driver_problem()` says why.
const DriverApi* driver_api();
const std::string& driver_problem();

// Opens `path` ("" for libcuda.so.1) without initialising it. On failure returns false and fills
// `problem`.
bool open_driver(const std::string& path, DriverApi& api, std::string& problem);
// Initialises it, and answers likewise.
bool start_driver(const DriverApi& api, std::string& problem);

}  // namespace fa4::internal
