#include "ptxemu/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

#include "emulator/error.h"
#include "emulator/isa/code.h"
#include "emulator/isa/target.h"
#include "emulator/machine/choose.h"
#include "emulator/machine/launch.h"
#include "emulator/machine/memory.h"
#include "emulator/machine/module_variables.h"
#include "emulator/machine/occupancy.h"
#include "emulator/machine/options.h"
#include "emulator/observe/hazards.h"

namespace ptxemu {

namespace {

// What the sandbox reserves of the host's address space; pages that nobody touches cost nothing.
constexpr uint64_t kReserveBytes = uint64_t{64} << 30;
constexpr uint32_t kMostThreads = 1024;  // of a CTA
// Of a grid: one warp a CTA that does nothing takes 40 seconds then, and under --check all 70, on
// one host thread. What the hardware's bounds allow, 2^63 CTAs, would never end.
constexpr uint64_t kMostCtas = uint64_t{1} << 24;

Options internal_options(const MachineOptions& options) {
  Options o;
  o.device = choose<const DeviceModel*>(
      "device", options.device,
      {{"emulated:b200", &DeviceModel::b200()}, {"emulated:h200", &DeviceModel::h200()}});
  o.policy = choose<Policy>("policy", options.policy,
                            {{"eager", Policy::kEager},
                             {"late", Policy::kLate},
                             {"random", Policy::kRandom},
                             {"split", Policy::kSplit}});
  o.math = choose<Math>("math", options.math,
                        {{"hw", Math::kHardware}, {"exact", Math::kExact}, {"fast", Math::kFast}});
  o.seed = options.seed;
  o.check = options.check;
  o.threads = options.threads;
  o.max_instructions = options.max_instructions;
  o.max_local_memory = options.max_local_memory;
  o.max_printed = options.max_printed;
  o.max_call_depth = options.max_call_depth;
  o.max_recorded = options.max_recorded;
  o.count_lines = options.count_lines;
  o.reorder_products = options.reorder_products;
  if (options.resident == 0) throw InputError("resident 0; accepted: 1 and more");
  o.resident = options.resident;
  o.random_launch_order =
      choose<bool>("launch_order", options.launch_order, {{"in_order", false}, {"random", true}});
  o.trace = !options.trace_file.empty();
  return o;
}

// Every error of the rooms below reaches the caller as one type.
template <class F>
auto guarded(F body) {
  try {
    return body();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kMemory) throw MemoryError(error.what());
    throw InputError(error.what());
  } catch (const std::bad_alloc&) {
    throw MemoryError("the host has not enough memory");
  }
}

struct LoadedModule {
  std::shared_ptr<const Module> module;
  ModuleVariables variables;
  std::map<std::string, std::shared_ptr<const Code>, std::less<>> kernels;
};

std::string_view status_name(Status status) {
  switch (status) {
    case Status::kOk: return "ok";
    case Status::kFindings: return "findings";
    case Status::kDeadlock: return "deadlock";
    case Status::kTrap: return "trap";
  }
  return "";
}

std::array<uint32_t, 3> array_of(const uint32_t (&v)[3]) { return {v[0], v[1], v[2]}; }

LaunchReport report_of(Launch& launch, double seconds) {
  LaunchReport report;
  report.status = status_name(launch.status);
  for (Finding& f : launch.findings) {
    report.findings.push_back({f.severity == Severity::kError ? "error" : "formal",
                               std::move(f.rule), array_of(f.cta), f.warp, f.lane, f.ptx_line,
                               std::move(f.source), std::move(f.object), std::move(f.message),
                               f.count});
  }
  for (Waiter& w : launch.waiters) {
    report.deadlock.push_back({array_of(w.cta), w.warp, w.lanes, w.ptx_line, std::move(w.source),
                               std::move(w.waits_on), w.phase, w.pending, w.pending_bytes,
                               std::move(w.last_arrivals)});
  }
  for (WarpLines& w : launch.line_counts) {
    report.line_counts.push_back({array_of(w.cta), w.warp, w.seconds, std::move(w.lines)});
  }
  report.warp_instructions = launch.counters.warp_instructions;
  report.moves = launch.counters.moves;
  report.mma = launch.counters.mma;
  report.tma_bytes = launch.counters.tma_bytes;
  report.seconds = seconds;
  report.printed = std::move(launch.printed);
  return report;
}

// Threads of a CTA that .maxntid or .reqntid names, 0 when it is not there. No CTA has more than
// 1024, and the three numbers may be any.
uint64_t threads_named(const uint32_t (&sizes)[3]) {
  if (sizes[0] == 0) return 0;
  uint64_t threads = 1;
  for (const uint32_t size : sizes) {
    threads = std::min<uint64_t>(kMostThreads, threads * std::max(1u, size));
  }
  return threads;
}

// The most threads of a CTA of the kernel, where its text says it.
uint64_t most_threads(const Function& entry) {
  return threads_named(entry.reqntid[0] != 0 ? entry.reqntid : entry.maxntid);
}

void check_shape(const Code& code, const LaunchRequest& request, const DeviceModel& device) {
  auto fail = [](const std::string& why) { throw InputError(why); };
  constexpr uint32_t kMaxGrid[3] = {0x7fffffff, 65535, 65535};
  constexpr uint32_t kMaxBlock[3] = {1024, 1024, 64};
  for (size_t i = 0; i < 3; ++i) {
    const char axis = "xyz"[i];
    if (request.grid[i] == 0 || request.grid[i] > kMaxGrid[i]) {
      fail(fmt::format("grid.{} {}; accepted: 1 to {}", axis, request.grid[i], kMaxGrid[i]));
    }
    if (request.block[i] == 0 || request.block[i] > kMaxBlock[i]) {
      fail(fmt::format("block.{} {}; accepted: 1 to {}", axis, request.block[i], kMaxBlock[i]));
    }
    if (request.cluster[i] == 0 || request.grid[i] % request.cluster[i] != 0) {
      fail(fmt::format("cluster.{} {}; accepted: a divisor of grid.{}, {}", axis,
                       request.cluster[i], axis, request.grid[i]));
    }
    const uint32_t reqntid = code.entry->reqntid[i];
    if (code.entry->reqntid[0] != 0 && std::max(1u, reqntid) != request.block[i]) {
      fail(fmt::format("block.{} {}; accepted: {}, as the kernel's .reqntid says", axis,
                       request.block[i], std::max(1u, reqntid)));
    }
    const uint32_t reqcluster = code.entry->reqnctapercluster[i];
    if (code.entry->reqnctapercluster[0] != 0 && std::max(1u, reqcluster) != request.cluster[i]) {
      fail(fmt::format("cluster.{} {}; accepted: {}, as the kernel's .reqnctapercluster says", axis,
                       request.cluster[i], std::max(1u, reqcluster)));
    }
  }
  const uint64_t grid = uint64_t{request.grid[0]} * request.grid[1] * request.grid[2];
  if (grid > kMostCtas) {
    fail(fmt::format("grid of {} CTAs; accepted: at most {}", grid, kMostCtas));
  }
  const uint64_t threads = uint64_t{request.block[0]} * request.block[1] * request.block[2];
  if (threads > kMostThreads) {
    fail(fmt::format("block of {} threads; accepted: at most {}", threads, kMostThreads));
  }
  const uint64_t most = threads_named(code.entry->maxntid);
  if (most != 0 && threads > most) {
    fail(fmt::format("block of {} threads; accepted: at most {}, as the kernel's .maxntid says",
                     threads, most));
  }
  const uint64_t ctas = uint64_t{request.cluster[0]} * request.cluster[1] * request.cluster[2];
  if (ctas > device.max_cluster) {
    fail(fmt::format("cluster of {} CTAs; accepted: at most {}", ctas, device.max_cluster));
  }
  const uint32_t rank = code.entry->maxclusterrank;
  if (rank != 0 && ctas > rank) {
    fail(fmt::format(
        "cluster of {} CTAs; accepted: at most {}, as the kernel's .maxclusterrank says", ctas,
        rank));
  }
  const uint64_t shared = code.shared_end(request.shared_bytes) - kReservedShared;
  if (shared > device.shared_bytes_per_block) {
    fail(fmt::format("shared_bytes {} and {} static; accepted: at most {} together",
                     request.shared_bytes, shared - request.shared_bytes,
                     device.shared_bytes_per_block));
  }
}

// The request with the cluster that the kernel names when the launch names none.
LaunchRequest with_cluster(LaunchRequest request, const Code& code) {
  if (request.cluster != std::array<uint32_t, 3>{0, 0, 0}) return request;
  for (size_t i = 0; i < 3; ++i) {
    request.cluster[i] = std::max<uint32_t>(1, code.entry->reqnctapercluster[i]);
  }
  return request;
}

std::vector<std::byte> lay_out(const Code& code, const std::vector<std::vector<std::byte>>& args) {
  if (args.size() != code.param_sizes.size()) {
    throw InputError(fmt::format("{} arguments; accepted: {}, as kernel {} has parameters",
                                 args.size(), code.param_sizes.size(), code.entry->name));
  }
  std::vector<std::byte> params(code.param_bytes);
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i].size() != code.param_sizes[i]) {
      throw InputError(fmt::format("argument {} of {} bytes; accepted: {}, as kernel {} declares",
                                   i, args[i].size(), code.param_sizes[i], code.entry->name));
    }
    std::copy(args[i].begin(), args[i].end(), params.begin() + code.param_offsets[i]);
  }
  return params;
}

}  // namespace

