// fa4_append of fa4.h.
#include "cpu/append.h"
#include "attention/cpu_threads.h"
#include "capi/boundary.h"
#include "capi/convert.h"
#include "capi/handles.h"
#include "core/error.h"
#include "plan/gpu_append_plan.h"

namespace internal = fa4::internal;

namespace {

void append_on_gpu(fa4_device& device, const internal::AttentionProblem& problem,
                   const internal::AppendArgs& given) {
  const internal::AppendArgs args = completed(problem, given);
  const internal::Support support = query_append_support(problem, args, device.spec);
  if (!support.supported) {
    throw internal::Error(internal::ErrorCode::kNotSupported, "fa4_append: " + support.reason);
  }
  device.append_op(problem, args.stream)->execute(problem, args);
}

}  // namespace

extern "C" fa4_status fa4_append(fa4_device* device, const fa4_problem* given_problem,
                                 const fa4_append_args* given_args) {
  return internal::guarded([&] {
    internal::require(device, "device");
    const internal::AttentionProblem problem =
        internal::to_problem(internal::read_problem(given_problem));
    const internal::AppendArgs given = internal::to_args(given_args);
    if (device->device != nullptr) return append_on_gpu(*device, problem, given);
    const internal::AppendArgs args = checked(problem, given);
    internal::check_host_stream(args.stream);
    cpu_append(problem, args, device->threads());
  });
}
