// Memory of the runtime: allocations, pools, copies, fills (CUDA Runtime API manual, memory
// management). Everything lies in the emulated device's memory, which the program can reach too.
#include <algorithm>
#include <cstring>

#include "ptxemu/exec/api.h"
#include "ptxemu/exec/cuda_types.h"
#include "ptxemu/exec/device_info.h"

using namespace ptxemu::exec;

namespace {

// Rows of a box in memory: where the first lies, and from one row or slice to the next.
struct Rows {
  char* begin;
  size_t pitch, slice;

  char* row(size_t y, size_t z) const { return begin + z * slice + y * pitch; }
};

// work(y, z) of each row, until one fails.
template <class Work>
int for_each_row(size_t height, size_t depth, const Work& work) {
  for (size_t z = 0; z < depth; ++z) {
    for (size_t y = 0; y < height; ++y) {
      if (const int status = work(y, z); status != kSuccess) return kept(status);
    }
  }
  return kSuccess;
}

int copy_rows(const Rows& to, const Rows& from, size_t width, size_t height, size_t depth,
              void* stream, CopyKind kind) {
  return for_each_row(height, depth, [&](size_t y, size_t z) {
    return Gpu::get().copy(to.row(y, z), from.row(y, z), width, stream, kind);
  });
}

int fill_rows(const Rows& to, int value, size_t width, size_t height, size_t depth, void* stream) {
  return for_each_row(height, depth, [&](size_t y, size_t z) {
    return Gpu::get().fill(to.row(y, z), static_cast<uint32_t>(value), 1, width, stream);
  });
}

Rows rows_of(const PitchedPointer& pointer, const Extent& at) {
  const size_t slice = pointer.pitch * pointer.height;
  char* begin = static_cast<char*>(pointer.pointer);
  return {begin + at.depth * slice + at.height * pointer.pitch + at.width, pointer.pitch, slice};
}

int default_pool = 0;  // there is one; its address is the handle

}  // namespace

// --- Allocations

CUDART int cudaMalloc(void** pointer, size_t bytes) {
  return kept(Gpu::get().allocate(pointer, bytes));
}
CUDART int cudaMallocManaged(void** pointer, size_t bytes, unsigned) {
  return kept(Gpu::get().allocate(pointer, bytes, MemoryKind::kManaged));
}
CUDART int cudaMallocAsync(void** pointer, size_t bytes, void*) {
  return kept(Gpu::get().allocate(pointer, bytes));
}
CUDART int cudaMallocFromPoolAsync(void** pointer, size_t bytes, void*, void*) {
  return kept(Gpu::get().allocate(pointer, bytes));
}
CUDART int cudaMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height) {
  return kept(Gpu::get().allocate_pitched(pointer, pitch, width, height));
}
CUDART int cudaMalloc3D(PitchedPointer* pointer, Extent extent) {
  pointer->width = extent.width;
  pointer->height = extent.height;
  size_t rows = 0;
  if (__builtin_mul_overflow(extent.height, extent.depth, &rows)) return kept(kOutOfMemory);
  return kept(Gpu::get().allocate_pitched(&pointer->pointer, &pointer->pitch, extent.width, rows));
}
CUDART int cudaFree(void* pointer) { return kept(Gpu::get().free(pointer)); }
CUDART int cudaFreeAsync(void* pointer, void*) { return kept(Gpu::get().free(pointer)); }
CUDART int cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
  return kept(Gpu::get().allocate(pointer, bytes, MemoryKind::kHost));
}
SAME_AS(cuMemHostAlloc, cudaHostAlloc);
CUDART int cudaMallocHost(void** pointer, size_t bytes) { return cudaHostAlloc(pointer, bytes, 0); }
SAME_AS(cuMemAllocHost_v2, cudaMallocHost);
CUDART int cudaFreeHost(void* pointer) { return kept(Gpu::get().free(pointer)); }
SAME_AS(cuMemFreeHost, cudaFreeHost);
CUDART int cudaHostGetFlags(unsigned* flags, void*) {
  *flags = 0;
  return kSuccess;
}
// The program's own memory may be copied from and to as it is; kernels cannot reach it.
CUDART int cudaHostRegister(void* pointer, size_t bytes, unsigned) {
  return kept(Gpu::get().register_host(pointer, bytes));
}
SAME_AS(cuMemHostRegister_v2, cudaHostRegister);
CUDART int cudaHostUnregister(void* pointer) {
  Gpu::get().unregister_host(pointer);
  return kSuccess;
}
SAME_AS(cuMemHostUnregister, cudaHostUnregister);
CUDART int cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  *device = host;
  if (Gpu::get().allocation_of(host).begin != nullptr) return kSuccess;
  return kept(Gpu::missing("cudaHostGetDevicePointer of memory that cudaHostAlloc did not give"));
}
SAME_AS(cuMemHostGetDevicePointer_v2, cudaHostGetDevicePointer);
CUDART int cudaMemGetInfo(size_t* free, size_t* total) {
  *total = Gpu::get().facts().memory_bytes;
  *free = *total - std::min(*total, Gpu::get().allocated_bytes());
  return kSuccess;
}
SAME_AS(cuMemGetInfo_v2, cudaMemGetInfo);
CUDART int cudaPointerGetAttributes(PointerAttributes* attributes, const void* pointer) {
  std::memset(attributes, 0, sizeof *attributes);
  const Allocation found = Gpu::get().allocation_of(pointer);
  auto* at = const_cast<void*>(pointer);
  MemoryType type = MemoryType::kUnregistered;
  if (found.begin != nullptr) {
    type = found.kind == MemoryKind::kDevice ? MemoryType::kDevice
           : found.kind == MemoryKind::kHost ? MemoryType::kHost
                                             : MemoryType::kManaged;
  }
  attributes->type = static_cast<int>(type);
  attributes->device_pointer = found.begin == nullptr ? nullptr : at;
  attributes->host_pointer = type == MemoryType::kDevice ? nullptr : at;
  return kSuccess;
}
CUDART int cudaMemAdvise(const void*, size_t, int, MemoryLocation) { return kSuccess; }
CUDART int cudaMemPrefetchAsync(const void*, size_t, MemoryLocation, unsigned, void*) {
  return kSuccess;
}

