#include "devices.h"

#include <fmt/format.h>

#include "commands.h"

namespace fa4::cli {

using namespace fa4::internal;

namespace {

bool is_cuda_name(const std::string& name) {
  return name.size() > 5 && name.size() <= 8 && name.starts_with("cuda:") &&
         name.find_first_not_of("0123456789", 5) == std::string::npos;
}

Failure no_such_device(const std::string& name, std::string_view also = "") {
  std::vector<std::string> names;
  for (const DeviceSpec& spec : all_devices()) names.push_back(spec.name);
  return bad_input(fmt::format("--device {}: no such device; accepted: {}{}", name,
                               fmt::join(names, ", "), also));
}

Json features_of(const DeviceSpec& spec) {
  Json features = Json::array();
  if (spec.kind != DeviceKind::kCpu) {
    features = {fmt::format("{} SMs", spec.num_sms), fmt::format("{} MiB L2", spec.l2_bytes >> 20),
                fmt::format("{} KiB shared memory a block", spec.smem_per_block_bytes >> 10)};
    return features;
  }
  features.push_back("scalar");
  if (spec.cpu.avx2) features.push_back("avx2");
  if (spec.cpu.avx512) features.push_back("avx512");
  if (spec.cpu.avx512_bf16) features.push_back("avx512_bf16");
  if (spec.cpu.avx512_fp16) features.push_back("avx512_fp16");
  if (spec.cpu.amx_bf16) features.push_back("amx");
  return features;
}

std::string_view kind_name(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kCpu: return "cpu";
    case DeviceKind::kCuda: return "cuda";
    case DeviceKind::kEmulated: return "emulated";
  }
  return "";
}

class DevicesCommand final : public Command {
 public:
  const char* name() const override { return "devices"; }
  const char* description() const override { return "List what attention can run on here"; }
  void declare(Options&) override {}

  Outcome run() override {
    Outcome outcome;
    outcome.json["device"] = "cpu";
    outcome.json["devices"] = Json::array();
    for (const DeviceSpec& spec : all_devices()) {
      const bool cpu = spec.kind == DeviceKind::kCpu;
      const Json features = features_of(spec);
      std::vector<std::string> words = features.get<std::vector<std::string>>();
      if (cpu) words.push_back(fmt::format("{} threads", spec.num_threads));
      outcome.text += fmt::format("{:<13} {:<8} {:<8} {}: {}\n", spec.name, kind_name(spec.kind),
                                  spec.architecture, spec.model, fmt::join(words, ", "));
      outcome.json["devices"].push_back({{"name", spec.name},
                                         {"kind", kind_name(spec.kind)},
                                         {"architecture", spec.architecture},
                                         {"features", features},
                                         {"model", spec.model},
                                         {"threads", cpu ? Json(spec.num_threads) : Json()}});
    }
    return outcome;
  }
};

}  // namespace

std::vector<DeviceSpec> all_devices() {
  std::vector<DeviceSpec> devices = Device::enumerate();
  devices.insert(devices.begin(), host_cpu_spec());
  for (DeviceSpec& spec : Device::enumerate_emulated()) devices.push_back(std::move(spec));
  return devices;
}

DeviceChoice open_device(const std::string& name) {
  if (name == "cpu") return {host_cpu_spec(), nullptr};
  for (const DeviceSpec& spec : emulated_specs()) {
    if (spec.name == name) return {spec, Device::open(name)};  // or why it cannot be opened
  }
  for (const DeviceSpec& spec : all_devices()) {
    if (spec.name == name) return {spec, Device::open(name)};
  }
  throw no_such_device(name);
}

PlannedDevice describe_device(const std::string& name) {
  for (const DeviceSpec& spec : all_devices()) {
    if (spec.name == name) return {spec, true};
  }
  for (const DeviceSpec& spec : emulated_specs()) {
    if (spec.name == name) return {spec, false};
  }
  if (!is_cuda_name(name)) throw no_such_device(name, ", cuda:N (an H200 where there is none)");
  DeviceSpec spec = h200_spec();
  spec.name = name;
  return {spec, false};
}

std::unique_ptr<Command> make_devices_command() { return std::make_unique<DevicesCommand>(); }

}  // namespace fa4::cli
