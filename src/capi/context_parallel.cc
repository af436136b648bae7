// The functions of distributed.h.
#include <fmt/format.h>

#include "capi/boundary.h"
#include "capi/convert.h"
#include "capi/handles.h"
#include "distributed/local_communicator.h"
#include "distributed/nccl_communicator.h"
#include "fa4/distributed.h"

namespace internal = fa4::internal;

struct fa4_communicator {
  std::shared_ptr<internal::Communicator> communicator;
};

namespace {

using internal::ContextOptions;
using internal::Error;
using internal::ErrorCode;

constexpr int kMostLocalRanks = 1024;

ContextOptions to_options(const fa4_context_parallel_options* given) {
  ContextOptions options;
  if (given == nullptr) return options;
  const auto read = internal::read_struct(given, "options", "fa4_context_parallel_options");
  options.method = static_cast<internal::ContextMethod>(read.method);
  options.layout = static_cast<internal::SequenceLayout>(read.layout);
  options.num_threads = internal::to_num_threads(read.num_threads);
  options.slices = read.slices;
  return options;
}

// `make`: plan_context_forward or plan_context_backward.
template <class Make>
void make_plan(const fa4_device* device, const fa4_communicator* communicator,
               const fa4_problem* problem, const fa4_context_parallel_options* options,
               fa4_plan** plan, const Make& make) {
  internal::require(device, "device");
  internal::require(communicator, "communicator");
  internal::require(plan, "plan");
  const internal::AttentionProblem whole = internal::to_problem(internal::read_problem(problem));
  auto handle = std::make_unique<fa4_plan>();
  auto made = make(whole, device->spec, communicator->communicator, to_options(options));
  handle->kernel_name = kernel_name(made);
  handle->plan = std::move(made);
  handle->device = device->device;
  *plan = handle.release();
}

}  // namespace

extern "C" {

fa4_status fa4_create_local_communicators(int32_t ranks, fa4_communicator** communicators) {
  return internal::guarded([&] {
    internal::require(communicators, "communicators");
    if (ranks < 1 || ranks > kMostLocalRanks) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("ranks {}; accepted: 1 to {}", ranks, kMostLocalRanks));
    }
    std::vector<std::unique_ptr<fa4_communicator>> handles;
    for (auto& communicator : internal::local_communicators(ranks)) {
      handles.push_back(std::make_unique<fa4_communicator>());
      handles.back()->communicator = std::move(communicator);
    }
    for (size_t r = 0; r < handles.size(); ++r) communicators[r] = handles[r].release();
  });
}

fa4_status fa4_communicator_of_nccl(void* nccl_comm, fa4_communicator** communicator) {
  return internal::guarded([&] {
    internal::require(nccl_comm, "nccl_comm");
    internal::require(communicator, "communicator");
    auto handle = std::make_unique<fa4_communicator>();
    handle->communicator = internal::nccl_communicator(
        internal::nccl_api(), static_cast<internal::NcclApi::Comm>(nccl_comm));
    *communicator = handle.release();
  });
}

int32_t fa4_communicator_rank(const fa4_communicator* communicator) {
  return communicator == nullptr ? -1 : communicator->communicator->rank();
}

int32_t fa4_communicator_size(const fa4_communicator* communicator) {
  return communicator == nullptr ? -1 : communicator->communicator->size();
}

void fa4_destroy_communicator(fa4_communicator* communicator) {
  if (communicator == nullptr) return;
  communicator->communicator->leave();
  delete communicator;
}

fa4_status fa4_sequence_positions(int32_t ranks, int64_t seqlen, int32_t layout, int32_t rank,
                                  int64_t* positions) {
  return internal::guarded([&] {
    const internal::SequencePartition partition(ranks, seqlen,
                                                static_cast<internal::SequenceLayout>(layout));
    if (rank < 0 || rank >= ranks) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("rank {}; accepted: 0 to {}", rank, ranks - 1));
    }
    if (positions == nullptr) return;
    for (const internal::Chunk& chunk : partition.chunks(rank)) {
      for (int64_t i = 0; i < chunk.length; ++i) positions[chunk.slot + i] = chunk.start + i;
    }
  });
}

fa4_status fa4_plan_context_parallel_forward(const fa4_device* device,
                                             const fa4_communicator* communicator,
                                             const fa4_problem* problem,
                                             const fa4_context_parallel_options* options,
                                             fa4_plan** plan) {
  return internal::guarded([&] {
    make_plan(device, communicator, problem, options, plan, internal::plan_context_forward);
  });
}

fa4_status fa4_plan_context_parallel_backward(const fa4_device* device,
                                              const fa4_communicator* communicator,
                                              const fa4_problem* problem,
                                              const fa4_context_parallel_options* options,
                                              fa4_plan** plan) {
  return internal::guarded([&] {
    make_plan(device, communicator, problem, options, plan, internal::plan_context_backward);
  });
}

}  // extern "C"
