#include "jit/disk_cache.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <fstream>

#include "test_kernels.h"

namespace fa4::internal {
namespace {

using std::chrono::milliseconds;
namespace fs = std::filesystem;

TEST(DiskCache, StoresAndLoads) {
  const TemporaryFolder folder;
  const DiskCache cache((folder.path() / "made" / "on demand").string());
  EXPECT_FALSE(cache.load("key"));
  ASSERT_TRUE(cache.store("key", stub_image(scale_by(2), "sm_90a")));
  const auto image = cache.load("key");
  ASSERT_TRUE(image);
  EXPECT_EQ(image->display_name, "scale_2");
  EXPECT_FALSE(cache.load("other"));
  EXPECT_EQ(fs::status(cache.folder()).permissions(), fs::perms::owner_all);
}

TEST(DiskCache, OffFindsAndStoresNothing) {
  const DiskCache cache("");
  EXPECT_FALSE(cache.store("key", stub_image(scale_by(2), "sm_90a")));
  EXPECT_FALSE(cache.load("key"));
  EXPECT_TRUE(cache.list().empty());
  EXPECT_EQ(cache.clear(), 0u);
  const DiskCache::Lock lock(cache, "key", milliseconds(0));
  EXPECT_FALSE(lock.held());
  EXPECT_FALSE(lock.timed_out());
}

TEST(DiskCache, WhatOthersMayWriteIsNotRun) {
  const TemporaryFolder folder;
  const DiskCache cache(folder.string());
  ASSERT_TRUE(cache.store("key", stub_image(scale_by(2), "sm_90a")));
  ASSERT_TRUE(cache.load("key"));
  EXPECT_EQ(cache.problem(), "");
  for (const fs::perms others : {fs::perms::group_write, fs::perms::others_write}) {
    fs::permissions(folder.path(), others, fs::perm_options::add);
    EXPECT_FALSE(cache.load("key"));
    EXPECT_FALSE(cache.store("other", stub_image(scale_by(3), "sm_90a")));
    EXPECT_TRUE(cache.list().empty());
    EXPECT_EQ(cache.clear(), 0u);
    EXPECT_FALSE(DiskCache::Lock(cache, "key", milliseconds(0)).held());
    EXPECT_NE(cache.problem().find("may be written by others (mode 07"), std::string::npos)
        << cache.problem();
    fs::permissions(folder.path(), others, fs::perm_options::remove);
    EXPECT_TRUE(cache.load("key"));

    const fs::path entry = folder.path() / "key.fa4image";
    fs::permissions(entry, others, fs::perm_options::add);
    EXPECT_FALSE(cache.load("key"));
    fs::permissions(entry, others, fs::perm_options::remove);
    EXPECT_TRUE(cache.load("key"));
  }
}

TEST(DiskCache, AnotherUsersFolderIsNotUsed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  const TemporaryFolder folder;
  const DiskCache cache(folder.string());
  ASSERT_TRUE(cache.store("key", stub_image(scale_by(2), "sm_90a")));
  ASSERT_EQ(chown(folder.string().c_str(), 12345, 12345), 0);
  EXPECT_FALSE(cache.load("key"));
  EXPECT_NE(cache.problem().find("belongs to user 12345"), std::string::npos) << cache.problem();
}

TEST(DiskCache, ListsAndClears) {
  const TemporaryFolder folder;
  const DiskCache cache(folder.string());
  ASSERT_TRUE(cache.store("one", stub_image(scale_by(1), "sm_90a")));
  ASSERT_TRUE(cache.store("two", stub_image(scale_by(2), "sm_100a")));
  { const DiskCache::Lock lock(cache, "one", milliseconds(0)); }
  std::ofstream(folder.path() / "bad.fa4image") << "fa4image, but damaged";
  std::ofstream(folder.path() / "mine.fa4image") << "not ours";
  fs::create_directory(folder.path() / "folder.fa4image");
  std::ofstream(folder.path() / "left.tmp") << "by a process that died";
  std::ofstream(folder.path() / "notes.txt") << "not ours";
  EXPECT_EQ(cache.list().size(), 2u);
  EXPECT_EQ(cache.clear(), 3u);
  EXPECT_TRUE(cache.list().empty());
  size_t left = 0;
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    const std::string name = entry.path().filename();
    EXPECT_TRUE(name == "notes.txt" || name == "mine.fa4image" || name == "folder.fa4image")
        << name;
    ++left;
  }
  EXPECT_EQ(left, 3u);
}

TEST(DiskCache, FolderThatCannotBeMade) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "file") << "a regular file";
  for (const std::string& where :
       {(folder.path() / "file" / "below").string(), std::string("/proc/fa4-cannot-be-made")}) {
    const DiskCache cache(where);
    EXPECT_FALSE(cache.store("key", stub_image(scale_by(2), "sm_90a"))) << where;
    EXPECT_FALSE(cache.load("key"));
    EXPECT_TRUE(cache.list().empty());
    const DiskCache::Lock lock(cache, "key", milliseconds(0));
    EXPECT_FALSE(lock.held());
    EXPECT_FALSE(lock.timed_out());
  }
}

// A limit on the size of files fails a write halfway, as a full disk does.
TEST(DiskCache, FullDiskLeavesNothingBehind) {
  const TemporaryFolder folder;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
    KernelImage image = stub_image(scale_by(2), "sm_90a");
    image.bytes.resize(100000);
    _exit(DiskCache(folder.string()).store("key", image) ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "1: store() claimed success";
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(DiskCache, LockIsExclusiveAndTimesOut) {
  const TemporaryFolder folder;
  const DiskCache cache(folder.string());
  const auto start = std::chrono::steady_clock::now();
  {
    const DiskCache::Lock first(cache, "key", milliseconds(0));
    ASSERT_TRUE(first.held());
    const DiskCache::Lock second(cache, "key", milliseconds(50));
    EXPECT_FALSE(second.held());
    EXPECT_TRUE(second.timed_out());
    const DiskCache::Lock other(cache, "other key", milliseconds(0));
    EXPECT_TRUE(other.held());
  }
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(50));
  const DiskCache::Lock again(cache, "key", milliseconds(0));
  EXPECT_TRUE(again.held());
}

TEST(DiskCache, LockOfADeadHolderIsFree) {
  const TemporaryFolder folder;
  const DiskCache cache(folder.string());
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const DiskCache::Lock lock(cache, "key", milliseconds(0));
    const char answer = lock.held() ? '1' : '0';
    if (write(ready[1], &answer, 1) != 1) _exit(2);
    pause();  // until killed
    _exit(0);
  }
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  EXPECT_EQ(answer, '1');
  {
    const DiskCache::Lock lock(cache, "key", milliseconds(20));
    EXPECT_FALSE(lock.held());
  }
  ASSERT_EQ(kill(child, SIGKILL), 0);
  const DiskCache::Lock lock(cache, "key", std::chrono::minutes(10));
  EXPECT_TRUE(lock.held());
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  close(ready[0]);
  close(ready[1]);
}

}  // namespace
}  // namespace fa4::internal
