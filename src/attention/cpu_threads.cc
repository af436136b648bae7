#include "attention/cpu_threads.h"

#include <unistd.h>

#include <map>
#include <mutex>

#include <fmt/format.h>

#include "core/error.h"

namespace fa4::internal {

std::shared_ptr<ThreadPool> shared_threads(int num_threads) {
  static std::mutex mutex;
  static std::map<int, std::weak_ptr<ThreadPool>> pools;
  static pid_t owner = getpid();
  const std::lock_guard lock(mutex);
  // The threads of a pool stay behind in the parent when the process forks.
  if (owner != getpid()) {
    pools.clear();
    owner = getpid();
  }
  std::weak_ptr<ThreadPool>& slot = pools[num_threads];
  std::shared_ptr<ThreadPool> pool = slot.lock();
  if (pool == nullptr) {
    pool = std::make_shared<ThreadPool>(num_threads);
    slot = pool;
  }
  return pool;
}

void check_host_stream(const void* stream) {
  if (stream == nullptr) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("stream {}; accepted: NULL on the CPU", stream));
}

}  // namespace fa4::internal
