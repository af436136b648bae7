// fa4_merge of fa4.h.
#include <fmt/format.h>

#include "attention/cpu_threads.h"
#include "capi/boundary.h"
#include "capi/convert.h"
#include "capi/handles.h"
#include "cpu/merge.h"

namespace internal = fa4::internal;

namespace {

using internal::Error;
using internal::ErrorCode;

}  // namespace

extern "C" fa4_status fa4_merge(fa4_device* device, const fa4_merge_args* given) {
  return internal::guarded([&] {
    internal::require(device, "device");
    const internal::MergeArgs args = checked(internal::to_args(given));
    if (device->device != nullptr) {
      throw Error(ErrorCode::kNotSupported,
                  fmt::format("fa4_merge: device {} is not in this version; accepted: cpu",
                              device->spec.name));
    }
    internal::check_host_stream(args.stream);
    cpu_merge(args, device->threads());
  });
}
