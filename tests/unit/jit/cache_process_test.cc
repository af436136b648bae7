// The disk cache between processes: real ones, started by fork and exec.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <thread>
#include <vector>

#include "test_kernels.h"

namespace fa4::internal {
namespace {

namespace fs = std::filesystem;

pid_t start(const fs::path& folder, int pause_ms, const char* mode) {
  const std::string cache = (folder / "cache").string();
  const std::string counter = (folder / "counter").string();
  const std::string pause = std::to_string(pause_ms);
  const pid_t child = fork();
  if (child != 0) return child;
  execl(FA4_CACHE_CLIENT, "cache_client", cache.c_str(), counter.c_str(), pause.c_str(), mode,
        static_cast<char*>(nullptr));
  _exit(127);
}

// Of what waitpid said; minus the signal that ended the process.
int exit_status_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int exit_status(pid_t child) {
  int status = 0;
  return waitpid(child, &status, 0) == child ? exit_status_of(status) : -1;
}

uintmax_t compilations(const fs::path& folder) {
  std::error_code error;
  const uintmax_t size = fs::file_size(folder / "counter", error);
  return error ? 0 : size;
}

TEST(CacheProcesses, OfEightExactlyOneCompiles) {
  const TemporaryFolder folder;
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) children.push_back(start(folder.path(), 300, "work"));
  for (const pid_t child : children) EXPECT_EQ(exit_status(child), 0);
  EXPECT_EQ(compilations(folder.path()), 1u);
}

TEST(CacheProcesses, NobodyWaitsForADeadHolder) {
  const TemporaryFolder folder;
  const pid_t dying = start(folder.path(), 200, "die");
  int status = 0;
  bool has_ended = false;
  while (compilations(folder.path()) == 0 && !has_ended) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    has_ended = waitpid(dying, &status, WNOHANG) != 0;
  }
  ASSERT_EQ(compilations(folder.path()), 1u) << "it ended first: " << exit_status_of(status);
  const pid_t waiting = start(folder.path(), 0, "work");
  EXPECT_EQ(exit_status(waiting), 0);  // 4: it gave up waiting
  EXPECT_EQ(has_ended ? exit_status_of(status) : exit_status(dying), -SIGKILL);
  EXPECT_EQ(compilations(folder.path()), 2u);
}

}  // namespace
}  // namespace fa4::internal