bool LaunchReport::passed() const {
  if (status == "trap" || status == "deadlock") return false;
  return std::none_of(findings.begin(), findings.end(),
                      [](const ReportedFinding& f) { return f.severity == "error"; });
}

struct Machine::Impl {
  MachineOptions options;
  Options internal;
  GlobalMemory memory{kReserveBytes};
  uint64_t workspace = 0;  // of cooperative launches
  // What a programmatic launch would run beside: nothing after the host has waited.
  std::shared_ptr<const std::vector<EarlierGrid>> earlier_grids;
  // The host waits for all launches, as whatever of it touches memory does.
  void host_waits() { earlier_grids = nullptr; }

  std::byte* view(uint64_t address, uint64_t bytes) {
    std::byte* host = memory.find(address, bytes);
    if (host == nullptr && bytes != 0) {
      throw InputError(fmt::format(
          "{} bytes at {:#x} are not inside one allocation ({}); accepted: a part of one", bytes,
          address, memory.describe(address)));
    }
    return host;
  }
  static LoadedModule& module_of(const ModuleHandle& handle) {
    return *static_cast<LoadedModule*>(const_cast<void*>(handle.get()));
  }
  const Code& kernel(const ModuleHandle& handle, std::string_view name);
  uint64_t workspace_of(const Code& code);
};

