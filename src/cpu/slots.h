// Tasks on as many threads as a plan has scratch for.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "core/thread_pool.h"

namespace fa4::internal {

// Runs body(task, slot) for tasks [0, count), handed out in increasing order, on at most `slots`
// threads at once, each with a slot of its own: a slot is a thread's scratch, whatever the pool's
// size.
template <class Body>
void run_in_slots(ThreadPool& pool, int slots, int64_t count, const Body& body) {
  std::atomic<int64_t> next{0};
  pool.run(std::min<int64_t>(slots, count), [&](int64_t slot, int) {
    for (int64_t task = next.fetch_add(1, std::memory_order_relaxed); task < count;
         task = next.fetch_add(1, std::memory_order_relaxed)) {
      body(task, slot);
    }
  });
}

}  // namespace fa4::internal
