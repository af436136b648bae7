#include "core/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace fa4::internal {
namespace {

class ThreadPoolSizes : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolSizes, RunsEveryTaskOnceOnAWorkerOfItsOwn) {
  const int num_threads = GetParam();
  ThreadPool pool(num_threads);
  EXPECT_EQ(pool.num_threads(), num_threads);
  for (int64_t num_tasks : {0, 1, 2, 5, 1000}) {
    std::vector<std::atomic<int>> runs(num_tasks);
    std::vector<std::atomic<int>> busy(num_threads);
    std::atomic<int> wrong{0};
    pool.run(num_tasks, [&](int64_t task, int worker) {
      if (worker < 0 || worker >= num_threads || busy[worker].fetch_add(1) != 0) ++wrong;
      ++runs[task];
      --busy[worker];
    });
    EXPECT_EQ(wrong, 0);
    for (const std::atomic<int>& count : runs) EXPECT_EQ(count, 1);
  }
}

TEST_P(ThreadPoolSizes, HandsTasksOutInOrder) {
  ThreadPool pool(GetParam());
  std::vector<int64_t> last(GetParam(), -1);
  std::atomic<int> wrong{0};
  pool.run(2000, [&](int64_t task, int worker) {
    if (task <= last[worker]) ++wrong;
    last[worker] = task;
  });
  EXPECT_EQ(wrong, 0);
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolSizes, testing::Values(1, 2, 3, 7));

// Every result is there when run returns, whether the workers are awake or asleep.
TEST(ThreadPool, ResultsAreVisibleAfterManyShortJobs) {
  ThreadPool pool(3);
  std::vector<int64_t> results(8);
  for (int64_t round = 0; round < 3000; ++round) {
    if (round % 1000 == 999) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    pool.run(8, [&](int64_t task, int) { results[task] = round * 8 + task; });
    for (int64_t task = 0; task < 8; ++task) ASSERT_EQ(results[task], round * 8 + task);
  }
}

TEST(ThreadPool, ServesCallersOnSeveralThreads) {
  ThreadPool pool(3);
  std::atomic<int> inside{0};
  std::atomic<int> wrong{0};
  std::vector<int64_t> sums(8);
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 8; ++caller) {
    callers.emplace_back([&, caller] {
      for (int round = 0; round < 50; ++round) {
        std::atomic<int64_t> sum{0};
        std::atomic<int> begun{0};
        std::atomic<int> done{0};
        pool.run(20, [&](int64_t task, int) {
          if (begun.fetch_add(1) == 0 && inside.fetch_add(1) != 0) ++wrong;
          sum += task;
          if (done.fetch_add(1) == 19) --inside;
        });
        sums[caller] += sum;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0) << "two jobs of one pool ran at once";
  for (int64_t sum : sums) EXPECT_EQ(sum, 50 * 190);
}

TEST(ThreadPool, TasksRunSideBySide) {
  ThreadPool pool(2);
  std::atomic<int> arrived{0};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(5);
  pool.run(2, [&](int64_t, int) {
    ++arrived;
    while (arrived < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  });
  EXPECT_LT(std::chrono::steady_clock::now(), deadline) << "the tasks ran one after the other";
}

// In a forked child, whose parent was at work: 0 if the child ran all tasks and ended the pool.
int run_in_child(std::unique_ptr<ThreadPool>& pool) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    int64_t ran = 0;  // one thread, so no two tasks at once
    pool->run(100, [&](int64_t, int worker) { ran += worker == 0; });
    pool.reset();
    _exit(ran == 100 ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST(ThreadPool, AForkedChildIsAloneWhateverTheParentDoes) {
  auto pool = std::make_unique<ThreadPool>(3);
  EXPECT_EQ(run_in_child(pool), 0) << "idle";
  std::atomic<int> inside{0};
  std::atomic<bool> goes_on{false};
  std::thread caller([&] {
    pool->run(3, [&](int64_t, int) {
      ++inside;
      while (!goes_on) std::this_thread::yield();
    });
  });
  while (inside != 3) std::this_thread::yield();
  EXPECT_EQ(run_in_child(pool), 0) << "busy";
  goes_on = true;
  caller.join();
}

}  // namespace
}  // namespace fa4::internal
