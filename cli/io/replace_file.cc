#include "io/replace_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "io/temporaries.h"

namespace fa4::cli {
namespace {

// One that has come since the target was claimed. A rename would refuse it; it could be exchanged,
// and moved aside, but not removed.
bool is_folder(const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

}  // namespace

int replace_file(const std::string& file, const std::string& target, std::string* old) {
  if (is_folder(target)) return EISDIR;
  if (::renameat2(AT_FDCWD, file.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
    *old = file;
    return 0;
  }
  if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) {
    return replace_without_exchange(file, target, old);
  }
  if (errno != ENOENT) return errno;
  old->clear();
  return std::rename(file.c_str(), target.c_str()) == 0 ? 0 : errno;
}

int replace_without_exchange(const std::string& file, const std::string& target, std::string* old) {
  old->clear();
  if (is_folder(target)) return EISDIR;
  const std::string name = temporary_name(target);
  if (::link(target.c_str(), name.c_str()) == 0 ||
      (errno != ENOENT && std::rename(target.c_str(), name.c_str()) == 0)) {
    *old = name;
  } else if (errno != ENOENT) {
    return errno;
  }
  if (std::rename(file.c_str(), target.c_str()) == 0) return 0;
  const int error = errno;
  if (!old->empty()) {
    (void)!std::rename(name.c_str(), target.c_str());
    ::unlink(name.c_str());  // a rename of a file to another name of itself leaves both
  }
  return error;
}

}  // namespace fa4::cli
