// A rank of NCCL's: one GPU of a process or of several, on one machine or more.
#pragma once

#include <memory>

#include "distributed/communicator.h"
#include "distributed/nccl_api.h"

namespace fa4::internal {

// `comm` is borrowed and outlives what is executed. `api` outlives the communicator. A rank that
// fails before its exchange leaves the others waiting, as in every program over NCCL. Throws
// Error{kDriver} when NCCL does.
std::shared_ptr<Communicator> nccl_communicator(const NcclApi& api, NcclApi::Comm comm);

}  // namespace fa4::internal
