#include "device/emulated/emulated_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>

#include "core/config.h"
#include "core/error.h"
#include "core/logging.h"

namespace fa4::internal {

ptxemu::MachineOptions configured_machine(const DeviceSpec& spec) {
  const Config& c = config();
  ptxemu::MachineOptions options;
  options.device = spec.name;
  options.policy = c.emulator_policy;
  options.seed = c.emulator_seed;
  options.check = c.emulator_check;
  options.math = c.emulator_math;
  options.launch_order = c.emulator_launch_order;
  options.reorder_products = c.emulator_reorder_products;
  options.resident = static_cast<uint32_t>(c.emulator_resident);
  options.threads = static_cast<uint32_t>(c.num_threads);
  return options;
}

namespace {

using Clock = std::chrono::steady_clock;

uint64_t address_of(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

// The host's clock: work is done when it has been enqueued.
class HostEvent final : public Event {
 public:
  void record(void*) override { at_ = Clock::now(); }
  void enqueue_wait(void*) const override {}
  void synchronize() override {}
  double milliseconds_since(const Event& start) const override {
    const std::chrono::duration<double, std::milli> elapsed =
        at_ - static_cast<const HostEvent&>(start).at_;
    return elapsed.count();
  }

 private:
  Clock::time_point at_ = Clock::now();
};

std::string place(const ptxemu::ReportedFinding& finding) {
  return fmt::format("cta ({},{},{}) warp {}, PTX line {}{}{}", finding.cta[0], finding.cta[1],
                     finding.cta[2], finding.warp, finding.ptx_line,
                     finding.source.empty() ? "" : ", ", finding.source);
}

// Who waits for what: one waiter for each thing waited for, with how many wait for it.
std::string describe(const std::vector<ptxemu::ReportedWaiter>& waiters) {
  constexpr size_t kMostShown = 6;
  std::vector<std::pair<const ptxemu::ReportedWaiter*, int>> shown;
  for (const ptxemu::ReportedWaiter& waiter : waiters) {
    const auto same = std::find_if(shown.begin(), shown.end(), [&](const auto& entry) {
      return entry.first->waits_on == waiter.waits_on;
    });
    if (same != shown.end()) {
      ++same->second;
    } else if (shown.size() < kMostShown) {
      shown.emplace_back(&waiter, 1);
    }
  }
  std::string text = fmt::format("{} waiters", waiters.size());
  for (const auto& [waiter, count] : shown) {
    text += fmt::format("; {} for {}, the first is cta ({},{},{}) warp {} at PTX line {}", count,
                        waiter->waits_on, waiter->cta[0], waiter->cta[1], waiter->cta[2],
                        waiter->warp, waiter->ptx_line);
  }
  return text;
}

// What went wrong in one line: the first error, or who waits for what.
std::string describe(const ptxemu::LaunchReport& report) {
  const auto error =
      std::find_if(report.findings.begin(), report.findings.end(),
                   [](const ptxemu::ReportedFinding& f) { return f.severity == "error"; });
  std::string text = report.status;
  if (error != report.findings.end()) {
    const auto errors =
        std::count_if(error, report.findings.end(),
                      [](const ptxemu::ReportedFinding& f) { return f.severity == "error"; });
    text += fmt::format(": {} at {}: {}", error->rule, place(*error), error->message);
    if (errors > 1) text += fmt::format(" (and {} more errors)", errors - 1);
  } else if (!report.deadlock.empty()) {
    text += ": " + describe(report.deadlock);
  }
  return text;
}

// "8 formal findings: 7 order_dependent, 1 global-race".
std::string count_by_rule(const ptxemu::LaunchReport& report) {
  std::map<std::string_view, int> counts;
  for (const ptxemu::ReportedFinding& finding : report.findings) ++counts[finding.rule];
  std::string text = fmt::format("{} formal findings", report.findings.size());
  const char* before = ": ";
  for (const auto& [rule, count] : counts) {
    text += fmt::format("{}{} {}", before, count, rule);
    before = ", ";
  }
  return text;
}

}  // namespace

template <class Body>
auto EmulatedDevice::with_machine(ErrorCode code, const char* what, const Body& body) const {
  const std::lock_guard lock(shared_->mutex);
  try {
    return body(*shared_);
  } catch (const ptxemu::InputError& error) {
    throw Error(code, fmt::format("{}: {}: {}", spec_.name, what, error.what()));
  }
}

class EmulatedDevice::LoadedKernel final : public Kernel {
 public:
  LoadedKernel(const EmulatedDevice& device, const KernelImage& image)
      : device_(device.spec_.name),
        name_(image.display_name),
        entry_(image.entry),
        shared_(device.shared_) {
    std::string text(image.bytes.begin(), image.bytes.end());
    if (!config().emulator_save.empty()) ptx_ = text.c_str();  // NVRTC's ends in NUL
    module_ =
        device.with_machine(ErrorCode::kDriver, ("loading " + name_).c_str(), [&](Shared& machine) {
          ptxemu::ModuleHandle module =
              machine.call(&ptxemu::Methods::load, std::move(text), name_ + ".ptx");
          // Decodes it: a form unknown is known now.
          machine.call(&ptxemu::Methods::parameter_sizes, module, entry_);
          return module;
        });
  }

