#include "ptxemu/exec/device_info.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "ptxemu/exec/cuda_types.h"

namespace ptxemu::exec {
namespace {

constexpr int kSharedPerBlock = 49152, kSharedOptin = 232448, kSharedPerSm = 233472,
              kSharedReserved = 1024, kRegisters = 65536, kMaxThreads = 1024, kThreadsPerSm = 2048,
              kBlocksPerSm = 32, kConstBytes = 65536;

struct StatusWords {
  int status;
  const char *name, *text;
};
constexpr StatusWords kWords[] = {
    {kSuccess, "cudaSuccess", "no error"},
    {kInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {kOutOfMemory, "cudaErrorMemoryAllocation", "out of memory"},
    {kInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {kInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {kInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {kNoKernelImage, "cudaErrorNoKernelImageForDevice", "no PTX that the emulated device can run"},
    {kInvalidPtx, "cudaErrorInvalidPtx", "PTX that the emulator does not know"},
    {kInvalidHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {kNotFound, "cudaErrorSymbolNotFound", "named symbol not found"},
    {kAssert, "cudaErrorAssert", "device-side assert triggered"},
    {kCooperativeTooLarge, "cudaErrorCooperativeLaunchTooLarge",
     "too many blocks in cooperative launch"},
    {kInvalidClusterSize, "cudaErrorInvalidClusterSize", "invalid cluster size"},
    {kGraphUpdateFailure, "cudaErrorGraphExecUpdateFailure",
     "the graph update was not performed because it included changes which violated constraints"},
    {kLaunchFailure, "cudaErrorLaunchFailure", "the emulated kernel trapped or hung"},
    {kNotSupported, "cudaErrorNotSupported", "not in the emulated CUDA libraries"},
};

}  // namespace

const char* status_name(int status) {
  const auto* found = std::find_if(std::begin(kWords), std::end(kWords),
                                   [&](const StatusWords& w) { return w.status == status; });
  return found == std::end(kWords) ? "cudaErrorUnknown" : found->name;
}

const char* status_text(int status) {
  const auto* found = std::find_if(std::begin(kWords), std::end(kWords),
                                   [&](const StatusWords& w) { return w.status == status; });
  return found == std::end(kWords) ? "unknown error" : found->text;
}

int device_attribute(const DeviceFacts& facts, int attribute) {
  switch (attribute) {
    case 1:                      // threads a block
    case 2:                      // block x
    case 3: return kMaxThreads;  // block y
    case 4: return 64;           // block z
    case 5: return INT32_MAX;    // grid x
    case 6:                      // grid y
    case 7: return 65535;        // grid z
    case 8: return kSharedPerBlock;
    case 9: return kConstBytes;
    case 10: return 32;         // warp
    case 11: return INT32_MAX;  // pitch
    case 12: return kRegisters;
    case 13: return 1965000;  // clock, kHz
    case 16: return facts.multiprocessors;
    case 14: return 512;  // texture alignment
    case 19: return 1;    // host memory can be mapped
    case 31: return 1;    // concurrent kernels
    case 33: return 1;    // PCI bus
    case 36: return facts.memory_clock_khz;
    case 37: return facts.memory_bus_bits;
    case 38: return facts.l2_bytes;
    case 39: return kThreadsPerSm;
    case 40: return 3;  // copy engines
    case 41: return 1;  // unified addressing
    case 78: return 1;  // stream priorities
    case 79:            // global L1 cache
    case 80: return 1;  // local L1 cache
    case 83: return 1;  // managed memory
    case 89: return 1;  // concurrent access to it
    case 90: return 1;  // compute preemption
    case 95: return 1;  // cooperative launches
    case 75: return static_cast<int>(facts.architecture / 10);
    case 76: return static_cast<int>(facts.architecture % 10);
    case 81: return kSharedPerSm;
    case 82: return kRegisters;  // of a multiprocessor
    case 97: return kSharedOptin;
    case 106: return kBlocksPerSm;
    case 111: return kSharedReserved;
    case 115: return 1;  // memory pools
    case 120: return 1;  // clusters
    case 127: return 1;  // tensor maps
    default: return 0;
  }
}

size_t device_limit(int limit) {
  constexpr size_t kStack = 1024, kPrintBuffer = size_t{1} << 20, kHeap = size_t{8} << 20;
  switch (limit) {
    case 0: return kStack;
    case 1: return kPrintBuffer;
    case 2: return kHeap;
    default: return 0;
  }
}

void fill_properties(const DeviceFacts& facts, void* properties) {
  auto* bytes = static_cast<char*>(properties);
  std::memset(bytes, 0, kPropertyBytes);
  const auto set = [&](size_t offset, auto value) {
    std::memcpy(bytes + offset, &value, sizeof value);
  };
  std::memcpy(bytes + kPropName, facts.name.c_str(), facts.name.size() + 1);
  set(kPropGlobalBytes, uint64_t{facts.memory_bytes});
  set(kPropSharedBytes, uint64_t{kSharedPerBlock});
  set(kPropRegisters, kRegisters);
  set(kPropWarp, 32);
  set(kPropPitch, uint64_t{INT32_MAX});
  set(kPropMaxThreads, kMaxThreads);
  set(kPropMaxBlock, Dim3{1024, 1024, 64});
  set(kPropMaxGrid, Dim3{INT32_MAX, 65535, 65535});
  set(kPropConstBytes, uint64_t{kConstBytes});
  set(kPropMajor, facts.architecture / 10);
  set(kPropMinor, facts.architecture % 10);
  set(kPropMultiprocessors, facts.multiprocessors);
  set(kPropConcurrentKernels, 1);
  set(kPropUnifiedAddressing, 1);
  set(kPropBusWidth, facts.memory_bus_bits);
  set(kPropL2Bytes, facts.l2_bytes);
  set(kPropThreadsPerSm, kThreadsPerSm);
  set(kPropSharedPerSm, uint64_t{kSharedPerSm});
  set(kPropRegistersPerSm, kRegisters);
  set(kPropSharedOptin, uint64_t{kSharedOptin});
  set(kPropBlocksPerSm, kBlocksPerSm);
  set(kPropSharedReserved, uint64_t{kSharedReserved});
  set(kPropClusterLaunch, 1);
  for (const size_t flag : {kPropMapHost, kPropManaged, kPropConcurrentManaged, kPropCooperative,
                            kPropPriorities, kPropPools, kPropPciBus}) {
    set(flag, 1);
  }
  set(kPropCopyEngines, 3);
}

}  // namespace ptxemu::exec
