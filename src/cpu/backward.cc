#include "cpu/backward.h"

#include "cpu/row_delta.h"
#include "cpu/scalar_backward.h"
#include "cpu/tiled_backward.h"

namespace fa4::internal {
namespace {

// NULL: the scalar path, which has no tiles.
RunBackwardBlock run_block_of(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kAvx2: return run_backward_block_avx2;
    case CpuIsa::kAvx512: return run_backward_block_avx512;
    case CpuIsa::kAvx512Bf16: return run_backward_block_avx512_bf16;
    case CpuIsa::kAmxBf16: return run_backward_block_amx;
    case CpuIsa::kAmxModel: return run_backward_block_amx_model;
    default: return nullptr;
  }
}

}  // namespace

void cpu_backward(const AttentionProblem& problem, const CpuBackwardSpec& spec,
                  const BackwardArgs& args, ThreadPool& pool) {
  auto* delta = static_cast<double*>(args.workspace);  // the layout's first part
  compute_row_delta(problem, args, delta, pool);
  compute_dsink(problem, args, delta, pool);
  const RunBackwardBlock run_block = run_block_of(spec.isa);
  if (run_block == nullptr) {
    scalar_backward(problem, spec, args, delta, pool);
  } else {
    tiled_backward(problem, spec, args, delta, pool, run_block);
  }
}

}  // namespace fa4::internal