// Zeroed words for a kernel that reads where they are; 0 for others.
uint64_t Machine::Impl::workspace_of(const Code& code) {
  constexpr uint64_t kBytes = 64;
  const auto asks = [](const auto& named) {
    const auto& constants = named.second->constants;
    return std::any_of(constants.begin(), constants.end(), [](const ConstantSlot& constant) {
      return constant.base == ConstantSlot::Base::kSpecial &&
             constant.value == static_cast<uint64_t>(SpecialRegister::kEnvreg2);
    });
  };
  if (std::none_of(code.functions.begin(), code.functions.end(), asks)) return 0;
  if (workspace == 0) workspace = memory.allocate(kBytes, "grid workspace");
  std::memset(memory.find(workspace, kBytes), 0, kBytes);
  return workspace;
}

// The kernel of that name; without a name, the module's only entry.
const Code& Machine::Impl::kernel(const ModuleHandle& handle, std::string_view name) {
  LoadedModule& loaded = module_of(handle);
  std::vector<std::string_view> entries;
  for (const Function& function : loaded.module->functions) {
    if (function.is_entry && !function.is_declaration) entries.push_back(function.name);
  }
  const bool is_only = name.empty() && entries.size() == 1;
  const auto found = is_only ? entries.begin() : std::find(entries.begin(), entries.end(), name);
  if (found == entries.end()) {
    throw InputError(fmt::format("kernel '{}'; accepted: {}", name, fmt::join(entries, ", ")));
  }
  std::string wanted(*found);
  auto& code = loaded.kernels[wanted];
  if (code == nullptr) code = decode_kernel(loaded.module, wanted, loaded.variables.addresses);
  return *code;
}

Machine::Machine(MachineOptions options) {
  guarded([&] {
    impl_ = std::make_unique<Impl>();
    set_options(std::move(options));
  });
}
Machine::~Machine() = default;

const MachineOptions& Machine::options() const { return impl_->options; }

void Machine::set_options(MachineOptions options) {
  impl_->internal = internal_options(options);
  impl_->memory.set_limit(options.max_memory);
  impl_->options = std::move(options);
}

uint64_t Machine::allocate(uint64_t bytes, std::string label) {
  return guarded([&] { return impl_->memory.allocate(bytes, std::move(label)); });
}
void Machine::free(uint64_t address) {
  impl_->host_waits();
  guarded([&] { impl_->memory.free(address); });
}
void Machine::copy_in(uint64_t address, const void* from, uint64_t bytes) {
  impl_->host_waits();
  if (bytes == 0) return;
  std::memcpy(impl_->view(address, bytes), from, bytes);
  impl_->memory.unwritten().note_written(address, bytes);
}
void Machine::copy_out(void* to, uint64_t address, uint64_t bytes) const {
  impl_->host_waits();
  if (bytes != 0) std::memcpy(to, impl_->view(address, bytes), bytes);
}
void Machine::fill(uint64_t address, unsigned char value, uint64_t bytes) {
  impl_->host_waits();
  if (bytes == 0) return;
  std::memset(impl_->view(address, bytes), value, bytes);
  impl_->memory.unwritten().note_written(address, bytes);
}
void Machine::synchronize() { impl_->host_waits(); }
void Machine::mark_uninitialised(uint64_t address) {
  const auto [base, bytes] = impl_->memory.allocation_of(address);
  if (base != address || bytes == 0) {
    throw InputError(
        fmt::format("{:#x} is no allocation ({}); accepted: an address that allocate returned",
                    address, impl_->memory.describe(address)));
  }
  impl_->memory.unwritten().mark(address, bytes);
}
std::byte* Machine::host_view(uint64_t address, uint64_t bytes) {
  // Whoever has the view may write, and knows that he may.
  impl_->host_waits();
  impl_->memory.unwritten().note_written(address, bytes);
  return impl_->memory.find(address, bytes);
}
bool Machine::device_addresses_are_host_addresses() const { return impl_->memory.is_identity(); }

