#include "attention/gpu_cut.h"

#include "core/rounding.h"
#include "kernels/sequences/params.h"
#include "plan/kernel_spec.h"

namespace fa4::internal {

GpuCut::GpuCut(std::shared_ptr<Device> device, void* stream)
    : gpu_(std::move(device), {KernelStep{.source = cut_source(), .threads = kCutThreads}}, {},
           stream) {}

void GpuCut::execute(const CutArgs& a, void* stream) const {
  const CutParams params{.cu_seqlens_q = a.cu_seqlens_q,
                         .cu_seqlens_k = a.cu_seqlens_k,
                         .shard_q = a.shard_q,
                         .shard_k = a.shard_k,
                         .count = static_cast<int32_t>(a.count),
                         .first_query = static_cast<int32_t>(a.first_query),
                         .end_query = static_cast<int32_t>(a.end_query),
                         .first_key = static_cast<int32_t>(a.first_key),
                         .end_key = static_cast<int32_t>(a.end_key)};
  gpu_.launch(0, static_cast<int>(ceil_div(a.count, kCutThreads)), params, stream);
}

}  // namespace fa4::internal
