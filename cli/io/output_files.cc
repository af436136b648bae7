#include "io/output_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "failure.h"
#include "io/replace_file.h"
#include "io/resolve_path.h"
#include "io/tensor_writer.h"

namespace fa4::cli {
namespace {

// A disk that is full or broken is not the user's mistake.
Failure write_failure(int error) {
  const bool disk = error == ENOSPC || error == EDQUOT || error == EFBIG || error == EIO ||
                    error == ENOMEM || error == EPIPE || error == EMFILE || error == ENFILE;
  return {disk ? kCouldNotRun : kBadInput,
          fmt::format("cannot be written: {}{}", std::strerror(error),
                      disk ? "" : "; accepted: a file in a directory that can be written")};
}

// A copy of what this process was given open, so that what is written stands behind what was, and
// before what is printed. Files that the command itself has opened are not the user's.
int copy_of_descriptor(int number) {
  const int flags = ::fcntl(number, F_GETFD);
  const bool is_given = flags != -1 && (flags & FD_CLOEXEC) == 0;
  if (!is_given || (::fcntl(number, F_GETFL) & O_ACCMODE) == O_RDONLY) {
    throw bad_input("is not open for writing; accepted: a descriptor that is, or a file");
  }
  const int copy = ::fcntl(number, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) throw write_failure(errno);
  return copy;
}

bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

}  // namespace

OutputFiles::~OutputFiles() {
  for (File& file : files_) {
    if (file.fd >= 0) ::close(file.fd);
    if (file.temporary) file.temporary->take_back();
  }
}

void OutputFiles::add_input(const std::string& option, const std::string& file) {
  inputs_.push_back({option, file});
}

void OutputFiles::check_not_input(const std::string& file, const std::string& replaces) const {
  struct stat target, input;
  if (::stat(file.c_str(), &target) != 0) return;
  if (::stat(replaces.c_str(), &input) == 0 && same_file(target, input)) return;
  for (const Input& other : inputs_) {
    if (::stat(other.file.c_str(), &input) == 0 && same_file(target, input)) {
      throw bad_input(
          fmt::format("is also the input {} {}; accepted: another file", other.option, other.file));
    }
  }
}

void OutputFiles::add_tensor(const std::string& option, const std::string& path,
                             const std::string& replaces) {
  naming(option, path, [&] {
    const TensorPath parsed = parse_tensor_path(path);
    if (parsed.name == "__metadata__") {
      throw bad_input("is a reserved name; accepted: another tensor name");
    }
    if (!is_utf8(parsed.name)) {
      throw bad_input("the tensor's name is not UTF-8; accepted: a name in UTF-8");
    }
    Item item;
    item.option = option;
    item.path = path;
    item.name = parsed.name;
    item.replaces = replaces;
    add(std::move(item), parsed.file);
  });
}

void OutputFiles::add_text(const std::string& option, const std::string& path) {
  Item item;
  item.option = option;
  item.path = path;
  item.is_text = true;
  naming(option, path, [&] {
    if (path.empty()) throw bad_input("is empty; accepted: a file's name");
    add(std::move(item), path);
  });
}

void OutputFiles::add(Item item, const std::string& path) {
  check_not_input(path, item.replaces);
  const std::string target = resolve_path(path);
  items_.push_back(std::move(item));
  Item& added = items_.back();
  for (File& file : files_) {
    struct stat a, b;
    const bool same = file.target == target ||
                      (::stat(file.target.c_str(), &a) == 0 && ::stat(target.c_str(), &b) == 0 &&
                       same_file(a, b) && S_ISREG(a.st_mode));
    if (!same) continue;
    const bool both_named = !added.name.empty() && !file.items.front()->name.empty();
    const bool taken = std::any_of(file.items.begin(), file.items.end(),
                                   [&](const Item* other) { return other->name == added.name; });
    if (!both_named || taken) {
      throw bad_input(
          fmt::format("is also the output {}; accepted: another file, or another name "
                      "in one .safetensors",
                      file.items.front()->option));
    }
    file.items.push_back(&added);
    return;
  }
  File& file = files_.emplace_back();
  file.target = target;
  file.items.push_back(&added);
  open(file);
}

void OutputFiles::open(File& file) {
  if (const std::optional<int> descriptor = own_descriptor(file.target)) {
    file.fd = copy_of_descriptor(*descriptor);
    return;
  }
  struct stat info;
  const bool exists = ::stat(file.target.c_str(), &info) == 0;
  if (!exists && errno != ENOENT) throw write_failure(errno);
  if (exists && S_ISDIR(info.st_mode)) throw bad_input("is a directory; accepted: a file");
  if (exists && !S_ISREG(info.st_mode)) return;  // a device or pipe: opened when it is written
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  auto temporary = std::make_unique<Temporary>(temporary_name(file.target));
  file.fd = ::open(temporary->path().c_str(), flags, 0666);
  if (file.fd < 0) throw write_failure(errno);
  file.temporary = std::move(temporary);
  if (exists && ::fchmod(file.fd, info.st_mode & 07777) != 0) return;  // its mode stays the default
}

OutputFiles::Item& OutputFiles::item_of(const std::string& option) {
  return *std::find_if(items_.begin(), items_.end(),
                       [&](const Item& item) { return item.option == option; });
}

void OutputFiles::set_tensor(const std::string& option, FileType type, std::vector<int64_t> shape,
                             const void* data) {
  Item& item = item_of(option);
  item.type = type;
  item.shape = std::move(shape);
  item.data = data;
}

void OutputFiles::set_text(const std::string& option, std::string text) {
  item_of(option).text = std::move(text);
}

void OutputFiles::set_npy(const std::string& option, std::string descr, std::vector<int64_t> shape,
                          const void* data, size_t bytes) {
  Item& item = item_of(option);
  item.descr = std::move(descr);
  item.shape = std::move(shape);
  item.data = data;
  item.bytes = bytes;
}

void OutputFiles::write_file(File& file) {
  const Item& first = *file.items.front();
  if (file.fd < 0) {
    file.fd = ::open(file.target.c_str(), O_WRONLY | O_CLOEXEC);
    if (file.fd < 0) throw write_failure(errno);
  }
  const Sink sink = [&](const void* data, size_t bytes) {
    const char* at = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t written = ::write(file.fd, at, bytes);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) throw write_failure(errno);
      at += written;
      bytes -= static_cast<size_t>(written);
    }
  };
  if (first.is_text) {
    sink(first.text.data(), first.text.size());
  } else if (!first.descr.empty()) {
    write_npy_header(first.descr, first.shape, sink);
    sink(first.data, first.bytes);
  } else if (first.name.empty()) {
    write_npy({first.name, first.type, first.shape, first.data}, sink);
  } else {
    std::vector<NamedTensor> tensors;
    for (const Item* item : file.items) {
      tensors.push_back({item->name, item->type, item->shape, item->data});
    }
    write_safetensors(tensors, sink);
  }
  const int closed = ::close(file.fd);
  file.fd = -1;
  if (closed != 0) throw write_failure(errno);
}

void OutputFiles::write() {
  for (File& file : files_) {
    naming(file.items.front()->option, file.items.front()->path, [&] { write_file(file); });
  }
}

void OutputFiles::publish() {
  const SignalBlock block;
  for (File& file : files_) {
    if (!file.temporary) continue;
    naming(file.items.front()->option, file.items.front()->path, [&] {
      std::string old;
      const int error = replace_file(file.temporary->path(), file.target, &old);
      if (error != 0) throw write_failure(error);
      file.temporary->has_replaced(file.target, old);
    });
  }
}

void OutputFiles::keep() {
  const SignalBlock block;
  for (File& file : files_) {
    if (file.temporary) file.temporary->keep();
    file.temporary.reset();
  }
}

}  // namespace fa4::cli
