#include "device_side.h"

#include <algorithm>

#include "core/rounding.h"
#include "plan/steps.h"

namespace fa4::cli {

using namespace fa4::internal;

DeviceSide::DeviceSide(const DeviceChoice& device, size_t workspace_bytes) : device_(device) {
  if (device_.is_gpu()) {
    stream_.emplace(device_.device, device_.device->create_stream());
    if (workspace_bytes > 0) device_workspace_ = Buffer(*device_.device, workspace_bytes);
  } else if (workspace_bytes > 0) {
    host_workspace_.resize(workspace_bytes + kWorkspaceAlignment - 1);
  }
}

void* DeviceSide::workspace() const {
  if (host_workspace_.empty()) return device_workspace_.data();
  return reinterpret_cast<void*>(
      round_up(reinterpret_cast<intptr_t>(host_workspace_.data()), kWorkspaceAlignment));
}

const void* DeviceSide::copy_of(const void* data, int64_t bytes) {
  if (data == nullptr) return nullptr;
  copies_.emplace_back(*device_.device, std::max<size_t>(static_cast<size_t>(bytes), 16));
  if (bytes > 0) {
    device_.device->copy_to_device(copies_.back().data(), data, static_cast<size_t>(bytes));
  }
  return copies_.back().data();
}

void DeviceSide::fetch(void* to, const void* from, int64_t bytes) const {
  if (to != nullptr && bytes > 0) {
    device_.device->copy_to_host(to, from, static_cast<size_t>(bytes));
  }
}

void DeviceSide::run_to_the_end(const std::function<void()>& run) const {
  run();
  if (device_.is_gpu()) device_.device->synchronize(stream());
}

double DeviceSide::milliseconds(int repeats, const std::function<void()>& run) const {
  if (device_.is_gpu()) {
    const std::unique_ptr<Event> begin = device_.device->create_event();
    const std::unique_ptr<Event> end = device_.device->create_event();
    begin->record(stream());
    for (int i = 0; i < repeats; ++i) run();
    end->record(stream());
    end->synchronize();
    return end->milliseconds_since(*begin) / repeats;
  }
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < repeats; ++i) run();
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
  return time.count() / repeats;
}

}  // namespace fa4::cli
