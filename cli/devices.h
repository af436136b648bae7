// Devices by their names on the command line.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/device_spec.h"
#include "device/device.h"

namespace fa4::cli {

struct DeviceChoice {
  fa4::internal::DeviceSpec spec;
  std::shared_ptr<fa4::internal::Device> device;  // null: the CPU
  bool is_gpu() const { return device != nullptr; }
};

// "cpu" and what the driver has.
std::vector<fa4::internal::DeviceSpec> all_devices();

// Throws Failure{kBadInput} for a name that is not there, with those that are.
DeviceChoice open_device(const std::string& name);

// Only what a plan needs: "cuda:N" may be absent, and is then an H200 by its data sheet.
struct PlannedDevice {
  fa4::internal::DeviceSpec spec;
  bool present = true;
};
PlannedDevice describe_device(const std::string& name);

}  // namespace fa4::cli
