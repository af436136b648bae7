#include "jit/disk_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "core/logging.h"
#include "jit/image_file.h"

namespace fa4::internal {
namespace {

namespace fs = std::filesystem;
constexpr const char* kEntry = ".fa4image";
constexpr const char* kLock = ".lock";
constexpr const char* kTemporary = ".tmp";

// A file descriptor, closed at the end of its scope.
class File {
 public:
  File(const std::string& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0600)) {}
  ~File() { close(); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return fd_; }
  bool close() {
    const int fd = fd_;
    fd_ = -1;
    return fd < 0 || ::close(fd) == 0;
  }

 private:
  int fd_;
};

// "" when only this user (or root) can have put it there and only they can change it; else who may.
std::string why_untrusted(const struct stat& file) {
  if (file.st_uid != ::geteuid() && file.st_uid != 0) {
    return fmt::format("belongs to user {}", file.st_uid);
  }
  if ((file.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return fmt::format("may be written by others (mode {:04o})", file.st_mode & 07777);
  }
  return "";
}

// Nothing for a file that another user could have written: it holds code that would be run.
std::optional<std::string> read_file(const std::string& path) {
  const File file(path, O_RDONLY);
  struct stat found {};
  if (file.get() < 0 || ::fstat(file.get(), &found) != 0 || !why_untrusted(found).empty()) {
    return std::nullopt;
  }
  std::string bytes;
  char block[65536];
  for (;;) {
    const ssize_t count = ::read(file.get(), block, sizeof block);
    if (count == 0) return bytes;
    if (count > 0) bytes.append(block, static_cast<size_t>(count));
    if (count < 0 && errno != EINTR) return std::nullopt;
  }
}

bool begins_as_image(const std::string& path) {
  const File file(path, O_RDONLY | O_NONBLOCK);
  char block[64];
  const ssize_t count = file.get() < 0 ? 0 : ::read(file.get(), block, sizeof block);
  return count > 0 && is_image({block, static_cast<size_t>(count)});
}

bool write_file(const std::string& path, const std::string& bytes) {
  File file(path, O_WRONLY | O_CREAT | O_EXCL);
  if (file.get() < 0) return false;
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t count = ::write(file.get(), bytes.data() + done, bytes.size() - done);
    if (count > 0) done += static_cast<size_t>(count);
    if (count == 0 || (count < 0 && errno != EINTR)) return false;
  }
  return file.close();
}

std::vector<fs::path> files_in(const std::string& folder, const char* extension) {
  std::vector<fs::path> paths;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (entry->path().extension() == extension) paths.push_back(entry->path());
  }
  return paths;
}

}  // namespace

std::string DiskCache::file_of(const std::string& key, const char* extension) const {
  return folder_ + "/" + key + extension;
}

std::string DiskCache::problem() const {
  struct stat folder {};
  if (!enabled() || ::stat(folder_.c_str(), &folder) != 0) return "";
  const std::string why =
      S_ISDIR(folder.st_mode) ? why_untrusted(folder) : std::string("is not a folder");
  if (why.empty()) return "";
  return fmt::format(
      "FA4_CACHE_DIR {} {}; accepted: a folder of this user's that nobody else may write", folder_,
      why);
}

bool DiskCache::usable() const {
  if (!enabled()) return false;
  const std::string found = problem();
  if (found.empty()) return true;
  // No call_once, which would make libfa4 depend on the dynamic loader's library.
  static std::atomic_flag said;
  if (!said.test_and_set()) log(1, "the kernel cache is off: " + found);
  return false;
}

bool DiskCache::make_folder() const {
  if (!usable()) return false;
  std::error_code error;
  if (fs::is_directory(folder_, error)) return true;
  if (!fs::create_directories(folder_, error) && error) return false;
  fs::permissions(folder_, fs::perms::owner_all, error);
  return true;
}

std::optional<KernelImage> DiskCache::load(const std::string& key) const {
  if (!usable()) return std::nullopt;
  const std::optional<std::string> bytes = read_file(file_of(key, kEntry));
  return bytes ? parse_image(*bytes, key) : std::nullopt;
}

bool DiskCache::store(const std::string& key, const KernelImage& image) const {
  if (!make_folder()) return false;
  static std::atomic<unsigned> counter{0};
  const std::string temporary =
      file_of(key, fmt::format(".{}.{}{}", getpid(), counter.fetch_add(1), kTemporary).c_str());
  if (write_file(temporary, serialise_image(image, key)) &&
      std::rename(temporary.c_str(), file_of(key, kEntry).c_str()) == 0) {
    return true;
  }
  ::unlink(temporary.c_str());
  return false;
}

std::vector<KernelCache::Entry> DiskCache::list() const {
  std::vector<KernelCache::Entry> entries;
  if (!usable()) return entries;
  for (const fs::path& path : files_in(folder_, kEntry)) {
    const std::optional<std::string> bytes = read_file(path.string());
    const std::optional<KernelImage> image =
        bytes ? parse_image(*bytes, path.stem().string()) : std::nullopt;
    if (!image) continue;
    entries.push_back(
        {image->display_name, image->architecture, image->compiler, path.string(), bytes->size()});
  }
  return entries;
}

size_t DiskCache::clear() const {
  if (!usable()) return 0;
  size_t removed = 0;
  std::error_code error;
  for (const fs::path& path : files_in(folder_, kEntry)) {
    if (begins_as_image(path.string())) removed += fs::remove(path, error);
  }
  for (const char* extension : {kLock, kTemporary}) {
    for (const fs::path& path : files_in(folder_, extension)) fs::remove(path, error);
  }
  return removed;
}

DiskCache::Lock::Lock(const DiskCache& cache, const std::string& key,
                      std::chrono::milliseconds timeout) {
  if (!cache.make_folder()) return;
  file_ = ::open(cache.file_of(key, kLock).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file_ < 0) return;
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (auto pause = std::chrono::milliseconds(1);;) {
    if (::flock(file_, LOCK_EX | LOCK_NB) == 0) {
      held_ = true;
      return;
    }
    if (errno != EWOULDBLOCK && errno != EINTR) return;
    if (std::chrono::steady_clock::now() >= deadline) {
      timed_out_ = true;
      return;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::milliseconds(20));
  }
}

DiskCache::Lock::~Lock() {
  if (file_ >= 0) ::close(file_);
}

}  // namespace fa4::internal
