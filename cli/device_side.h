// What an operation needs on the device that runs it: its stream, its workspace, copies of host
// tensors, and the device's clock.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "devices.h"

namespace fa4::cli {

class DeviceSide {
 public:
  DeviceSide(const DeviceChoice& device, size_t workspace_bytes);

  bool is_gpu() const { return device_.is_gpu(); }
  void* stream() const { return stream_.has_value() ? stream_->get() : nullptr; }
  void* workspace() const;

  // A copy of host memory on the GPU, which lives until drop_copies; NULL of NULL.
  template <class T>
  T* upload(T* data, int64_t count, int element_bytes) {
    return static_cast<T*>(const_cast<void*>(copy_of(data, count * element_bytes)));
  }
  void drop_copies() { copies_.clear(); }
  // Back to the host; nothing when `to` is NULL.
  void fetch(void* to, const void* from, int64_t bytes) const;

  // Mean time of `repeats` calls one after another, by the device's own clock.
  double milliseconds(int repeats, const std::function<void()>& run) const;
  void run_to_the_end(const std::function<void()>& run) const;

 private:
  const void* copy_of(const void* data, int64_t bytes);

  DeviceChoice device_;
  std::vector<fa4::internal::Buffer> copies_;
  std::vector<unsigned char> host_workspace_;
  fa4::internal::Buffer device_workspace_;
  std::optional<fa4::internal::OwnedStream> stream_;  // none: the CPU
};

}  // namespace fa4::cli