// --- Pools

CUDART int cudaDeviceGetDefaultMemPool(void** pool, int) {
  *pool = &default_pool;
  return kSuccess;
}
SAME_AS(cudaDeviceGetMemPool, cudaDeviceGetDefaultMemPool);
SAME_AS(cuDeviceGetDefaultMemPool, cudaDeviceGetDefaultMemPool);
SAME_AS(cuDeviceGetMemPool, cudaDeviceGetDefaultMemPool);
CUDART int cudaDeviceSetMemPool(int, void*) { return kSuccess; }
CUDART int cudaMemPoolCreate(void** pool, const void*) {
  *pool = &default_pool;
  return kSuccess;
}
CUDART int cudaMemPoolDestroy(void*) { return kSuccess; }
CUDART int cudaMemPoolSetAttribute(void*, int, void*) { return kSuccess; }
SAME_AS(cuMemPoolSetAttribute, cudaMemPoolSetAttribute);
CUDART int cudaMemPoolGetAttribute(void*, int attribute, void* value) {
  constexpr int kFirstOfEightBytes = 4;
  std::memset(value, 0, attribute < kFirstOfEightBytes ? 4 : 8);
  return kSuccess;
}
SAME_AS(cuMemPoolGetAttribute, cudaMemPoolGetAttribute);
CUDART int cudaMemPoolTrimTo(void*, size_t) { return kSuccess; }
SAME_AS(cuMemPoolTrimTo, cudaMemPoolTrimTo);
CUDART int cudaMemPoolSetAccess(void*, const void*, size_t) { return kSuccess; }

// --- Copies

CUDART int cudaMemcpyAsync(void* to, const void* from, size_t bytes, int kind, void* stream) {
  return kept(Gpu::get().copy(to, from, bytes, stream, static_cast<CopyKind>(kind)));
}
CUDART int cudaMemcpy(void* to, const void* from, size_t bytes, int kind) {
  return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}
