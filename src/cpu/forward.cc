#include "cpu/forward.h"

#include "cpu/scalar_forward.h"
#include "cpu/tiled_forward.h"

namespace fa4::internal {
namespace {

// NULL: the scalar path, which has no tiles.
RunTile run_tile_of(const CpuKernelSpec& spec) {
  if (spec.looks_up_bytes) return run_e4m3_rows_avx512_vbmi;
  if (spec.direct) return spec.isa == CpuIsa::kAvx2 ? run_rows_avx2 : run_rows_avx512;
  switch (spec.isa) {
    case CpuIsa::kScalar: return nullptr;
    case CpuIsa::kAvx2: return run_tile_avx2;
    case CpuIsa::kAvx512: return run_tile_avx512;
    case CpuIsa::kAvx512Bf16: return run_tile_avx512_bf16;
    case CpuIsa::kAvx512Fp16: return nullptr;
    case CpuIsa::kAmxBf16: return run_tile_amx;
    case CpuIsa::kAmxModel: return run_tile_amx_model;
  }
  return nullptr;
}

}  // namespace

void cpu_forward(const AttentionProblem& problem, const CpuKernelSpec& spec,
                 const ForwardArgs& args, ThreadPool& pool) {
  const RunTile run_tile = run_tile_of(spec);
  if (run_tile == nullptr) {
    scalar_forward(problem, spec, args, pool);
  } else {
    tiled_forward(problem, spec, args, pool, run_tile);
  }
}

}  // namespace fa4::internal
