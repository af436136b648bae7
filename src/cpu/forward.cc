#include "cpu/forward.h"

#include "cpu/scalar_forward.h"

namespace fa4::internal {

void cpu_forward(const AttentionProblem& problem, const CpuKernelSpec& spec,
                 const ForwardArgs& args, ThreadPool& pool) {
  scalar_forward(problem, spec, args, pool);
}

}  // namespace fa4::internal
