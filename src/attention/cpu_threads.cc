#include "attention/cpu_threads.h"

#include <unistd.h>

#include <atomic>
#include <map>
#include <mutex>

#include <fmt/format.h>

#include "core/error.h"

namespace fa4::internal {
namespace {

struct Pools {
  explicit Pools(Pools* parent) : of_parent(parent) {}

  Pools* const of_parent;
  const pid_t process = getpid();
  std::mutex mutex;
  std::map<int, std::weak_ptr<ThreadPool>> by_threads;
};

// Those of this process. A forked child has its own: the parent's threads stayed behind, and one of
// them may have held the mutex. What the parent had is kept, since nobody can tell who uses it.
Pools& pools() {
  static std::atomic<Pools*> current{new Pools(nullptr)};
  Pools* found = current.load();
  while (found->process != getpid()) {
    auto* fresh = new Pools(found);
    if (current.compare_exchange_strong(found, fresh)) return *fresh;
    delete fresh;
  }
  return *found;
}

}  // namespace

std::shared_ptr<ThreadPool> shared_threads(int num_threads) {
  Pools& of = pools();
  const std::lock_guard lock(of.mutex);
  std::weak_ptr<ThreadPool>& slot = of.by_threads[num_threads];
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
