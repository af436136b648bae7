// Three files of one input, parted by a line of four equal signs: the launch file, the PTX, a .npy
// file. Whatever they hold, ptxemu run loads them or says why not.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "failure.h"
#include "io/tensor_file.h"
#include "ptxemu/buffers.h"
#include "ptxemu/launch_file.h"
#include "ptxemu/launches.h"
#include "ptxemu/machine.h"

namespace fa4::cli {
namespace {

constexpr std::string_view kParting = "\n====\n";
constexpr int64_t kMostBytes = 1 << 20;

// A file in memory, under a path.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : fd_(::memfd_create("fuzz", 0)) {
    if (fd_ < 0 || ::write(fd_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
      __builtin_trap();
    }
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

std::string_view take_part(std::string_view* rest) {
  const size_t end = rest->find(kParting);
  const std::string_view part = rest->substr(0, end);
  *rest = end == std::string_view::npos ? "" : rest->substr(end + kParting.size());
  return part;
}

bool is_small(const LaunchFile& file) {
  int64_t total = 0;
  for (const BufferSpec& buffer : file.buffers) {
    if (buffer.source == BufferSpec::Source::kNpy) continue;
    total += std::min(kMostBytes + 1, count_elements(buffer.dims, buffer.item_bytes));
  }
  return total <= kMostBytes;
}

void load(std::string_view input) {
  const MemoryFile launch(take_part(&input));
  const std::string_view text = take_part(&input);
  // The GPU on which that target runs; what names no target is refused by both.
  const bool hopper = text.find(".target sm_90a") != std::string_view::npos;
  const MemoryFile ptx(text), npy(input);
  LaunchFile file = read_launch_file(launch.path(), ptx.path());
  for (BufferSpec& buffer : file.buffers) {
    if (!buffer.file.empty()) buffer.file = npy.path();
  }
  for (LaunchSpec& one : file.launches) one.ptx = ptx.path();
  if (!is_small(file)) return;
  EmulatedBuffers buffers(file.buffers);
  ptxemu::Machine machine({.device = hopper ? "emulated:h200" : "emulated:b200", .threads = 1});
  const auto launches = load_launches(machine, file.launches);
  buffers.upload(machine);
  for (const ReadyLaunch& one : launches) argument_bytes(*one.spec, buffers);
}

}  // namespace
}  // namespace fa4::cli

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    fa4::cli::load({reinterpret_cast<const char*>(data), size});
  } catch (const fa4::cli::Failure&) {
  }
  return 0;
}