  void launch(const LaunchConfig& config, const void* params, size_t params_bytes,
              void* stream) const override {
    ptxemu::LaunchRequest request;
    request.kernel = entry_;
    std::copy_n(config.grid, 3, request.grid.begin());
    std::copy_n(config.block, 3, request.block.begin());
    std::copy_n(config.cluster, 3, request.cluster.begin());
    request.shared_bytes = config.dynamic_smem_bytes;
    std::vector<std::byte> argument(params_bytes);
    std::memcpy(argument.data(), params, params_bytes);
    ptxemu::LaunchReport report;
    try {
      const std::lock_guard lock(shared_->mutex);
      request.programmatic = config.waits_itself && stream == shared_->last_stream;
      shared_->last_stream = stream;
      if (const std::string& folder = internal::config().emulator_save; !folder.empty()) {
        save_launch(folder, {ptx_, name_, request, params, params_bytes}, shared_->allocations);
      }
      report = shared_->call(&ptxemu::Methods::launch, module_, request,
                             std::vector<std::vector<std::byte>>{std::move(argument)});
    } catch (const ptxemu::InputError& error) {
      throw Error(ErrorCode::kDriver,
                  fmt::format("{}: launch of {}: {}", device_, name_, error.what()));
    }
    if (!(report.*shared_->methods.passed)()) {
      throw Error(ErrorCode::kDriver,
                  fmt::format("{}: launch of {}: {}", device_, name_, describe(report)));
    }
    if (!report.findings.empty()) {
      shared_->formal_findings += static_cast<int64_t>(report.findings.size());
      const ptxemu::ReportedFinding& formal = report.findings.front();
      log(1, fmt::format("{}: launch of {}: formal: {} at {}: {} (one of {})", device_, name_,
                         formal.rule, place(formal), formal.message, count_by_rule(report)));
    }
    log(2, fmt::format("{}: {} ran {} warp instructions in {:.3f} s: {}, {} findings", device_,
                       name_, report.warp_instructions, report.seconds, report.status,
                       report.findings.size()));
  }

 private:
  std::string device_, name_, entry_;
  std::string ptx_;  // empty where launches are not saved
  std::shared_ptr<Shared> shared_;
  ptxemu::ModuleHandle module_;
};

EmulatedDevice::EmulatedDevice(const DeviceSpec& spec, const ptxemu::Methods& methods,
                               const ptxemu::MachineOptions& options)
    : spec_(spec), shared_(std::make_shared<Shared>(methods, options)) {
  if (!shared_->call(&ptxemu::Methods::device_addresses_are_host_addresses)) {
    throw Error(
        ErrorCode::kOutOfMemory,
        fmt::format("{}: no room for its memory in this process's address space", spec.name));
  }
}

std::unique_ptr<Kernel> EmulatedDevice::load(const KernelImage& image, uint32_t) {
  if (image.kind != KernelImage::Kind::kPtx) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: {} is machine code; accepted: PTX",
                                                         spec_.name, image.display_name));
  }
  return std::make_unique<LoadedKernel>(*this, image);
}

