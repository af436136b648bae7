// The one door to hardware: memory, streams, kernels of one device. The CPU is not behind it (it
// needs none of this).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/device_spec.h"
#include "core/dtype.h"
#include "core/kernel_image.h"

namespace fa4::internal {

struct LaunchConfig {
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t cluster[3] = {1, 1, 1};
  uint32_t dynamic_smem_bytes = 0;
  // Programmatic dependent launch: the kernel may start before the stream's last one has ended, and
  // waits for it itself (griddepcontrol.wait). An emulated device runs one after the other, and
  // checks that the kernel waits.
  bool waits_itself = false;
};

// Rows of bytes, which lie a pitch apart on either side.
struct CopyRows {
  void* to = nullptr;
  size_t to_pitch = 0;
  const void* from = nullptr;
  size_t from_pitch = 0;
  size_t width = 0;  // bytes of a row, at most either pitch
  size_t rows = 0;
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  // Enqueues one launch; `params` is the kernel's single parameter, copied before the call returns.
  // Neither allocates nor synchronises; safe in a stream capture; thread-safe.
  virtual void launch(const LaunchConfig& config, const void* params, size_t params_bytes,
                      void* stream) const = 0;
};

// The arguments of cuTensorMapEncodeTiled (rank, dims[0] innermost; strides_bytes[i] is that of
// dims[i + 1]).
struct TensorMapDesc {
  enum class Swizzle { kNone, k32B, k64B, k128B };
  const void* base = nullptr;
  DType dtype = DType::kBF16;
  int rank = 0;
  uint64_t dims[5] = {};
  uint64_t strides_bytes[4] = {};
  uint32_t box[5] = {};
  Swizzle swizzle = Swizzle::k128B;
};

// A point of a stream: the device time between two, and what another stream waits for.
class Event {
 public:
  virtual ~Event() = default;
  virtual void record(void* stream) = 0;
  // Enqueues: what `stream` is given from here on runs after what has been recorded last. In a
  // stream capture `stream` joins the one that the event was recorded in.
  virtual void enqueue_wait(void* stream) const = 0;
  virtual void synchronize() = 0;
  virtual double milliseconds_since(const Event& start) const = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  // Every GPU of this machine that can be opened ("cuda:0", ...); empty, not an error, without a
  // driver.
  static std::vector<DeviceSpec> enumerate();
  // emulated_specs() where the emulator's library is installed, else none.
  static std::vector<DeviceSpec> enumerate_emulated();
  // Throws Error{kDeviceUnavailable} that names what is available. One object a device and process.
  static std::shared_ptr<Device> open(std::string_view name);

  virtual const DeviceSpec& spec() const = 0;
  // What load() takes.
  virtual KernelImage::Kind image_kind() const { return KernelImage::Kind::kCubin; }
  // The kernel belongs to the caller, who keeps it as long as a launch of it may run or be
  // captured.
  virtual std::unique_ptr<Kernel> load(const KernelImage& image, uint32_t dynamic_smem_bytes) = 0;

  // The kernel of `image`, loaded at the first call for it and kept as long as this device, which
  // for a device of open() is the process: whoever launches it may forget it while launches still
  // run, and while a captured graph holds it. Thread-safe.
  const Kernel& find_or_load(std::shared_ptr<const KernelImage> image, uint32_t dynamic_smem_bytes);
  // Null when find_or_load() would have to load.
  const Kernel* find_loaded(const std::shared_ptr<const KernelImage>& image,
                            uint32_t dynamic_smem_bytes) const;

  // Writes the 128 bytes that the hardware reads. Enqueues nothing, allocates nothing.
  virtual void encode_tensor_map(const TensorMapDesc& desc, void* map) const = 0;
  virtual bool is_capturing(void* stream) const = 0;
  // What launches did so far that PTX does not promise to work, though it did: an emulated device's
  // checker counts it.
  virtual int64_t formal_findings() const { return 0; }
  // Enqueues a fill of `bytes` (a multiple of 4) with zeros; safe in a stream capture.
  virtual void enqueue_zero(void* to, size_t bytes, void* stream) const = 0;
  // Enqueues a copy within the device's memory; safe in a stream capture.
  virtual void enqueue_copy(const CopyRows& copy, void* stream) const = 0;

  // For the command line, tests and benchmarks; attention itself never allocates.
  virtual void* allocate(size_t bytes) = 0;
  virtual void free(void* pointer) = 0;
  virtual void copy_to_device(void* to, const void* from, size_t bytes) = 0;
  virtual void copy_to_host(void* to, const void* from, size_t bytes) = 0;
  virtual void fill(void* to, unsigned char value, size_t bytes) = 0;
  virtual void* create_stream() = 0;
  virtual void destroy_stream(void* stream) = 0;
  virtual void synchronize(void* stream) = 0;
  virtual std::unique_ptr<Event> create_event() = 0;

  // For operations that run on two streams. This one is of the highest priority, so that what it is
  // given begins before the rest of what the others run, and waits for none of itself.
  virtual void* create_urgent_stream() = 0;
  // Tells no time, and so costs less to record and to wait for.
  virtual std::unique_ptr<Event> create_untimed_event() = 0;

 private:
  // An image is kept with its kernel, so that no other one gets its address.
  using LoadKey = std::pair<std::shared_ptr<const KernelImage>, uint32_t>;
  mutable std::mutex loaded_mutex_;
  std::map<LoadKey, std::unique_ptr<const Kernel>> loaded_;
};

// A stream that is destroyed with the object: what it was given still runs.
class OwnedStream {
 public:
  // Takes a stream of the device's create_stream() or create_urgent_stream().
  OwnedStream(std::shared_ptr<Device> device, void* stream)
      : device_(std::move(device)), stream_(stream) {}
  ~OwnedStream();  // logs what the driver says against it
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;
  void* get() const { return stream_; }

 private:
  std::shared_ptr<Device> device_;
  void* stream_;
};

// A block of device memory, freed with the object.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device& device, size_t bytes)
      : device_(&device), data_(device.allocate(bytes)), bytes_(bytes) {}
  ~Buffer();  // logs what the driver says against it
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void swap(Buffer& other) {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  Device* device_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace fa4::internal
