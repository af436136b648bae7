// A line of settings and PTX below it: every kernel of the module is decoded and launched, under
// the policy and with the checker that the line's first byte says, with a limit on instructions.
// Whatever the text is, it is refused, or runs to one of the four ends that a launch has.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "executed_rows.h"
#include "launch_settings.h"
#include "ptxemu/machine.h"

namespace ptxemu::fuzz {
namespace {

std::vector<std::byte> bytes_of(const void* from, size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(from);
  return {begin, begin + bytes};
}

// What a kernel gets for a parameter of so many bytes: in turn the output's address and the
// input's, a tensor map, words that count.
std::vector<std::byte> argument(size_t bytes, size_t index, const uint64_t (&buffers)[2],
                                const LaunchSettings& settings) {
  if (bytes == 8) return bytes_of(&buffers[index % 2], 8);
  if (bytes == 128 && settings.has_map) {
    TensorMapRequest request = settings.map;
    request.address = buffers[settings.map_of_in ? 1 : 0];
    const auto map = Machine::encode_tensor_map(request);
    return bytes_of(map.data(), map.size());
  }
  const auto pattern = fuzz_data("bits:" + std::to_string(bytes));
  std::vector<std::byte> words = bytes_of(pattern.data(), pattern.size());
  words.resize(bytes);
  return words;
}

void launch_all(std::string_view input) {
  const LaunchSettings settings = LaunchSettings::take(&input);
  Machine machine(settings.options);
  const auto data = fuzz_data(settings.in);
  const uint64_t buffers[2] = {machine.allocate(settings.out_bytes, "out"),
                               machine.allocate(data.size(), "in")};
  machine.fill(buffers[0], 0, settings.out_bytes);
  machine.copy_in(buffers[1], data.data(), data.size());
  const ModuleHandle module = machine.load(std::string(input), "fuzz.ptx");
  size_t kernels = 0;
  for (const std::string& kernel : machine.kernels(module)) {
    constexpr size_t kMostKernels = 4;
    if (++kernels > kMostKernels) return;
    LaunchRequest request;
    request.kernel = kernel;
    request.grid = settings.grid;
    request.block = settings.block;
    request.cluster = settings.cluster;
    for (size_t i = 0; i < 3; ++i) request.grid[i] *= settings.cluster[i];
    request.shared_bytes = settings.shared_bytes;
    try {
      machine.facts(module, kernel);
      std::vector<std::vector<std::byte>> arguments;
      for (const uint32_t bytes : machine.parameter_sizes(module, kernel)) {
        arguments.push_back(argument(bytes, arguments.size(), buffers, settings));
      }
      const LaunchReport report = machine.launch(module, request, arguments);
      if (settings.options.count_lines) note_executed_rows(std::string(input), report);
    } catch (const InputError&) {
    }
  }
}

}  // namespace
}  // namespace ptxemu::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    ptxemu::fuzz::launch_all({reinterpret_cast<const char*>(data), size});
  } catch (const ptxemu::InputError&) {
  }
  return 0;
}
