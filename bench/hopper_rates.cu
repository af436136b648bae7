// What a Hopper SM gives a backward kernel, measured one resource at a time: wgmma beside other
// traffic of shared memory, loads whose lanes share addresses, and tiles sent to the other CTA of a
// pair. Compiled and launched by hopper_rates.py, which defines the macros in capitals.
#include "kernels/base/element.h"
#include "kernels/ptx/cluster.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/measure.cuh"
#include "kernels/ptx/store_async.cuh"
#include "kernels/ptx/sync.cuh"
#include "kernels/ptx/wgmma.cuh"
#include "kernels/tile/shared_base.cuh"
#include "kernels/tile/smem_descriptor.cuh"

using namespace fa4;

// What one CTA reports.
struct Report {
  int64_t clocks;       // of the measured loop
  int64_t nanoseconds;  // the same by the global timer
  int64_t traffic;      // bytes that the fourth party moved meanwhile
  int64_t wrong;        // words that did not arrive as they were sent
};

__device__ inline void fill(unsigned char* smem, int bytes) {
  uint32_t state = blockIdx.x * blockDim.x + threadIdx.x + 1;
  for (int i = threadIdx.x; i < bytes / 4; i += blockDim.x) {
    state = state * 1664525u + 1013904223u;
    // Two bf16 of magnitude 0.5 to 2 with random signs and mantissas.
    reinterpret_cast<uint32_t*>(smem)[i] = (state & 0x807f807fu) | 0x3f003f00u;
  }
}

#ifdef PRODUCTS
// WARPGROUPS warpgroups run m64nCOLUMNSk16, eight a group, two groups in flight; A from shared
// memory (A_IN_REGISTERS 0) or from registers (A_IN_REGISTERS 1). One more warpgroup loads (TRAFFIC
// 1) or stores (TRAFFIC 2) 16 bytes a lane, 32 KB between pauses of `pause` clocks.
extern "C" __global__ void __launch_bounds__(128 * (WARPGROUPS + 1), 1)
    products(int iterations, int pause, Report* reports, float* never_written) {
  extern __shared__ unsigned char smem_base[];
  __shared__ volatile int running;
  unsigned char* smem = aligned_shared_base(smem_base);
  constexpr int kABytes = WARPGROUPS * 64 * 256, kBBytes = COLUMNS * 256;
  fill(smem, kABytes + kBBytes + 32768);
  if (threadIdx.x == 0) running = WARPGROUPS;
  ptx::fence_proxy_async_shared();
  __syncthreads();
  const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  if (warpgroup == WARPGROUPS) {
    const ptx::SmemAddr mine = ptx::smem_addr(smem) + kABytes + kBBytes + threadIdx.x % 128 * 16;
    int64_t bytes = 0;
    uint32_t sum = threadIdx.x;
    while (TRAFFIC != 0 && running != 0) {
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        if (TRAFFIC == 1) {
          uint32_t x[4];
          ptx::ld_volatile_shared(x, mine + i * 2048);
          sum ^= x[0] ^ x[1] ^ x[2] ^ x[3];
        } else {
          ptx::st_volatile_shared(mine + i * 2048, uint4{sum, sum, sum, sum});
        }
      }
      bytes += 16 * 16 * 128;
      for (const int64_t until = ptx::clock64() + pause; pause != 0 && ptx::clock64() < until;) {
      }
    }
    if (sum == 12345u) *never_written = 1.0f;
    if (threadIdx.x % 128 == 0) reports[blockIdx.x].traffic = bytes;
    return;
  }
  using Descriptor = WgmmaDescriptor<64>;
  const ptx::SmemAddr base = ptx::smem_addr(smem);
#if A_IN_REGISTERS
  const uint32_t ra[1][4] = {{0x3f803f80u, 0xbf813f82u, 0x3f83bf84u, 0x3f853f86u}};
#else
  const uint32_t a = Descriptor::k_major(base + warpgroup * 64 * 256);
#endif
  const uint32_t b = Descriptor::k_major(base + kABytes);
  float acc[COLUMNS / 2];
#pragma unroll
  for (int i = 0; i < COLUMNS / 2; ++i) acc[i] = 0.0f;
  const int64_t begin = ptx::clock64(), begin_ns = ptx::globaltimer();
#pragma unroll 1
  for (int i = 0; i < iterations; ++i) {
    ptx::wgmma_fence();
#if A_IN_REGISTERS
#pragma unroll
    for (int step = 0; step < 8; ++step) {
      const uint64_t at_b = Descriptor::descriptor_at(b, step / 4 * COLUMNS * 128 + step % 4 * 32);
      ptx::WgmmaRs<COLUMNS, Element::kBF16, ptx::Major::kK>::run<1, 32>(acc, ra, at_b);
    }
#else
#pragma unroll
    for (int slab = 0; slab < 2; ++slab) {
      ptx::WgmmaSs<COLUMNS, Element::kBF16>::run<4>(
          acc, Descriptor::descriptor_at(a, slab * 64 * 128),
          Descriptor::descriptor_at(b, slab * COLUMNS * 128), true);
    }
#endif
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<1>();
  }
  ptx::wgmma_wait_group<0>();
  ptx::fence_registers(acc);
  const int64_t end = ptx::clock64(), end_ns = ptx::globaltimer();
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < COLUMNS / 2; ++i) sum += acc[i];
  if (sum == 12345.0f) *never_written = sum;
  if (threadIdx.x % 128 == 0) atomicSub(const_cast<int*>(&running), 1);
  if (threadIdx.x == 0) {
    reports[blockIdx.x].clocks = end - begin;
    reports[blockIdx.x].nanoseconds = end_ns - begin_ns;
  }
}
#endif