CUDART int cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, void* stream) {
  return kept(Gpu::get().copy(to, from, bytes, stream, CopyKind::kOnDevice));
}
CUDART int cudaMemcpyPeer(void* to, int, const void* from, int, size_t bytes) {
  return kept(Gpu::get().copy(to, from, bytes, nullptr, CopyKind::kOnDevice));
}
CUDART int cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                             size_t width, size_t height, int kind, void* stream) {
  const Rows target{static_cast<char*>(to), to_pitch, 0};
  const Rows source{const_cast<char*>(static_cast<const char*>(from)), from_pitch, 0};
  return copy_rows(target, source, width, height, 1, stream, static_cast<CopyKind>(kind));
}
CUDART int cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                        size_t width, size_t height, int kind) {
  return cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, nullptr);
}
CUDART int cudaMemcpy3DAsync(const Copy3D* copy, void* stream) {
  if (copy->from_array != nullptr || copy->to_array != nullptr) {
    return kept(Gpu::missing("cudaMemcpy3D of arrays"));
  }
  const Extent& e = copy->extent;
  return copy_rows(rows_of(copy->to, copy->to_at), rows_of(copy->from, copy->from_at), e.width,
                   e.height, e.depth, stream, static_cast<CopyKind>(copy->kind));
}
CUDART int cudaMemcpy3D(const Copy3D* copy) { return cudaMemcpy3DAsync(copy, nullptr); }
// The driver's, for two and for three dimensions.
CUDRV int cuMemcpy3DAsync_v2(const DriverCopy3D* copy, void* stream) {
  constexpr int kHost = 1, kDevice = 2;
  const auto rows = [](const DriverPlace& at) {
    const size_t slice = at.pitch * at.height;
    char* begin =
        at.type == kHost ? static_cast<char*>(at.host) : reinterpret_cast<char*>(at.device);
    return Rows{begin + at.z * slice + at.y * at.pitch + at.x, at.pitch, slice};
  };
  if (copy->from.array != nullptr || copy->to.array != nullptr) {
    return Gpu::missing("cuMemcpy3D of arrays");
  }
  const bool to_device = copy->to.type == kDevice, from_device = copy->from.type == kDevice;
  const CopyKind kind = to_device && from_device ? CopyKind::kOnDevice
                        : to_device              ? CopyKind::kToDevice
                        : from_device            ? CopyKind::kFromDevice
                                                 : CopyKind::kByAddress;
  return copy_rows(rows(copy->to), rows(copy->from), copy->width, copy->height, copy->depth, stream,
                   kind);
}
CUDRV int cuMemcpy3D_v2(const DriverCopy3D* copy) { return cuMemcpy3DAsync_v2(copy, nullptr); }
CUDRV int cuMemcpy2DAsync_v2(const DriverCopy2D* copy, void* stream) {
  const auto place = [](const DriverPlace2D& at) {
    return DriverPlace{at.x,    at.y,      0,        0,       at.type,  0,
                       at.host, at.device, at.array, nullptr, at.pitch, 0};
  };
  const DriverCopy3D whole{place(copy->from), place(copy->to), copy->width, copy->height, 1};
  return cuMemcpy3DAsync_v2(&whole, stream);
}
CUDRV int cuMemcpy2D_v2(const DriverCopy2D* copy) { return cuMemcpy2DAsync_v2(copy, nullptr); }
SAME_AS(cuMemcpy2DUnaligned_v2, cuMemcpy2D_v2);

// --- Fills

CUDART int cudaMemsetAsync(void* to, int value, size_t bytes, void* stream) {
  return kept(Gpu::get().fill(to, static_cast<uint32_t>(value), 1, bytes, stream));
}
CUDART int cudaMemset(void* to, int value, size_t bytes) {
  return cudaMemsetAsync(to, value, bytes, nullptr);
}
CUDART int cudaMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height,
                             void* stream) {
  return fill_rows({static_cast<char*>(to), pitch, 0}, value, width, height, 1, stream);
}
CUDART int cudaMemset2D(void* to, size_t pitch, int value, size_t width, size_t height) {
  return cudaMemset2DAsync(to, pitch, value, width, height, nullptr);
}
CUDART int cudaMemset3DAsync(PitchedPointer to, int value, Extent extent, void* stream) {
  return fill_rows(rows_of(to, {}), value, extent.width, extent.height, extent.depth, stream);
}
CUDART int cudaMemset3D(PitchedPointer to, int value, Extent extent) {
  return cudaMemset3DAsync(to, value, extent, nullptr);
}
