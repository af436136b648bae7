// Ranks that are threads of one process, over memory that all of them can read: the host's, and
// that of emulated devices.
#pragma once

#include <memory>
#include <vector>

#include "distributed/communicator.h"

namespace fa4::internal {

// One of each rank, in their order. `ranks` is 1 or more.
//
// A rank that fails in an execution, or leaves, wakes those that wait for it in the same one, with
// an error that has its words; so do ranks whose exchanges are not the same. All ranks are then
// through with this execution, and the next one finds them together again.
std::vector<std::shared_ptr<Communicator>> local_communicators(int ranks);

}  // namespace fa4::internal