ModuleHandle Machine::load(std::string ptx, std::string file_name) {
  return guarded([&]() -> ModuleHandle {
    auto loaded = std::make_shared<LoadedModule>();
    loaded->module = parse_module(std::move(ptx), std::move(file_name));
    check_runs_on(*loaded->module, *impl_->internal.device);
    loaded->variables = place_variables(*loaded->module, impl_->memory);
    return loaded;
  });
}

std::vector<std::string> Machine::kernels(const ModuleHandle& module) const {
  std::vector<std::string> names;
  for (const Function& function : Impl::module_of(module).module->functions) {
    if (function.is_entry && !function.is_declaration) names.emplace_back(function.name);
  }
  return names;
}

std::vector<uint32_t> Machine::parameter_sizes(const ModuleHandle& module,
                                               std::string_view kernel) const {
  return guarded([&] { return impl_->kernel(module, kernel).param_sizes; });
}

KernelFacts Machine::facts(const ModuleHandle& module, std::string_view kernel) const {
  return guarded([&] {
    const Code& code = impl_->kernel(module, kernel);
    const Function& entry = *code.entry;
    KernelFacts facts;
    facts.static_shared_bytes = code.static_shared_end - kReservedShared;
    for (const auto& [name, function] : code.functions) facts.local_bytes += function->local_bytes;
    const uint64_t threads = most_threads(entry);
    if (threads != 0) facts.max_threads = static_cast<uint32_t>(threads);
    facts.registers = registers_of_thread(entry, facts.max_threads);
    for (size_t i = 0; i < 3; ++i) facts.cluster[i] = entry.reqnctapercluster[i];
    facts.parameter_offsets = code.param_offsets;
    return facts;
  });
}

uint32_t Machine::ctas_per_multiprocessor(const ModuleHandle& module, std::string_view kernel,
                                          uint32_t threads, uint32_t shared_bytes) const {
  return guarded([&] {
    const Code& code = impl_->kernel(module, kernel);
    const uint64_t most = most_threads(*code.entry);
    if (threads == 0 || threads > (most == 0 ? kMostThreads : most)) return 0u;
    return ptxemu::ctas_per_multiprocessor(code, threads, shared_bytes, *impl_->internal.device);
  });
}

std::pair<uint64_t, uint64_t> Machine::symbol(const ModuleHandle& module,
                                              std::string_view name) const {
  const LoadedModule& loaded = Impl::module_of(module);
  const auto found = loaded.variables.addresses.find(name);
  if (found == loaded.variables.addresses.end()) return {0, 0};
  return {found->second, loaded.variables.sizes.at(name)};
}

LaunchReport Machine::launch(const ModuleHandle& module, const LaunchRequest& asked,
                             const std::vector<std::vector<std::byte>>& arguments) {
  return guarded([&] {
    const auto start = std::chrono::steady_clock::now();
    const Code& code = impl_->kernel(module, asked.kernel);
    const LaunchRequest request = with_cluster(asked, code);
    check_shape(code, request, *impl_->internal.device);
    Launch launch;
    launch.code = &code;
    launch.options = impl_->internal;
    launch.memory = &impl_->memory;
    std::copy(request.grid.begin(), request.grid.end(), launch.shape.grid);
    std::copy(request.block.begin(), request.block.end(), launch.shape.block);
    std::copy(request.cluster.begin(), request.cluster.end(), launch.shape.cluster);
    launch.shape.dynamic_shared_bytes = request.shared_bytes;
    launch.params = lay_out(code, arguments);
    launch.grid_workspace = impl_->workspace_of(code);
    auto earlier_grids = std::exchange(impl_->earlier_grids, nullptr);
    if (request.programmatic) launch.earlier_grids = std::move(earlier_grids);
    if (impl_->internal.check) {
      launch.observer = make_checker(launch);
    } else {
      impl_->memory.unwritten().clear();  // nobody sees what this launch writes
    }
    if (impl_->internal.trace) launch.trace = std::make_unique<Trace>();
    launch.run();
    impl_->earlier_grids = std::move(launch.earlier_grids);
    if (launch.trace != nullptr && !launch.trace->write(impl_->options.trace_file)) {
      throw InputError(fmt::format(
          "trace_file '{}' cannot be written; accepted: a file in a folder that is there",
          impl_->options.trace_file));
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    return report_of(launch, seconds.count());
  });
}

}  // namespace ptxemu
