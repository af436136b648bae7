#include "core/thread_pool.h"

#include <unistd.h>

#include <atomic>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "core/error.h"

namespace fa4::internal {
namespace {

// About 20 us: a caller that runs one job after another finds its threads awake.
constexpr int kSpins = 1000;

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Returns when `word` differs from `old`: spins briefly, then sleeps.
void wait_while_equal(const std::atomic<int>& word, int old) {
  for (int i = 0; i < kSpins; ++i) {
    if (word.load(std::memory_order_acquire) != old) return;
    relax();
  }
  word.wait(old, std::memory_order_acquire);
}

constexpr int kOpen = 1 << 30;  // in State::gate: workers may enter the job

}  // namespace

// The job's fields are written while the gate is closed and empty, and read by those inside: a
// worker that wakes late finds the gate closed and touches nothing.
struct ThreadPool::State {
  // Threads stay behind in the parent when the process forks, and with them whatever they hold.
  const pid_t process = getpid();
  std::mutex callers;         // one job at a time
  std::atomic<int> epoch{0};  // changes when a job begins: what idle workers wait on
  std::atomic<int> gate{0};   // kOpen, and how many workers are inside
  std::atomic<bool> stop{false};
  std::atomic<int64_t> next_task{0};
  int64_t num_tasks = 0;
  Function function = nullptr;
  const void* context = nullptr;
  std::vector<std::thread> threads;

  void run_tasks(int worker) {
    for (int64_t task = next_task.fetch_add(1, std::memory_order_relaxed); task < num_tasks;
         task = next_task.fetch_add(1, std::memory_order_relaxed)) {
      function(context, task, worker);
    }
  }

  bool enter() {
    int seen = gate.load(std::memory_order_relaxed);
    while ((seen & kOpen) != 0) {
      if (gate.compare_exchange_weak(seen, seen + 1, std::memory_order_acquire)) return true;
    }
    return false;
  }

  void leave() {
    // The last one out of a closed gate wakes the caller.
    if (gate.fetch_sub(1, std::memory_order_release) == 1) gate.notify_one();
  }

  void work(int worker) {
    int seen = 0;
    while (true) {
      wait_while_equal(epoch, seen);
      seen = epoch.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_relaxed)) return;
      if (!enter()) continue;
      run_tasks(worker);
      leave();
    }
  }

  void wake_workers() {
    epoch.fetch_add(1, std::memory_order_release);
    epoch.notify_all();
  }

  bool is_of_parent() const { return process != getpid(); }

  void join() {
    stop.store(true, std::memory_order_relaxed);
    wake_workers();
    for (std::thread& thread : threads) thread.join();
  }
};

ThreadPool::ThreadPool(int num_threads) : state_(std::make_unique<State>()) {
  State* state = state_.get();
  state->threads.reserve(num_threads > 1 ? num_threads - 1 : 0);
  try {
    for (int worker = 1; worker < num_threads; ++worker) {
      state->threads.emplace_back([state, worker] { state->work(worker); });
    }
  } catch (const std::system_error& error) {
    const size_t started = state->threads.size() + 1;
    state->join();
    throw Error(ErrorCode::kOutOfMemory,
                fmt::format("num_threads {}: the system started only {} ({})", num_threads, started,
                            error.what()));
  } catch (...) {
    state->join();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  if (state_->is_of_parent()) {
    // Threads that are not here can be neither joined nor left.
    static_cast<void>(state_.release());
  } else {
    state_->join();
  }
}

int ThreadPool::num_threads() const { return static_cast<int>(state_->threads.size()) + 1; }

void ThreadPool::run_erased(int64_t num_tasks, Function function, const void* context) {
  State& s = *state_;
  if (s.threads.empty() || num_tasks <= 1 || s.is_of_parent()) {
    // Worker 0 alone: nothing is shared with other callers.
    for (int64_t task = 0; task < num_tasks; ++task) function(context, task, 0);
    return;
  }
  const std::lock_guard lock(s.callers);
  s.function = function;
  s.context = context;
  s.num_tasks = num_tasks;
  s.next_task.store(0, std::memory_order_relaxed);
  s.gate.store(kOpen, std::memory_order_release);
  s.wake_workers();
  s.run_tasks(0);
  int inside = s.gate.fetch_and(~kOpen, std::memory_order_acquire) & ~kOpen;
  while (inside != 0) {
    wait_while_equal(s.gate, inside);
    inside = s.gate.load(std::memory_order_acquire);
  }
}

}  // namespace fa4::internal
