// A fixed set of threads that run numbered tasks. No allocation after construction.
#pragma once

#include <cstdint>
#include <memory>

namespace fa4::internal {

class ThreadPool {
 public:
  // `num_threads` counts the calling thread: 1 starts none. Threads are pinned to nothing.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;

  // Calls body(task, worker) for every task in [0, num_tasks), worker in [0, num_threads); returns
  // when all are done. Tasks are handed out in increasing order, one at a time (so order the
  // longest first). Callers on several threads are served one after another, or side by side when
  // the caller alone is enough (one task, or one thread). Neither allocates nor throws. `body` must
  // not throw, nor call run of the same pool. In a child that the process forked, whatever its
  // other threads were about then, the caller is alone, and so is whoever destroys the pool there.
  template <class Body>
  void run(int64_t num_tasks, const Body& body) {
    run_erased(
        num_tasks,
        [](const void* context, int64_t task, int worker) {
          (*static_cast<const Body*>(context))(task, worker);
        },
        &body);
  }

 private:
  using Function = void (*)(const void* context, int64_t task, int worker);
  void run_erased(int64_t num_tasks, Function function, const void* context);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fa4::internal
