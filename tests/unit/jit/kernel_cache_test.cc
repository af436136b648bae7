#include "jit/kernel_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "core/error.h"
#include "jit/disk_cache.h"
#include "jit/image_file.h"
#include "test_kernels.h"

namespace fa4::internal {
namespace {

namespace fs = std::filesystem;

struct Compiler {
  std::atomic<int> calls{0};
  std::string version = "1";

  KernelCache::Parts parts(const std::string& folder) {
    KernelCache::Parts parts;
    parts.folder = folder;
    parts.fingerprint = [this] { return version; };
    parts.compile = [this](const KernelSource& source, const std::string& architecture,
                           KernelImage::Kind kind) {
      ++calls;
      KernelImage image = stub_image(source, architecture);
      image.kind = kind;
      return image;
    };
    parts.lock_timeout = std::chrono::milliseconds(50);
    return parts;
  }
};

// A zstd frame of one block that is not compressed: 9, 8, 7.
constexpr unsigned char kFrame[] = {0x28, 0xb5, 0x2f, 0xfd, 0x20, 3, 0x19, 0, 0, 9, 8, 7};
const PrebuiltImage kPrebuilt[] = {{"test/scale.cuh",
                                    "fa4::scale<fa4::TestTraits{.factor=7}>",
                                    "scale_7",
                                    "sm_90a",
                                    "NVRTC 13.0",
                                    "_Z7",
                                    kFrame,
                                    sizeof kFrame,
                                    3,
                                    {24, 0, 0, 0}}};

fs::path only_entry(const fs::path& folder) {
  fs::path found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".fa4image") found = entry.path();
  }
  return found;
}

TEST(KernelCache, MemoryThenDiskThenCompiler) {
  const TemporaryFolder folder;
  Compiler compiler;
  KernelCache first(compiler.parts(folder.string()));
  const auto image = first.find_or_compile(scale_by(2), "sm_90a");
  EXPECT_EQ(first.find_or_compile(scale_by(2), "sm_90a"), image);
  EXPECT_EQ(first.counts().compiled, 1);
  EXPECT_EQ(first.counts().memory, 1);

  KernelCache second(compiler.parts(folder.string()));
  EXPECT_EQ(second.find_or_compile(scale_by(2), "sm_90a")->bytes, image->bytes);
  EXPECT_EQ(second.counts().disk, 1);
  EXPECT_EQ(compiler.calls, 1);
  ASSERT_EQ(second.list().size(), 1u);
  EXPECT_EQ(second.list()[0].display_name, "scale_2");
  EXPECT_EQ(second.list()[0].architecture, "sm_90a");
  EXPECT_EQ(second.clear(), 1u);
  EXPECT_TRUE(second.list().empty());
}

// What an emulated device runs is kept like what a GPU runs, beside it.
TEST(KernelCache, PtxHasItsOwnEntryOnDisk) {
  const TemporaryFolder folder;
  Compiler compiler;
  KernelCache first(compiler.parts(folder.string()));
  first.find_or_compile(scale_by(2), "sm_90a");
  first.find_or_compile(scale_by(2), "sm_90a", KernelImage::Kind::kPtx);
  EXPECT_EQ(first.counts().compiled, 2);
  EXPECT_EQ(first.list().size(), 2u);

  KernelCache second(compiler.parts(folder.string()));
  EXPECT_EQ(second.find_or_compile(scale_by(2), "sm_90a", KernelImage::Kind::kPtx)->kind,
            KernelImage::Kind::kPtx);
  EXPECT_EQ(second.find_or_compile(scale_by(2), "sm_90a")->kind, KernelImage::Kind::kCubin);
  EXPECT_EQ(second.counts().disk, 2);
  EXPECT_EQ(compiler.calls, 2);
}

TEST(KernelCache, EveryPartOfTheKeyCounts) {
  const TemporaryFolder folder;
  Compiler compiler;
  KernelCache cache(compiler.parts(folder.string()));
  cache.find_or_compile(scale_by(2), "sm_90a");
  cache.find_or_compile(scale_by(3), "sm_90a");
  cache.find_or_compile(scale_by(2), "sm_100a");
  KernelSource other_file = scale_by(2);
  other_file.main_file = "test/other.cuh";
  cache.find_or_compile(other_file, "sm_90a");
  EXPECT_EQ(compiler.calls, 4);
  EXPECT_EQ(cache.list().size(), 4u);

  compiler.version = "2";  // new sources, compiler or flags
  KernelCache later(compiler.parts(folder.string()));
  later.find_or_compile(scale_by(2), "sm_90a");
  EXPECT_EQ(compiler.calls, 5);
}

TEST(KernelCache, PrebuiltImageNeedsNeitherDiskNorCompiler) {
  KernelCache::Parts parts;
  parts.prebuilt = kPrebuilt;
  parts.fingerprint = []() -> std::string { throw Error(ErrorCode::kCompiler, "no NVRTC here"); };
  KernelCache cache(parts);
  const auto image = cache.find_or_compile(scale_by(7), "sm_90a");
  EXPECT_EQ(image->bytes, std::vector<unsigned char>({9, 8, 7}));
  EXPECT_EQ(image->entry, "_Z7");
  EXPECT_EQ(image->resources.registers, 24);
  EXPECT_EQ(cache.counts().embedded, 1);

  for (const auto& [source, architecture] :
       {std::pair(scale_by(8), "sm_90a"), std::pair(scale_by(7), "sm_100a")}) {
    try {
      cache.find_or_compile(source, architecture);
      FAIL() << "found " << source.display_name << " for " << architecture;
    } catch (const Error& error) {
      const std::string text = error.what();
      const bool hopper = std::string(architecture) == "sm_90a";
      EXPECT_EQ(error.code(), ErrorCode::kCompiler);
      EXPECT_NE(text.find(source.display_name), std::string::npos) << text;
      EXPECT_NE(text.find("no NVRTC here"), std::string::npos) << text;
      EXPECT_NE(
          text.find(hopper ? "prebuilt for sm_90a: 1 kernels" : "prebuilt for sm_100a: 0 kernels"),
          std::string::npos)
          << text;
    }
  }
}

