// fa4_merge of fa4.h.
#include "cpu/merge.h"
#include "attention/cpu_threads.h"
#include "attention/gpu_merge.h"
#include "capi/boundary.h"
#include "capi/convert.h"
#include "capi/handles.h"

namespace internal = fa4::internal;

extern "C" fa4_status fa4_merge(fa4_device* device, const fa4_merge_args* given) {
  return internal::guarded([&] {
    internal::require(device, "device");
    const internal::MergeArgs args = checked(internal::to_args(given));
    if (device->device != nullptr) return internal::gpu_merge(args, device->device);
    internal::check_host_stream(args.stream);
    cpu_merge(args, device->threads());
  });
}