void EmulatedDevice::encode_tensor_map(const TensorMapDesc& desc, void* map) const {
  static constexpr const char* kSwizzles[] = {"none", "32B", "64B", "128B"};
  const auto rank = static_cast<size_t>(desc.rank);
  ptxemu::TensorMapRequest request;
  request.address = address_of(desc.base);
  request.dtype = name_of(desc.dtype);
  request.dims.assign(desc.dims, desc.dims + rank);
  request.strides_bytes.assign(desc.strides_bytes, desc.strides_bytes + (rank - 1));
  request.box.assign(desc.box, desc.box + rank);
  request.swizzle = kSwizzles[static_cast<int>(desc.swizzle)];
  try {
    const std::array<std::byte, 128> bytes = shared_->methods.encode_tensor_map(request);
    std::memcpy(map, bytes.data(), bytes.size());
  } catch (const ptxemu::InputError& error) {
    throw Error(ErrorCode::kDriver, fmt::format("{}: tensor map: {}", spec_.name, error.what()));
  }
}

void EmulatedDevice::synchronize(void*) {
  const std::lock_guard lock(shared_->mutex);
  shared_->call(&ptxemu::Methods::synchronize);
}

void EmulatedDevice::enqueue_zero(void* to, size_t bytes, void*) const {
  with_machine(ErrorCode::kDriver, "fill", [&](Shared& machine) {
    machine.call(&ptxemu::Methods::fill, address_of(to), 0, bytes);
  });
}

void EmulatedDevice::enqueue_copy(const CopyRows& copy, void*) const {
  with_machine(ErrorCode::kDriver, "copy of rows", [&](Shared& machine) {
    std::vector<std::byte> row(copy.width);
    for (size_t i = 0; i < copy.rows; ++i) {
      const char* from = static_cast<const char*>(copy.from) + i * copy.from_pitch;
      machine.call(&ptxemu::Methods::copy_out, row.data(), address_of(from), copy.width);
      machine.call(&ptxemu::Methods::copy_in,
                   address_of(static_cast<char*>(copy.to) + i * copy.to_pitch), row.data(),
                   copy.width);
    }
  });
}

void* EmulatedDevice::allocate(size_t bytes) {
  if (bytes == 0) return nullptr;
  return with_machine(ErrorCode::kOutOfMemory, "allocation", [&](Shared& machine) {
    const uint64_t address = machine.call(&ptxemu::Methods::allocate, bytes, "");
    machine.allocations[address] = bytes;
    return reinterpret_cast<void*>(address);
  });
}

void EmulatedDevice::free(void* pointer) {
  if (pointer == nullptr) return;
  with_machine(ErrorCode::kDriver, "free", [&](Shared& machine) {
    machine.call(&ptxemu::Methods::free, address_of(pointer));
    machine.allocations.erase(address_of(pointer));
  });
}

void EmulatedDevice::copy_to_device(void* to, const void* from, size_t bytes) {
  with_machine(ErrorCode::kDriver, "copy to the device", [&](Shared& machine) {
    machine.call(&ptxemu::Methods::copy_in, address_of(to), from, bytes);
  });
}

void EmulatedDevice::copy_to_host(void* to, const void* from, size_t bytes) {
  with_machine(ErrorCode::kDriver, "copy to the host", [&](Shared& machine) {
    machine.call(&ptxemu::Methods::copy_out, to, address_of(from), bytes);
  });
}

void EmulatedDevice::fill(void* to, unsigned char value, size_t bytes) {
  with_machine(ErrorCode::kDriver, "fill", [&](Shared& machine) {
    machine.call(&ptxemu::Methods::fill, address_of(to), value, bytes);
  });
}

// A stream has no state: an address of its own is all that tells one from another.
void* EmulatedDevice::create_stream() { return new char; }
void EmulatedDevice::destroy_stream(void* stream) { delete static_cast<char*>(stream); }

std::unique_ptr<Event> EmulatedDevice::create_event() { return std::make_unique<HostEvent>(); }

}  // namespace fa4::internal
