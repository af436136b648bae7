#include "cpu/peak.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <vector>

#include "core/rounding.h"
#include "cpu/isa/peak_loops.h"

namespace fa4::internal {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Instruction {
  CpuIsa isa;
  const char* name;
  PeakLoop loop;
  int per_round;           // instructions
  double flops;            // of one
  double per_cycle_intel;  // server cores since Ice Lake
  double per_cycle_zen4;   // 512-bit operations take two passes of 256
  double per_cycle_newer;  // Zen 5 server cores
};
// Rates: the vendors' optimisation guides, but vdpbf16ps of Intel as measured on a Xeon with AMX
// (model 207): 0.48 of one a cycle. `fa4 bench` prints what share of them was measured.
constexpr Instruction kInstructions[] = {
    {CpuIsa::kAvx2, "vfmadd231ps ymm", peak_loop_avx2, 96, 16, 2, 2, 2},
    {CpuIsa::kAvx512, "vfmadd231ps zmm", peak_loop_avx512, 192, 32, 2, 1, 2},
    {CpuIsa::kAvx512Bf16, "vdpbf16ps zmm", peak_loop_avx512_bf16, 192, 64, 0.5, 1, 2},
    {CpuIsa::kAmxBf16, "tdpbf16ps", peak_loop_amx, 64, 16384, 1.0 / 16, 1.0 / 16, 1.0 / 16},
};

const Instruction* instruction_of(CpuIsa isa) {
  for (const Instruction& row : kInstructions) {
    if (row.isa == isa) return &row;
  }
  return nullptr;
}

double per_cycle(const Instruction& row) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_is("amd")) {
    return __builtin_cpu_supports("avx512vp2intersect") ? row.per_cycle_newer : row.per_cycle_zen4;
  }
#endif
  return row.per_cycle_intel;
}

// One link: an addition and an exclusive or, each of the other's result: two cycles.
uint64_t dependent_chain(uint64_t x, uint64_t step, uint64_t flip, int64_t links) {
  for (int64_t i = 0; i < links; ++i) {
#pragma GCC unroll 32
    for (int link = 0; link < 32; ++link) x = (x + step) ^ flip;
  }
  return x;
}

// Pins the calling thread to the `index`-th CPU it may use, and lets it go again.
class Pinned {
 public:
  explicit Pinned(int index) {
    if (pthread_getaffinity_np(pthread_self(), sizeof before_, &before_) != 0) return;
    const int count = CPU_COUNT(&before_);
    if (count == 0) return;
    int left = index % count;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &before_) || left-- > 0) continue;
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(cpu, &one);
      pinned_ = pthread_setaffinity_np(pthread_self(), sizeof one, &one) == 0;
      return;
    }
  }
  ~Pinned() {
    if (pinned_) pthread_setaffinity_np(pthread_self(), sizeof before_, &before_);
  }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

 private:
  cpu_set_t before_;
  bool pinned_ = false;
};

struct Measured {
  double flops_per_second = 0;
  double clock_hz = 0;
};

// What the loops return goes here, so that none of them is dropped.
std::atomic<float> float_sink;
std::atomic<uint64_t> integer_sink;

double measure_clock(double seconds) {
  constexpr int64_t kLinks = 4000;
  double best = 0;
  const auto start = Clock::now();
  do {
    const uint64_t seed = integer_sink.load(std::memory_order_relaxed);
    const auto slice = Clock::now();
    const uint64_t x = dependent_chain(seed, seed | 3, seed | 5, kLinks);
    const double cycles = 2.0 * 32 * kLinks;
    const double rate = cycles / seconds_since(slice);
    integer_sink.store(x, std::memory_order_relaxed);
    if (rate > best) best = rate;  // an interrupted slice only reads slower
  } while (seconds_since(start) < seconds);
  return best;
}

double measure_flops(const Instruction& row, double seconds) {
  // About 20 us a slice at any clock.
  const double instructions = row.flops > 1000 ? 4000 : 64000;
  const auto rounds = static_cast<int64_t>(instructions / row.per_round) + 1;
  double best = 0;
  const auto start = Clock::now();
  do {
    const auto slice = Clock::now();
    float_sink.store(row.loop(rounds), std::memory_order_relaxed);
    const double flops = static_cast<double>(rounds) * row.per_round * row.flops;
    const double rate = flops / seconds_since(slice);
    if (rate > best) best = rate;
  } while (seconds_since(start) < seconds);
  return best;
}

// A quarter of the time for the clock, before and after, the rest for the instruction.
Measured measure_here(const Instruction& row, double seconds) {
  Measured result;
  const double before = measure_clock(seconds / 8);
  result.flops_per_second = measure_flops(row, seconds * 3 / 4);
  const double after = measure_clock(seconds / 8);
  result.clock_hz = before > after ? before : after;
  return result;
}

}  // namespace

CpuPeak measure_cpu_peak(CpuIsa isa, ThreadPool& pool, double seconds) {
  const Instruction* row = instruction_of(isa);
  CpuPeak peak;
  if (row == nullptr) return peak;
  const int num_threads = pool.num_threads();
  std::vector<Measured> measured(static_cast<size_t>(num_threads));
  std::atomic<int> arrived{0};
  pool.run(num_threads, [&](int64_t task, int) {
    const Pinned pinned(static_cast<int>(task));
    // All start together: nobody takes a second task before everybody has one.
    arrived.fetch_add(1);
    while (arrived.load() < num_threads) sched_yield();
    measured[static_cast<size_t>(task)] = measure_here(*row, seconds);
  });
  for (const Measured& one : measured) {
    peak.flops_per_second += one.flops_per_second;
    peak.clock_hz += one.clock_hz / num_threads;
  }
  peak.expected_flops_per_second = num_threads * peak.clock_hz * per_cycle(*row) * row->flops;
  peak.instruction = row->name;
  return peak;
}

CpuPeak measure_cpu_peak(CpuIsa isa, double seconds) {
  ThreadPool alone(1);
  return measure_cpu_peak(isa, alone, seconds);
}

double measure_read_rate(ThreadPool& pool, const void* data, size_t bytes) {
  constexpr size_t kSlice = size_t{1} << 20;
  const int64_t slices = ceil_div(static_cast<int64_t>(bytes), kSlice);
  std::atomic<uint64_t> result{0};  // so that no read is left out
  const auto start = Clock::now();
  pool.run(slices, [&](int64_t slice, int) {
    const size_t first = static_cast<size_t>(slice) * kSlice;
    const size_t words = std::min(kSlice, bytes - first) / sizeof(uint64_t);
    const char* from = static_cast<const char*>(data) + first;
    uint64_t sums[8] = {};
    for (size_t i = 0; i + 8 <= words; i += 8) {
      uint64_t line[8];
      std::memcpy(line, from + i * sizeof(uint64_t), sizeof(line));
      for (int j = 0; j < 8; ++j) sums[j] += line[j];
    }
    for (const uint64_t sum : sums) result.fetch_add(sum, std::memory_order_relaxed);
  });
  return static_cast<double>(bytes) / std::max(seconds_since(start), 1e-9);
}

}  // namespace fa4::internal
