// One forward call on the CPU, over tile shapes: where the rows of src/plan/cpu_tuning.cc come
// from.
//
//   cpu_bench --benchmark_filter='forward/.*d128'
//
// Counters: GFLOP/s, and the share of the matrix instruction's ceiling measured right before.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "core/device_spec.h"
#include "cpu/forward.h"
#include "cpu/peak.h"

namespace fa4::internal {
namespace {

struct Shape {
  CpuIsa isa;
  DType dtype;
  int64_t seqlen;
  int64_t head_dim;
  bool causal;
  int tile_m;  // 0: the plan's
  int tile_n;
  int threads;
};

AttentionProblem problem_of(const Shape& shape) {
  ProblemDesc desc;
  desc.dtype = shape.dtype;
  desc.batch = 1;
  desc.seqlen_q = desc.seqlen_k = shape.seqlen;
  desc.heads_q = desc.heads_kv = 2;
  desc.head_dim = shape.head_dim;
  desc.causal = shape.causal;
  return AttentionProblem::make(desc);
}

std::vector<unsigned char> random_elements(DType dtype, int64_t count, uint32_t state) {
  std::vector<unsigned char> data(static_cast<size_t>(count) * size_of(dtype));
  for (int64_t i = 0; i < count; ++i) {
    float sum = -6.0f;  // of twelve uniform numbers: close to normal
    for (int j = 0; j < 12; ++j) {
      state = state * 1664525u + 1013904223u;
      sum += static_cast<float>(state >> 8) * 0x1p-24f;
    }
    store_from_float(dtype, data.data(), i, sum);
  }
  return data;
}

void run_forward(benchmark::State& state, const Shape& shape) {
  const AttentionProblem problem = problem_of(shape);
  CpuKernelSpec spec = plan_cpu(problem, host_cpu_spec(), shape.threads, shape.isa);
  if (shape.tile_m > 0) spec.tile_m = shape.tile_m;
  if (shape.tile_n > 0) spec.tile_n = shape.tile_n;
  const int64_t elements = problem.out_elements();
  const auto q = random_elements(shape.dtype, elements, 1),
             k = random_elements(shape.dtype, elements, 2),
             v = random_elements(shape.dtype, elements, 3);
  std::vector<unsigned char> out(q.size());
  const size_t bytes = cpu_workspace_bytes(problem, spec);
  const std::unique_ptr<void, decltype(&std::free)> workspace(std::aligned_alloc(256, bytes + 256),
                                                              &std::free);
  ForwardArgs args;
  args.q = q.data();
  args.k = k.data();
  args.v = v.data();
  args.out = out.data();
  args.workspace = workspace.get();
  args.workspace_bytes = bytes;
  ThreadPool pool(shape.threads);
  const CpuPeak peak = measure_cpu_peak(shape.isa, pool, 0.1);
  for (auto _ : state) cpu_forward(problem, spec, args, pool);
  const double flops = 4.0 * problem.heads_q * shape.head_dim *
                       visible_pairs(shape.seqlen, shape.seqlen, problem.mask);
  using benchmark::Counter;
  state.counters["GFLOP/s"] = Counter(flops * 1e-9, Counter::kIsIterationInvariantRate);
  if (peak.flops_per_second > 0) {
    state.counters["share"] =
        Counter(flops / peak.flops_per_second, Counter::kIsIterationInvariantRate);
  }
}

void add(const Shape& shape) {
  if (!has_isa(host_cpu_spec().cpu, shape.isa) || !isa_supports(shape.isa, shape.dtype)) return;
  const std::string name = "forward/" + std::string(name_of(shape.isa)) + "/" +
                           std::string(name_of(shape.dtype)) + "/s" + std::to_string(shape.seqlen) +
                           "/d" + std::to_string(shape.head_dim) + (shape.causal ? "/causal" : "") +
                           "/t" + std::to_string(shape.threads) + "/tile" +
                           std::to_string(shape.tile_m) + "x" + std::to_string(shape.tile_n);
  benchmark::RegisterBenchmark(name.c_str(), run_forward, shape)
      ->UseRealTime()
      ->MeasureProcessCPUTime()
      ->Unit(benchmark::kMillisecond);
}

const bool kRegistered = [] {
  struct Tile {
    int m, n;
  };
  const Tile of_vectors[] = {{0, 0}, {96, 128}, {192, 128}, {192, 256}, {288, 256}};
  const Tile of_amx[] = {{0, 0},     {256, 128}, {256, 256},  {256, 512},
                         {512, 128}, {512, 256}, {1024, 128}, {1024, 256}};
  for (int threads : {1, 2}) {
    for (int64_t head_dim : {64, 128}) {
      for (bool causal : {false, true}) {
        for (const Tile& tile : of_vectors) {
          add({CpuIsa::kAvx512Bf16, DType::kBF16, 8192, head_dim, causal, tile.m, tile.n, threads});
          add({CpuIsa::kAvx512, DType::kF32, 4096, head_dim, causal, tile.m, tile.n, threads});
          add({CpuIsa::kAvx2, DType::kF32, 4096, head_dim, causal, tile.m, tile.n, threads});
        }
        for (const Tile& tile : of_amx) {
          add({CpuIsa::kAmxBf16, DType::kBF16, 8192, head_dim, causal, tile.m, tile.n, threads});
        }
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace fa4::internal
