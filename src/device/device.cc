#include "device/device.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <map>
#include <mutex>

#include "core/error.h"
#include "core/excerpt.h"
#include "core/logging.h"
#include "device/cuda/cuda_device.h"
#include "device/emulated/emulated_device.h"
#include "device/emulated/machine_library.h"

namespace fa4::internal {
namespace {

std::string available() {
  std::string names = "cpu";
  for (const DeviceSpec& spec : Device::enumerate()) names += ", " + spec.name;
  for (const DeviceSpec& spec : Device::enumerate_emulated()) names += ", " + spec.name;
  return names;
}

[[noreturn]] void unavailable(std::string_view name, std::string_view why) {
  throw Error(ErrorCode::kDeviceUnavailable,
              fmt::format("{}: {}; available: {}", name.empty() ? "\"\"" : excerpt(name), why,
                          available()));
}

// "cuda:3" -> 3; -1 for any other text, "cuda:03" too: a device has one name.
int cuda_ordinal(std::string_view name) {
  constexpr std::string_view kPrefix = "cuda:";
  if (!name.starts_with(kPrefix)) return -1;
  int ordinal = -1;
  std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), ordinal);
  return fmt::format("cuda:{}", ordinal) == name ? ordinal : -1;
}

struct OpenDevices {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Device>, std::less<>> devices;

  template <class Make>
  std::shared_ptr<Device> find_or_make(std::string_view name, const Make& make) {
    const std::lock_guard lock(mutex);
    std::shared_ptr<Device>& device = devices[std::string(name)];
    if (device == nullptr) device = make();
    return device;
  }
};

// Never destroyed: at process exit the driver may be gone before us.
OpenDevices& open_devices() {
  static OpenDevices* const kOpen = new OpenDevices;
  return *kOpen;
}

// For destructors.
template <class Body>
void log_errors(const Body& body) noexcept {
  try {
    body();
  } catch (const std::exception& error) {
    log(1, error.what());
  }
}

}  // namespace

std::vector<DeviceSpec> Device::enumerate() {
  std::vector<DeviceSpec> specs;
  const DriverApi* api = driver_api();
  if (api == nullptr) return specs;
  try {
    const int count = cuda_device_count(*api);
    for (int ordinal = 0; ordinal < count; ++ordinal) specs.push_back(cuda_spec(*api, ordinal));
  } catch (const Error& error) {
    log(1, error.what());
  }
  return specs;
}

std::vector<DeviceSpec> Device::enumerate_emulated() {
  return machine_methods() == nullptr ? std::vector<DeviceSpec>() : emulated_specs();
}

const Kernel& Device::find_or_load(std::shared_ptr<const KernelImage> image,
                                   uint32_t dynamic_smem_bytes) {
  const std::lock_guard lock(loaded_mutex_);
  std::unique_ptr<const Kernel>& kernel = loaded_[{image, dynamic_smem_bytes}];
  if (kernel == nullptr) kernel = load(*image, dynamic_smem_bytes);
  return *kernel;
}

const Kernel* Device::find_loaded(const std::shared_ptr<const KernelImage>& image,
                                  uint32_t dynamic_smem_bytes) const {
  const std::lock_guard lock(loaded_mutex_);
  const auto found = loaded_.find({image, dynamic_smem_bytes});
  return found == loaded_.end() ? nullptr : found->second.get();
}

std::shared_ptr<Device> Device::open(std::string_view name) {
  for (const DeviceSpec& spec : emulated_specs()) {
    if (spec.name != name) continue;
    const ptxemu::Methods* methods = machine_methods();
    if (methods == nullptr) unavailable(name, machine_problem());
    return open_devices().find_or_make(name, [&] {
      return std::make_shared<EmulatedDevice>(spec, *methods, configured_machine(spec));
    });
  }
  const int ordinal = cuda_ordinal(name);
  if (ordinal < 0) unavailable(name, "not the name of a device: cpu, cuda:N or an emulated one's");
  const DriverApi* api = driver_api();
  if (api == nullptr) unavailable(name, driver_problem());
  if (ordinal >= cuda_device_count(*api)) unavailable(name, "no such device");
  return open_devices().find_or_make(name,
                                     [&] { return std::make_shared<CudaDevice>(*api, ordinal); });
}

OwnedStream::~OwnedStream() {
  log_errors([&] { device_->destroy_stream(stream_); });
}

Buffer::~Buffer() {
  if (data_ != nullptr) log_errors([&] { device_->free(data_); });
}

}  // namespace fa4::internal
