// The threads of the CPU's operations, and what they demand of a stream.
#pragma once

#include <memory>

#include "core/thread_pool.h"

namespace fa4::internal {

// Those of a living operation of this process with as many, or new ones: operations that share them
// are served one after another. Throws Error{kOutOfMemory}.
std::shared_ptr<ThreadPool> shared_threads(int num_threads);

// Throws Error{kInvalidArgument} unless `stream` is NULL.
void check_host_stream(const void* stream);

}  // namespace fa4::internal
