#include "attention/gpu_sum.h"

#include "attention/forward_params.h"
#include "core/rounding.h"
#include "kernels/sums/params.h"
#include "kernels/sums/traits.h"
#include "plan/kernel_spec.h"

namespace fa4::internal {

GpuSum::GpuSum(std::shared_ptr<Device> device, void* stream)
    : gpu_(std::move(device), {KernelStep{.source = sum_source(), .threads = kSumThreads}}, {},
           stream) {}

void GpuSum::execute(const SumArgs& a, void* stream) const {
  const int64_t elements = a.rows * a.columns;
  if (elements == 0) return;
  const SumParams params{.parts = a.parts,
                         .part_stride = a.part_stride / 4,
                         .part_pitch = a.part_pitch,
                         .to = a.to,
                         .to_pitch = a.to_pitch,
                         .elements = elements,
                         .columns = static_cast<uint32_t>(a.columns),
                         .num_parts = a.num_parts,
                         .to_type = float_type(a.to_type)};
  gpu_.launch(0, static_cast<int>(ceil_div(elements, kSumElements)), params, stream);
}

}  // namespace fa4::internal