TEST(KernelCache, DamagedEntriesAreCompiledAgainAndReplaced) {
  const TemporaryFolder folder;
  Compiler compiler;
  KernelCache(compiler.parts(folder.string())).find_or_compile(scale_by(2), "sm_90a");
  const fs::path entry = only_entry(folder.path());
  const auto size = fs::file_size(entry);
  int expected = 1;
  for (const uintmax_t length :
       {uintmax_t{0}, uintmax_t{8}, uintmax_t{39}, uintmax_t{40}, size / 2, size - 1}) {
    fs::resize_file(entry, length);
    KernelCache cache(compiler.parts(folder.string()));
    EXPECT_EQ(cache.find_or_compile(scale_by(2), "sm_90a")->bytes.size(), 5u);
    EXPECT_EQ(compiler.calls, ++expected) << length;
    EXPECT_EQ(fs::file_size(entry), size);
    KernelCache again(compiler.parts(folder.string()));
    again.find_or_compile(scale_by(2), "sm_90a");
    EXPECT_EQ(again.counts().disk, 1);
  }
}

TEST(KernelCache, EntryOfAnotherKeyIsNotTaken) {
  const TemporaryFolder folder;
  Compiler compiler;
  KernelCache(compiler.parts(folder.string())).find_or_compile(scale_by(2), "sm_90a");
  const fs::path two = only_entry(folder.path());
  const std::string two_text = two.string() + ".away";
  fs::rename(two, two_text);
  KernelCache(compiler.parts(folder.string())).find_or_compile(scale_by(3), "sm_90a");
  fs::copy_file(two_text, only_entry(folder.path()), fs::copy_options::overwrite_existing);
  KernelCache cache(compiler.parts(folder.string()));
  EXPECT_EQ(cache.find_or_compile(scale_by(3), "sm_90a")->display_name, "scale_3");
}

TEST(KernelCache, UnusableFolderCostsOnlyTime) {
  Compiler compiler;
  KernelCache cache(compiler.parts("/proc/fa4-cannot-be-made"));
  EXPECT_EQ(cache.find_or_compile(scale_by(2), "sm_90a")->bytes.size(), 5u);
  EXPECT_EQ(cache.find_or_compile(scale_by(2), "sm_90a")->bytes.size(), 5u);
  EXPECT_EQ(compiler.calls, 1);
  EXPECT_EQ(cache.counts().gave_up_waiting, 0);
}

TEST(KernelCache, WaiterGivesUpAndCompiles) {
  const TemporaryFolder folder;
  Compiler compiler;
  KernelCache(compiler.parts(folder.string())).find_or_compile(scale_by(2), "sm_90a");
  const fs::path entry = only_entry(folder.path());
  fs::remove(entry);
  const DiskCache disk(folder.string());
  const DiskCache::Lock held(disk, entry.stem().string(), std::chrono::milliseconds(0));
  ASSERT_TRUE(held.held());
  KernelCache cache(compiler.parts(folder.string()));
  EXPECT_EQ(cache.find_or_compile(scale_by(2), "sm_90a")->bytes.size(), 5u);
  EXPECT_EQ(cache.counts().gave_up_waiting, 1);
  EXPECT_EQ(compiler.calls, 2);
}

TEST(KernelCache, ThreadsCompileAKeyOnce) {
  const TemporaryFolder folder;
  Compiler compiler;
  KernelCache cache(compiler.parts(folder.string()));
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      const KernelSource source = scale_by(i % 2);
      right += cache.find_or_compile(source, "sm_90a")->display_name == source.display_name;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 8);
  EXPECT_EQ(compiler.calls, 2);
}

// A thread whose stream is being captured may not compile: it has to find what others only look up.
TEST(KernelCache, IsFoundInMemoryWhileOthersFindIt) {
  Compiler compiler;
  KernelCache cache(compiler.parts(""));
  EXPECT_EQ(cache.find_in_memory(scale_by(2), "sm_90a"), nullptr);
  const auto image = cache.find_or_compile(scale_by(2), "sm_90a");
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) cache.find_or_compile(scale_by(2), "sm_90a");
  });
  int missed = 0;
  while (cache.counts().memory == 0) std::this_thread::yield();
  for (int i = 0; i < 100000; ++i) missed += cache.find_in_memory(scale_by(2), "sm_90a") != image;
  stop = true;
  other.join();
  EXPECT_EQ(missed, 0);
}

TEST(KernelCache, AFailureIsNotRemembered) {
  Compiler compiler;
  KernelCache::Parts parts = compiler.parts("");
  bool broken = true;
  parts.compile = [&](const KernelSource& source, const std::string& architecture,
                      KernelImage::Kind) {
    if (broken) throw Error(ErrorCode::kCompiler, "refused");
    return stub_image(source, architecture);
  };
  KernelCache cache(parts);
  EXPECT_THROW(cache.find_or_compile(scale_by(2), "sm_90a"), Error);
  broken = false;
  EXPECT_EQ(cache.find_or_compile(scale_by(2), "sm_90a")->display_name, "scale_2");
}

}  // namespace
}  // namespace fa4::internal
