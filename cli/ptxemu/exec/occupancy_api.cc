// How many blocks run at a time, as the runtime and the driver are asked: as many as the emulator
// has resident together.
#include <algorithm>

#include "ptxemu/exec/api.h"
#include "ptxemu/exec/cuda_types.h"

using namespace ptxemu::exec;

namespace {

uint64_t volume(const Dim3& d) { return uint64_t{d.x} * d.y * d.z; }

// A launch that names no cluster has its kernel's.
template <class Config>
uint64_t cluster_blocks(const Config& config, const ptxemu::KernelFacts& facts) {
  const auto& own = facts.cluster;
  uint64_t blocks = std::max<uint64_t>(1, uint64_t{own[0]} * own[1] * own[2]);
  for (uint32_t i = 0; i < config.num_attributes; ++i) {
    if (config.attributes[i].id != kClusterDimension) continue;
    blocks = std::max<uint64_t>(1, volume(config.attributes[i].value.cluster));
  }
  return blocks;
}

template <class Config>
int active_clusters(KernelEntry& kernel, const Config& config, int* clusters) {
  Gpu& gpu = Gpu::get();
  ptxemu::KernelFacts facts;
  if (const int status = gpu.facts_of(kernel, &facts); status != kSuccess) return status;
  int blocks = 0;
  const int status =
      gpu.blocks_per_multiprocessor(kernel, volume(config.block), config.shared_bytes, &blocks);
  const uint64_t all = static_cast<uint64_t>(blocks) * gpu.facts().multiprocessors;
  *clusters = static_cast<int>(all / cluster_blocks(config, facts));
  return status;
}

}  // namespace

int ptxemu::exec::check_cooperative(KernelEntry& kernel, const Dim3& grid, const Dim3& block,
                                    uint64_t shared_bytes) {
  Gpu& gpu = Gpu::get();
  int blocks = 0;
  const int status = gpu.blocks_per_multiprocessor(kernel, volume(block), shared_bytes, &blocks);
  if (status != kSuccess || blocks == 0) return status;  // the launch says what is wrong with it
  const uint64_t most = static_cast<uint64_t>(blocks) * gpu.facts().multiprocessors;
  return volume(grid) > most ? int{kCooperativeTooLarge} : kSuccess;
}

// --- the runtime

CUDART int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function,
                                                                  int threads, size_t shared_bytes,
                                                                  unsigned) {
  KernelEntry* kernel = find_kernel(function);
  if (kernel == nullptr) return kept(kInvalidDeviceFunction);
  if (threads <= 0) return kept(kInvalidValue);
  return kept(Gpu::get().blocks_per_multiprocessor(*kernel, static_cast<uint64_t>(threads),
                                                   shared_bytes, blocks));
}
CUDART int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function,
                                                         int threads, size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads,
                                                                shared_bytes, 0);
}
CUDART int cudaOccupancyMaxActiveClusters(int* clusters, const void* function,
                                          const RuntimeLaunch* config) {
  KernelEntry* kernel = find_kernel(function);
  if (kernel == nullptr) return kept(kInvalidDeviceFunction);
  return kept(active_clusters(*kernel, *config, clusters));
}
CUDART int cudaOccupancyMaxPotentialClusterSize(int* size, const void*, const RuntimeLaunch*) {
  *size = 8;
  return kSuccess;
}

// --- the driver

CUDRV int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, void* function,
                                                               int threads, size_t shared_bytes,
                                                               unsigned) {
  KernelEntry* kernel = find_kernel(function);
  if (kernel == nullptr) return kInvalidHandle;
  if (threads <= 0) return kInvalidValue;
  return Gpu::get().blocks_per_multiprocessor(*kernel, static_cast<uint64_t>(threads), shared_bytes,
                                              blocks);
}
CUDRV int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void* function, int threads,
                                                      size_t shared_bytes) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads,
                                                              shared_bytes, 0);
}
// The largest of the block sizes that have the most threads resident. `shared_of`: the bytes of
// dynamic shared memory of a block of so many threads; null: `shared_bytes`.
CUDRV int cuOccupancyMaxPotentialBlockSize(int* grid, int* block, void* function,
                                           size_t (*shared_of)(int), size_t shared_bytes,
                                           int limit) {
  KernelEntry* kernel = find_kernel(function);
  if (kernel == nullptr) return kInvalidHandle;
  ptxemu::KernelFacts facts;
  if (const int status = Gpu::get().facts_of(*kernel, &facts); status != kSuccess) return status;
  const int most = static_cast<int>(facts.max_threads);
  const int largest = limit > 0 ? std::min(most, limit) : most;
  *grid = *block = 0;
  int resident = 0;
  for (int threads = largest; threads > 0; threads = (threads - 1) / 32 * 32) {
    const size_t bytes = shared_of == nullptr ? shared_bytes : shared_of(threads);
    int blocks = 0;
    const int status = Gpu::get().blocks_per_multiprocessor(*kernel, static_cast<uint64_t>(threads),
                                                            bytes, &blocks);
    if (status != kSuccess) return status;
    if (blocks * threads <= resident) continue;
    resident = blocks * threads;
    *block = threads;
    *grid = blocks * Gpu::get().facts().multiprocessors;
  }
  return kSuccess;
}
CUDRV int cuOccupancyMaxActiveClusters(int* clusters, void* function, const DriverLaunch* config) {
  KernelEntry* kernel = find_kernel(function);
  return kernel == nullptr ? int{kInvalidHandle} : active_clusters(*kernel, *config, clusters);
}
CUDRV int cuOccupancyMaxPotentialClusterSize(int* size, void*, const DriverLaunch*) {
  *size = 8;
  return kSuccess;
}
