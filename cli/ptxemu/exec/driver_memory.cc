// Memory of the driver: allocations, copies, fills (CUDA Driver API manual, memory management).
#include <string_view>

#include "ptxemu/exec/api.h"

using namespace ptxemu::exec;

namespace {

void* as_pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

CUDRV int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  if (address == nullptr) return kInvalidValue;
  void* pointer = nullptr;
  const int status = Gpu::get().allocate(&pointer, bytes);
  *address = reinterpret_cast<uint64_t>(pointer);
  return status;
}
CUDRV int cuMemAllocAsync(uint64_t* address, size_t bytes, void*) {
  return cuMemAlloc_v2(address, bytes);
}
CUDRV int cuMemFree_v2(uint64_t address) { return Gpu::get().free(as_pointer(address)); }
CUDRV int cuMemFreeAsync(uint64_t address, void*) { return cuMemFree_v2(address); }
CUDRV int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t bytes) {
  return Gpu::get().copy(as_pointer(to), from, bytes, nullptr, CopyKind::kToDevice);
}
CUDRV int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t bytes) {
  return Gpu::get().copy(to, as_pointer(from), bytes, nullptr, CopyKind::kFromDevice);
}
CUDRV int cuMemcpyDtoD_v2(uint64_t to, uint64_t from, size_t bytes) {
  return Gpu::get().copy(as_pointer(to), as_pointer(from), bytes, nullptr, CopyKind::kOnDevice);
}
CUDRV int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void* stream) {
  return Gpu::get().copy(as_pointer(to), from, bytes, stream, CopyKind::kToDevice);
}
CUDRV int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void* stream) {
  return Gpu::get().copy(to, as_pointer(from), bytes, stream, CopyKind::kFromDevice);
}
CUDRV int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void* stream) {
  return Gpu::get().copy(as_pointer(to), as_pointer(from), bytes, stream, CopyKind::kOnDevice);
}
CUDRV int cuMemsetD8_v2(uint64_t to, unsigned char value, size_t count) {
  return Gpu::get().fill(as_pointer(to), value, 1, count, nullptr);
}
CUDRV int cuMemsetD32_v2(uint64_t to, unsigned value, size_t count) {
  return Gpu::get().fill(as_pointer(to), value, 4, count, nullptr);
}
CUDRV int cuMemsetD8Async(uint64_t to, unsigned char value, size_t count, void* stream) {
  return Gpu::get().fill(as_pointer(to), value, 1, count, stream);
}
CUDRV int cuMemsetD16Async(uint64_t to, unsigned short value, size_t count, void* stream) {
  return Gpu::get().fill(as_pointer(to), value, 2, count, stream);
}
CUDRV int cuMemsetD32Async(uint64_t to, unsigned value, size_t count, void* stream) {
  return Gpu::get().fill(as_pointer(to), value, 4, count, stream);
}
CUDRV int cuMemAllocManaged(uint64_t* address, size_t bytes, unsigned) {
  if (address == nullptr) return kInvalidValue;
  void* pointer = nullptr;
  const int status = Gpu::get().allocate(&pointer, bytes, MemoryKind::kManaged);
  *address = reinterpret_cast<uint64_t>(pointer);
  return status;
}
CUDRV int cuMemAllocFromPoolAsync(uint64_t* address, size_t bytes, void*, void*) {
  return cuMemAlloc_v2(address, bytes);
}
CUDRV int cuMemAllocPitch_v2(uint64_t* address, size_t* pitch, size_t width, size_t height,
                             unsigned) {
  if (address == nullptr) return kInvalidValue;
  void* pointer = nullptr;
  const int status = Gpu::get().allocate_pitched(&pointer, pitch, width, height);
  *address = reinterpret_cast<uint64_t>(pointer);
  return status;
}
CUDRV int cuMemGetAddressRange_v2(uint64_t* begin, size_t* bytes, uint64_t address) {
  const Allocation found = Gpu::get().allocation_of(as_pointer(address));
  if (begin != nullptr) *begin = reinterpret_cast<uint64_t>(found.begin);
  if (bytes != nullptr) *bytes = found.bytes;
  return found.begin == nullptr ? kNotFound : kSuccess;
}
CUDRV int cuPointerGetAttribute(void* data, int attribute, uint64_t address) {
  constexpr int kContext = 1, kType = 2, kDevice = 3, kHost = 4, kManaged = 8, kOrdinal = 9,
                kStart = 11, kSize = 12;
  constexpr int kHostMemory = 1, kDeviceMemory = 2;
  const Allocation found = Gpu::get().allocation_of(as_pointer(address));
  if (found.begin == nullptr) return kInvalidValue;
  switch (attribute) {
    case kContext: *static_cast<void**>(data) = nullptr; return kSuccess;
    case kType:
      *static_cast<int*>(data) = found.kind == MemoryKind::kHost ? kHostMemory : kDeviceMemory;
      return kSuccess;
    case kDevice:
    case kHost: *static_cast<uint64_t*>(data) = address; return kSuccess;
    case kManaged: *static_cast<int*>(data) = found.kind == MemoryKind::kManaged; return kSuccess;
    case kOrdinal: *static_cast<int*>(data) = 0; return kSuccess;
    case kStart: *static_cast<void**>(data) = found.begin; return kSuccess;
    case kSize: *static_cast<size_t*>(data) = found.bytes; return kSuccess;
    default: return kNotSupported;
  }
}
CUDRV int cuMemcpy(uint64_t to, uint64_t from, size_t bytes) {
  return Gpu::get().copy(as_pointer(to), as_pointer(from), bytes, nullptr, CopyKind::kByAddress);
}
CUDRV int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void* stream) {
  return Gpu::get().copy(as_pointer(to), as_pointer(from), bytes, stream, CopyKind::kByAddress);
}
CUDRV int cuMemsetD16_v2(uint64_t to, unsigned short value, size_t count) {
  return Gpu::get().fill(as_pointer(to), value, 2, count, nullptr);
}
