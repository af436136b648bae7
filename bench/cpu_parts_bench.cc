// Parts of the CPU path alone: packing, and the scalar exponential of every degree.
#include <benchmark/benchmark.h>

#include <vector>

#include "cpu/exponential.h"
#include "cpu/pack.h"

namespace fa4::internal {
namespace {

void pack_block(benchmark::State& state, CpuIsa isa, DType dtype, bool values) {
  ProblemDesc desc;
  desc.dtype = dtype;
  desc.batch = 1;
  desc.seqlen_q = desc.seqlen_k = 256;
  desc.heads_q = desc.heads_kv = 1;
  desc.head_dim = 128;
  const AttentionProblem problem = AttentionProblem::make(desc);
  const std::vector<unsigned char> data(static_cast<size_t>(256 * 128 * size_of(dtype)), 0x3c);
  ForwardArgs args;
  args.k = args.v = data.data();
  const TensorRows rows(problem, args, sequence_view(problem, args, 0), 0, 0, values);
  const BlockSource source{dtype, data.data(), rows, 0, 256, 256, 128, 128};
  std::vector<uint32_t> packed(256 * 128);
  for (auto _ : state) {
    if (values) {
      benchmark::DoNotOptimize(pack_values(source, cpu_packing(isa), packed.data()));
    } else {
      pack_keys(source, cpu_packing(isa), packed.data());
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(data.size()));
}
BENCHMARK_CAPTURE(pack_block, keys_bf16_pairs, CpuIsa::kAvx512Bf16, DType::kBF16, false);
BENCHMARK_CAPTURE(pack_block, values_bf16_pairs, CpuIsa::kAvx512Bf16, DType::kBF16, true);
BENCHMARK_CAPTURE(pack_block, keys_f32, CpuIsa::kAvx512, DType::kF32, false);
BENCHMARK_CAPTURE(pack_block, values_f32, CpuIsa::kAvx512, DType::kF32, true);
BENCHMARK_CAPTURE(pack_block, keys_f16, CpuIsa::kAvx512, DType::kF16, false);

void scalar_exp2(benchmark::State& state) {
  float x = -3.7f;
  for (auto _ : state)
    benchmark::DoNotOptimize(x = exp2_polynomial(static_cast<int>(state.range(0)), x) - 4);
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(scalar_exp2)->DenseRange(3, 6);

}  // namespace
}  // namespace fa4::internal
