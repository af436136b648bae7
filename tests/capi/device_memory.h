// Memory of a GPU, through the C ABI.
#pragma once

#include <cstdint>
#include <vector>

#include "fa4/attention.h"

using Bytes = std::vector<unsigned char>;

// A device's copy of host memory, or room.
class DeviceMemory {
 public:
  DeviceMemory(fa4_device* device, const void* from, size_t bytes)
      : device_(device), bytes_(bytes) {
    fa4::check(fa4_device_alloc(device_, bytes, &data_));
    fa4::check(fa4_device_copy(device_, data_, from, bytes, FA4_TO_DEVICE));
  }
  DeviceMemory(DeviceMemory&& other) noexcept
      : device_(other.device_), data_(other.data_), bytes_(other.bytes_) {
    other.data_ = nullptr;
  }
  ~DeviceMemory() { fa4_device_free(device_, data_); }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  void fetch(void* to) const {
    fa4::check(fa4_device_copy(device_, to, data_, bytes_, FA4_TO_HOST));
  }
  Bytes fetch() const {
    Bytes bytes(bytes_);
    fetch(bytes.data());
    return bytes;
  }

 private:
  fa4_device* device_;
  void* data_ = nullptr;
  size_t bytes_;
};

// bf16 or f16 alike: finite numbers of every sign.
inline std::vector<uint16_t> numbers(size_t count, uint32_t seed) {
  std::vector<uint16_t> result(count);
  uint32_t state = seed * 2654435761u + 1;
  for (uint16_t& bits : result) {
    state = state * 1664525u + 1013904223u;
    bits = static_cast<uint16_t>((state >> 16 & 0x8fffu) + 0x3000u);
  }
  return result;
}