#ifdef LOADS
// Eight warps load LOADS bytes a lane from shared memory, sixteen times in a row; of `lane` the
// place is lane / DIVISOR % PLACES.
extern "C" __global__ void __launch_bounds__(256, 1)
    loads(int iterations, int, Report* reports, float* never_written) {
  __shared__ alignas(128) unsigned char smem[16 * 512];
  fill(smem, sizeof(smem));
  __syncthreads();
  const ptx::SmemAddr mine = ptx::smem_addr(smem) + threadIdx.x % 32 / DIVISOR % PLACES * LOADS;
  uint32_t sum = 0;
  const int64_t begin = ptx::clock64(), begin_ns = ptx::globaltimer();
#pragma unroll 1
  for (int i = 0; i < iterations; ++i) {
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      uint32_t x[LOADS / 4];
      ptx::ld_volatile_shared(x, mine + j * 512);
      for (uint32_t word : x) sum += j == 15 ? word : 0;
    }
  }
  __syncthreads();
  const int64_t end = ptx::clock64();
  if (sum == 1) *never_written = 1.0f;
  if (threadIdx.x == 0) {
    reports[blockIdx.x] = {end - begin, ptx::globaltimer() - begin_ns, 0, 0};
  }
}
#endif

#ifdef EXCHANGE
// A pair of CTAs: each sends BYTES to the other and waits for as many, `iterations` times, with
// STAGES buffers. HOW 0: cp.async.bulk by one thread; 1: st.async of 16 bytes a lane by 4 warps;
// 2: st.shared::cluster of 16 bytes a lane and a remote arrival a warp. ONE_WAY 1: only the first
// CTA sends. A buffer is sent again when its receiver has said so.
__device__ inline void wait_acquire(ptx::SmemAddr barrier, uint32_t parity) {
  while (!ptx::mbarrier_try_wait_parity_acquire_cluster(barrier, parity)) {
  }
}

__device__ inline void meet() {
  ptx::barrier_cluster_arrive_release();
  ptx::barrier_cluster_wait();
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(256, 1)
    exchange(int iterations, int, Report* reports, float*) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) uint64_t barriers[2 * STAGES];  // full, then free
  unsigned char* const outgoing = smem;
  unsigned char* const incoming = smem + BYTES;
  const uint32_t rank = ptx::cluster_ctarank(), peer = rank ^ 1;
  const bool sends = !ONE_WAY || rank == 0, receives = !ONE_WAY || rank == 1;
  const ptx::SmemAddr full = ptx::smem_addr(barriers), free = full + 8 * STAGES;
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      ptx::mbarrier_init(full + 8 * s, HOW == 2 ? 4 : 1);
      ptx::mbarrier_init(free + 8 * s, 1);
    }
    ptx::fence_mbarrier_init();
  }
  for (int i = threadIdx.x; i < BYTES / 4; i += blockDim.x) {
    reinterpret_cast<uint32_t*>(outgoing)[i] = i * 2654435761u + rank;
  }
  ptx::fence_proxy_async_shared();
  meet();
  const int64_t begin = ptx::clock64(), begin_ns = ptx::globaltimer();
  if (threadIdx.x < 128) {  // sends
    if (sends && (HOW != 0 || threadIdx.x == 0)) {
      for (int i = 0; i < iterations; ++i) {
        const int s = i % STAGES;
        if (i >= STAGES) wait_acquire(free + 8 * s, (i / STAGES - 1) & 1);
        const ptx::ClusterAddr to = ptx::mapa(ptx::smem_addr(incoming) + s * BYTES, peer);
        const ptx::ClusterAddr barrier = ptx::mapa(full + 8 * s, peer);
        if (HOW == 0) {
          ptx::cp_async_bulk_to_cluster(to, ptx::smem_addr(outgoing), BYTES, barrier);
        } else {
#pragma unroll
          for (int at = 0; at < BYTES; at += 2048) {
            const int own = at + threadIdx.x * 16;
            const ptx::ClusterAddr place{to.value + own};
            const uint4 x = *reinterpret_cast<const uint4*>(outgoing + own);
            if (HOW == 1) {
              ptx::st_async_v4(place, x.x, x.y, x.z, x.w, barrier);
            } else {
              ptx::st_cluster_v4(place, x);
            }
          }
          if (HOW == 2) {
            __syncwarp();
            if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive_release_cluster(barrier);
          }
        }
      }
    }
  } else if (threadIdx.x == 128 && receives) {  // receives
    for (int i = 0; i < iterations; ++i) {
      const int s = i % STAGES;
      if (HOW != 2) ptx::mbarrier_arrive_expect_tx(full + 8 * s, BYTES);
      wait_acquire(full + 8 * s, i / STAGES & 1);
      ptx::mbarrier_arrive_release_cluster(ptx::mapa(free + 8 * s, peer));
    }
  }
  __syncthreads();
  const int64_t end = ptx::clock64(), end_ns = ptx::globaltimer();
  meet();
  int64_t wrong = 0;
  for (int i = threadIdx.x; receives && i < BYTES / 4 * STAGES; i += blockDim.x) {
    wrong +=
        reinterpret_cast<const uint32_t*>(incoming)[i] != (i % (BYTES / 4)) * 2654435761u + peer;
  }
  atomicAdd(reinterpret_cast<unsigned long long*>(&reports[blockIdx.x].wrong), wrong);
  if (threadIdx.x == 0) {
    reports[blockIdx.x].clocks = end - begin;
    reports[blockIdx.x].nanoseconds = end_ns - begin_ns;
  }
  meet();
}
#endif
