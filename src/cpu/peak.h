// The ceiling of the matrix instruction that a CPU path uses: what a benchmark divides by.
//
// Measured on the threads that run the kernel, each pinned to one core while it measures, in slices
// short enough to alternate with the kernel. The figure checks itself: instructions per cycle x
// FLOPs per instruction x the clock measured in the same slice.
#pragma once

#include <cstddef>
#include <string>

#include "core/thread_pool.h"
#include "plan/cpu_kernel_spec.h"

namespace fa4::internal {

struct CpuPeak {
  double flops_per_second = 0;  // of all threads together; 0: this path has no matrix instruction
  double clock_hz = 0;          // mean over threads, from a chain of dependent additions
  double expected_flops_per_second = 0;  // threads x clock x instructions a cycle x their width
  std::string instruction;               // "vdpbf16ps zmm", "tdpbf16ps", "vfmadd231ps ymm"; or ""
};

// Runs the instruction behind `isa` on every thread of `pool` at once for about `seconds`. The
// machine must have `isa`. kScalar and kAmxModel have no ceiling: all zero. Throws nothing but
// std::bad_alloc.
CpuPeak measure_cpu_peak(CpuIsa isa, ThreadPool& pool, double seconds);

// The same on the calling thread alone.
CpuPeak measure_cpu_peak(CpuIsa isa, double seconds);

// Bytes a second that the threads of `pool` read together, from `bytes` bytes at `data`: the
// ceiling of decoding, which reads each key once. Read once.
double measure_read_rate(ThreadPool& pool, const void* data, size_t bytes);

}  // namespace fa4::internal
