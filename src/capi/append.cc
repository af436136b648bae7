// fa4_append of fa4.h.
#include "cpu/append.h"
#include "attention/cpu_threads.h"
#include "capi/boundary.h"
#include "capi/convert.h"
#include "capi/handles.h"

namespace internal = fa4::internal;

extern "C" fa4_status fa4_append(fa4_device* device, const fa4_problem* given_problem,
                                 const fa4_append_args* given_args) {
  return internal::guarded([&] {
    internal::require(device, "device");
    const internal::AttentionProblem problem =
        internal::to_problem(internal::read_problem(given_problem));
    const internal::AppendArgs given = internal::to_args(given_args);
    device->require_cpu("fa4_append");
    const internal::AppendArgs args = checked(problem, given);
    internal::check_host_stream(args.stream);
    cpu_append(problem, args, device->threads());
  });
}
