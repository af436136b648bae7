// The shapes of what the CUDA 13 runtime and driver take and give, as far as they are used here
// (CUDA Runtime API and Driver API manuals, data structures). Checked by static_assert.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ptxemu::exec {

struct Dim3 {
  uint32_t x, y, z;
};
inline std::array<uint32_t, 3> shape_of(const Dim3& d) { return {d.x, d.y, d.z}; }

struct LaunchAttribute {
  uint32_t id, padding;
  union {
    Dim3 cluster;
    int32_t programmatic;  // kProgrammaticSerialization
    char bytes[64];
  } value;
};
static_assert(sizeof(LaunchAttribute) == 72);
constexpr uint32_t kClusterDimension = 4;
constexpr uint32_t kProgrammaticSerialization = 6;

struct RuntimeLaunch {  // cudaLaunchConfig_t
  Dim3 grid, block;
  uint64_t shared_bytes;
  void* stream;
  const LaunchAttribute* attributes;
  uint32_t num_attributes;
};
static_assert(sizeof(RuntimeLaunch) == 56);

struct DriverLaunch {  // CUlaunchConfig
  Dim3 grid, block;
  uint32_t shared_bytes, padding;
  void* stream;
  const LaunchAttribute* attributes;
  uint32_t num_attributes;
};
static_assert(sizeof(DriverLaunch) == 56);

struct FunctionAttributes {  // cudaFuncAttributes
  uint64_t shared_bytes, const_bytes, local_bytes;
  int32_t max_threads, registers, ptx_version, binary_version, cache_mode, max_dynamic_shared;
  int32_t carveout, cluster_must_be_set, cluster[3], scheduling, non_portable, reserved[16];
};
static_assert(offsetof(FunctionAttributes, max_dynamic_shared) == 44);
static_assert(sizeof(FunctionAttributes) == 144);

struct PointerAttributes {  // cudaPointerAttributes
  int32_t type, device;
  void *device_pointer, *host_pointer;
  int64_t reserved[8];
};
static_assert(sizeof(PointerAttributes) == 88);

struct Extent {  // cudaExtent, and cudaPos in the same order
  size_t width, height, depth;
};
struct PitchedPointer {  // cudaPitchedPtr
  void* pointer;
  size_t pitch, width, height;
};
struct Copy3D {  // cudaMemcpy3DParms
  void* from_array;
  Extent from_at;
  PitchedPointer from;
  void* to_array;
  Extent to_at;
  PitchedPointer to;
  Extent extent;
  int32_t kind;
};
static_assert(sizeof(Copy3D) == 160);

struct DriverPlace {  // one side of CUDA_MEMCPY3D
  size_t x, y, z, level;
  int32_t type, padding;
  void* host;
  uint64_t device;
  void *array, *reserved;
  size_t pitch, height;
};
struct DriverCopy3D {
  DriverPlace from, to;
  size_t width, height, depth;
};
static_assert(sizeof(DriverCopy3D) == 200);
struct DriverPlace2D {  // one side of CUDA_MEMCPY2D
  size_t x, y;
  int32_t type, padding;
  void* host;
  uint64_t device;
  void* array;
  size_t pitch;
};
struct DriverCopy2D {
  DriverPlace2D from, to;
  size_t width, height;
};
static_assert(sizeof(DriverCopy2D) == 128);

struct MemoryLocation {  // cudaMemLocation
  int32_t type, id;
};

struct KernelNode {  // cudaKernelNodeParams
  const void* function;
  Dim3 grid, block;
  uint32_t shared_bytes;
  void **arguments, **extra;
};
static_assert(sizeof(KernelNode) == 56);
struct MemsetNode {  // cudaMemsetParams
  void* to;
  size_t pitch;
  uint32_t value, element_bytes;
  size_t width, height;
};
static_assert(sizeof(MemsetNode) == 40);
struct HostNode {  // cudaHostNodeParams
  void (*function)(void*);
  void* data;
};
struct GraphEdge {  // cudaGraphEdgeData
  uint8_t from_port, to_port, type, reserved[5];
};
static_assert(sizeof(GraphEdge) == 8);
constexpr uint8_t kProgrammaticEdge = 1;
constexpr size_t kGraphUpdateBytes = 24;  // cudaGraphExecUpdateResultInfo

// cudaDeviceProp: 1008 bytes, of which these offsets are filled in.
constexpr size_t kPropertyBytes = 1008;
enum PropertyOffset : size_t {
  kPropName = 0,
  kPropGlobalBytes = 288,
  kPropSharedBytes = 296,
  kPropRegisters = 304,
  kPropWarp = 308,
  kPropPitch = 312,
  kPropMaxThreads = 320,
  kPropMaxBlock = 324,
  kPropMaxGrid = 336,
  kPropConstBytes = 352,
  kPropMajor = 360,
  kPropMinor = 364,
  kPropMultiprocessors = 384,
  kPropConcurrentKernels = 560,
  kPropUnifiedAddressing = 588,
  kPropBusWidth = 592,
  kPropL2Bytes = 596,
  kPropThreadsPerSm = 604,
  kPropSharedPerSm = 624,
  kPropRegistersPerSm = 632,
  kPropSharedOptin = 672,
  kPropBlocksPerSm = 688,
  kPropSharedReserved = 696,
  kPropClusterLaunch = 748,
  kPropMapHost = 392,
  kPropPciBus = 568,
  kPropCopyEngines = 584,
  kPropPriorities = 608,
  kPropManaged = 636,
  kPropConcurrentManaged = 656,
  kPropCooperative = 668,
  kPropPools = 720,
};

}  // namespace ptxemu::exec
