#include "cpu/backward.h"

#include "cpu/row_delta.h"
#include "cpu/scalar_backward.h"

namespace fa4::internal {

void cpu_backward(const AttentionProblem& problem, const CpuBackwardSpec& spec,
                  const BackwardArgs& args, ThreadPool& pool) {
  const WorkspaceLayout layout = cpu_backward_workspace(problem, spec);
  auto* delta =
      reinterpret_cast<float*>(static_cast<char*>(args.workspace) + layout.find(kDelta)->offset);
  compute_row_delta(problem, args, delta, pool);
  compute_dsink(problem, args, delta, pool);
  scalar_backward(problem, spec, args, delta, pool);
}

}  // namespace fa4::internal
