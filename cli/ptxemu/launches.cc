#include "ptxemu/launches.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "core/excerpt.h"
#include "failure.h"
#include "io/mapped_file.h"

namespace fa4::cli {
namespace {

std::string read_text(const std::string& path) {
  const MappedFile file(path, "a file of PTX text");
  return {reinterpret_cast<const char*>(file.data()), file.size()};
}

ptxemu::ModuleHandle load_module(ptxemu::Machine& machine, const LaunchSpec& spec) {
  try {
    return machine.load(naming(spec.where + "ptx", spec.ptx, [&] { return read_text(spec.ptx); }),
                        spec.ptx);
  } catch (const ptxemu::MemoryError& error) {
    throw could_not_run(fmt::format("{}: {}", spec.ptx, error.what()));
  } catch (const ptxemu::InputError& error) {
    throw bad_input(fmt::format("{}: {}", spec.ptx, error.what()));
  }
}

std::string listed(std::vector<std::string> names) {
  constexpr size_t kMost = 8;
  if (names.size() > kMost) {
    const size_t more = names.size() - kMost;
    names.resize(kMost);
    names.push_back(fmt::format("and {} more", more));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string find_kernel(const ptxemu::Machine& machine, const ptxemu::ModuleHandle& module,
                        const LaunchSpec& spec) {
  const std::vector<std::string> names = machine.kernels(module);
  if (names.empty()) {
    throw bad_input(fmt::format("{}: has no kernel; accepted: PTX with an .entry", spec.ptx));
  }
  if (spec.kernel.empty()) {
    if (names.size() == 1) return names.front();
    throw bad_input(fmt::format("{}kernel: is missing, {} has several; accepted: {}", spec.where,
                                spec.ptx, listed(names)));
  }
  if (std::find(names.begin(), names.end(), spec.kernel) != names.end()) return spec.kernel;
  throw bad_input(fmt::format("{}kernel \"{}\": {} has no such kernel; accepted: {}", spec.where,
                              fa4::internal::excerpt(spec.kernel), spec.ptx, listed(names)));
}

// Also decodes the kernel, and so finds what no handler knows.
std::vector<uint32_t> parameter_sizes(const ptxemu::Machine& machine, const ReadyLaunch& launch) {
  try {
    return machine.parameter_sizes(launch.module, launch.request.kernel);
  } catch (const ptxemu::InputError& error) {
    throw bad_input(fmt::format("{}: {}", launch.spec->ptx, error.what()));
  }
}

void check_arguments(const ptxemu::Machine& machine, const ReadyLaunch& launch) {
  const LaunchSpec& spec = *launch.spec;
  const std::string& kernel = launch.request.kernel;
  const std::vector<uint32_t> sizes = parameter_sizes(machine, launch);
  if (sizes.size() != spec.args.size()) {
    throw bad_input(fmt::format("{}args: has {} arguments; accepted: {}, as {} has parameters",
                                spec.where, spec.args.size(), sizes.size(), kernel));
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    const ArgumentSpec& argument = spec.args[i];
    if (argument.size == sizes[i]) continue;
    throw bad_input(
        fmt::format("{}: {} of {} bytes; accepted: {} bytes, the size of parameter {} of {}",
                    argument.where, argument.kind, argument.size, sizes[i], i, kernel));
  }
}

std::vector<std::byte> piece_bytes(const ArgumentPiece& piece, const EmulatedBuffers& buffers) {
  if (const auto* bytes = std::get_if<std::vector<std::byte>>(&piece.value)) return *bytes;
  if (const auto* pointer = std::get_if<BufferAddress>(&piece.value)) {
    const uint64_t address = buffers.address(*pointer);
    std::vector<std::byte> bytes(sizeof address);
    std::memcpy(bytes.data(), &address, sizeof address);
    return bytes;
  }
  const auto& map = std::get<TensorMapSpec>(piece.value);
  ptxemu::TensorMapRequest request = map.request;
  request.address = buffers.address(map.address);
  try {
    const std::array<std::byte, 128> words = ptxemu::Machine::encode_tensor_map(request);
    return {words.begin(), words.end()};
  } catch (const ptxemu::InputError& error) {
    throw bad_input(fmt::format("{}: {}", piece.where, error.what()));
  }
}

}  // namespace

void settle_cluster(const ptxemu::Machine& machine, const ptxemu::ModuleHandle& module,
                    ptxemu::LaunchRequest& request) {
  if (request.cluster[0] != 0) return;
  const std::array<uint32_t, 3> own = machine.facts(module, request.kernel).cluster;
  for (size_t i = 0; i < own.size(); ++i) request.cluster[i] = std::max(1u, own[i]);
}

std::vector<ReadyLaunch> load_launches(ptxemu::Machine& machine,
                                       const std::vector<LaunchSpec>& specs) {
  std::map<std::string, ptxemu::ModuleHandle> modules;
  std::vector<ReadyLaunch> launches;
  for (const LaunchSpec& spec : specs) {
    ptxemu::ModuleHandle& module = modules[spec.ptx];
    if (module == nullptr) module = load_module(machine, spec);
    ReadyLaunch launch;
    launch.spec = &spec;
    launch.module = module;
    launch.request.kernel = find_kernel(machine, module, spec);
    launch.request.grid = spec.grid;
    launch.request.block = spec.block;
    launch.request.cluster = spec.cluster;
    launch.request.shared_bytes = spec.shared_bytes;
    launch.request.programmatic = spec.programmatic;
    check_arguments(machine, launch);
    settle_cluster(machine, launch.module, launch.request);
    launches.push_back(std::move(launch));
  }
  return launches;
}

std::vector<std::vector<std::byte>> argument_bytes(const LaunchSpec& spec,
                                                   const EmulatedBuffers& buffers) {
  std::vector<std::vector<std::byte>> arguments;
  for (const ArgumentSpec& argument : spec.args) {
    std::vector<std::byte>& bytes = arguments.emplace_back(argument.size);
    for (const ArgumentPiece& piece : argument.pieces) {
      const std::vector<std::byte> part = piece_bytes(piece, buffers);
      std::copy(part.begin(), part.end(), bytes.begin() + piece.offset);
    }
  }
  return arguments;
}

}  // namespace fa4::cli
