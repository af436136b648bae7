#include "device/emulated/launch_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace fa4::internal {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& parent, const fs::path& path, std::string_view reason) {
  throw Error(ErrorCode::kIo,
              fmt::format("FA4_EMULATOR_SAVE \"{}\": {} cannot be written: {}; accepted: a folder "
                          "that this process may write and that has room",
                          parent, path.string(), reason));
}

// The word that a name begins with: "add" of "add<Traits{...}>".
std::string word_of(std::string_view name) {
  size_t length = 0;
  while (length < name.size() &&
         (std::isalnum(static_cast<unsigned char>(name[length])) != 0 || name[length] == '_')) {
    ++length;
  }
  return std::string(name.substr(0, length));
}

// Numbers are in the order of the process's launches. Several processes may write into one folder:
// a name belongs to who made it.
fs::path make_folder(const std::string& parent, const std::string& kernel_name) {
  static std::atomic<int> launches = 0;
  std::error_code error;
  fs::create_directories(parent, error);
  while (!error) {
    const fs::path folder =
        fs::path(parent) / fmt::format("{:04}-{}", launches++, word_of(kernel_name));
    if (fs::create_directory(folder, error)) return folder;
  }
  refuse(parent, parent, error.message());
}

class Folder {
 public:
  Folder(std::string parent, fs::path path) : parent_(std::move(parent)), path_(std::move(path)) {}

  void write(const std::string& name, std::string_view head, std::string_view rest = {}) const {
    const fs::path file = path_ / name;
    std::ofstream out(file, std::ios::binary);
    out << head << rest;
    out.close();
    if (!out) refuse(parent_, file, std::strerror(errno));
  }

  void write_npy(const std::string& name, std::string_view bytes) const {
    std::string head =
        fmt::format("{{'descr': '|u1', 'fortran_order': False, 'shape': ({},), }}", bytes.size());
    constexpr size_t kBefore = 10, kAlignment = 64;  // magic, version and length come before it
    head.append(kAlignment - 1 - (kBefore + head.size()) % kAlignment, ' ');
    head += '\n';
    const char length[] = {static_cast<char>(head.size() & 0xff),
                           static_cast<char>(head.size() >> 8)};
    write(name, std::string("\x93NUMPY\x01\x00", 8) + std::string(length, 2) + head, bytes);
  }

 private:
  std::string parent_;
  fs::path path_;
};

// The allocation that `address` lies in, or at whose end it is.
Allocations::const_iterator find(const Allocations& allocations, uint64_t address) {
  auto after = allocations.upper_bound(address);
  if (after == allocations.begin()) return allocations.end();
  --after;
  return address <= after->first + after->second ? after : allocations.end();
}

struct Arguments {
  std::string fields;                            // of the one struct that a kernel takes
  std::map<uint64_t, std::string> buffer_names;  // of the allocations that it points into
};

// Parameters are bytes of which nobody says what they mean. What is an address of the device is a
// pointer: a tensor map begins with one too, and no length or stride is as large.
Arguments describe(const LaunchToSave& launch, const Allocations& allocations) {
  Arguments result;
  const auto* bytes = static_cast<const unsigned char*>(launch.params);
  result.fields = fmt::format("{{\"offset\": 0, \"bytes\": \"{:02x}\"}}",
                              fmt::join(bytes, bytes + launch.params_bytes, ""));
  for (size_t offset = 0; offset + sizeof(uint64_t) <= launch.params_bytes;
       offset += sizeof(uint64_t)) {
    uint64_t address = 0;
    std::memcpy(&address, bytes + offset, sizeof address);
    const auto allocation = find(allocations, address);
    if (allocation == allocations.end()) continue;
    std::string& name = result.buffer_names[allocation->first];
    if (name.empty()) name = fmt::format("b{}", result.buffer_names.size() - 1);
    result.fields += fmt::format(",\n      {{\"offset\": {}, \"ptr\": \"{}\", \"add\": {}}}",
                                 offset, name, address - allocation->first);
  }
  return result;
}

std::string launch_json(const LaunchToSave& launch, const Arguments& arguments) {
  std::string buffers;
  for (const auto& [address, name] : arguments.buffer_names) {
    buffers += fmt::format("{}\n    \"{}\": {{\"npy\": \"{}.npy\", \"save\": \"{}.after.npy\"}}",
                           buffers.empty() ? "" : ",", name, name, name);
  }
  const ptxemu::LaunchRequest& request = launch.request;
  return fmt::format(
      "{{\n  \"kernel\": \"{}\",\n  \"grid\": {}, \"block\": {}, \"cluster\": {},\n"
      "  \"shared_bytes\": {},\n  \"programmatic\": {},\n  \"buffers\": {{{}\n  }},\n"
      "  \"args\": [\n    {{\"struct\": {{\"size\": {}, \"fields\": [\n      {}\n    ]}}}}\n  "
      "]\n}}\n",
      request.kernel, request.grid, request.block, request.cluster, request.shared_bytes,
      request.programmatic, buffers, launch.params_bytes, arguments.fields);
}

}  // namespace

void save_launch(const std::string& parent, const LaunchToSave& launch,
                 const Allocations& allocations) {
  const Folder folder(parent, make_folder(parent, launch.kernel_name));
  const Arguments arguments = describe(launch, allocations);
  folder.write("kernel.ptx", launch.ptx);
  for (const auto& [address, name] : arguments.buffer_names) {
    folder.write_npy(name + ".npy", {reinterpret_cast<const char*>(address),  // NOLINT
                                     allocations.at(address)});
  }
  folder.write("launch.json", launch_json(launch, arguments));
}

}  // namespace fa4::internal
