#include "device/cuda/cuda_device.h"

#include "core/logging.h"
#include "device/cuda/cuda_kernel.h"

namespace fa4::internal {
namespace {

CuPointer as_pointer(const void* pointer) { return reinterpret_cast<CuPointer>(pointer); }

class CudaEvent : public Event {
 public:
  CudaEvent(const DriverApi& api, CuContext context, const std::string& device, unsigned flags)
      : api_(api), context_(context), device_(device) {
    const ContextScope scope(api_, context_, device_);
    check_driver(api_, api_.event_create(&event_, flags), device_, "cuEventCreate");
  }
  ~CudaEvent() override {
    try {
      const ContextScope scope(api_, context_, device_);
      api_.event_destroy(event_);
    } catch (const std::exception&) {  // the driver is already gone, and the event with it
    }
  }

  void record(void* stream) override {
    const ContextScope scope(api_, context_, device_);
    check_driver(api_, api_.event_record(event_, stream), device_, "cuEventRecord");
  }
  void enqueue_wait(void* stream) const override {
    const ContextScope scope(api_, context_, device_);
    check_driver(api_, api_.stream_wait_event(stream, event_, 0), device_, "cuStreamWaitEvent");
  }
  void synchronize() override {
    const ContextScope scope(api_, context_, device_);
    check_driver(api_, api_.event_synchronize(event_), device_, "cuEventSynchronize");
  }
  double milliseconds_since(const Event& start) const override {
    float milliseconds = 0;
    const CuEvent from = static_cast<const CudaEvent&>(start).event_;
    const ContextScope scope(api_, context_, device_);
    check_driver(api_, api_.event_elapsed(&milliseconds, from, event_), device_,
                 "cuEventElapsedTime");
    return milliseconds;
  }

 private:
  const DriverApi& api_;
  CuContext context_;
  std::string device_;
  CuEvent event_ = nullptr;
};

// The feature-specific name: what fa4's kernels for that machine are compiled for.
std::string architecture_of(int major, int minor) {
  const bool has_a = major == 9 || (major == 10 && (minor == 0 || minor == 3));
  return fmt::format("sm_{}{}{}", major, minor, has_a ? "a" : "");
}

int attribute(const DriverApi& api, CuDevice device, const std::string& name, int which) {
  int value = 0;
  check_driver(api, api.device_attribute(&value, which, device), name, "cuDeviceGetAttribute");
  return value;
}

}  // namespace

void check_driver(const DriverApi& api, CuResult result, const std::string& device,
                  const char* what) {
  if (result == kCuSuccess) return;
  const char* name = nullptr;
  const char* text = nullptr;
  if (api.error_name(result, &name) != kCuSuccess || name == nullptr) name = "unknown error";
  if (api.error_string(result, &text) != kCuSuccess || text == nullptr) text = "no text";
  ErrorCode code = ErrorCode::kDriver;
  if (result == kCuOutOfMemory) code = ErrorCode::kOutOfMemory;
  if (result >= kCuStreamCaptureFirst && result <= kCuStreamCaptureLast) {
    code = ErrorCode::kStreamCapture;
  }
  throw Error(code, fmt::format("{}: {}: {} {} ({})", device, what, name, result, text));
}

ContextScope::ContextScope(const DriverApi& api, CuContext context, const std::string& device)
    : api_(api) {
  CuContext current = nullptr;
  check_driver(api_, api_.context_current(&current), device, "cuCtxGetCurrent");
  if (current == context) return;
  check_driver(api_, api_.context_push(context), device, "cuCtxPushCurrent");
  pushed_ = true;
}

ContextScope::~ContextScope() {
  CuContext popped = nullptr;
  if (pushed_) api_.context_pop(&popped);
}

int cuda_device_count(const DriverApi& api) {
  int count = 0;
  check_driver(api, api.device_count(&count), "cuda", "cuDeviceGetCount");
  return count;
}

DeviceSpec cuda_spec(const DriverApi& api, int ordinal) {
  DeviceSpec spec;
  spec.kind = DeviceKind::kCuda;
  spec.name = fmt::format("cuda:{}", ordinal);
  CuDevice device = 0;
  check_driver(api, api.device_get(&device, ordinal), spec.name, "cuDeviceGet");
  char model[256] = {};
  check_driver(api, api.device_name(model, sizeof model, device), spec.name, "cuDeviceGetName");
  spec.model = model;
  const auto get = [&](int which) { return attribute(api, device, spec.name, which); };
  spec.architecture = architecture_of(get(kCuComputeMajor), get(kCuComputeMinor));
  spec.num_threads = 0;
  spec.num_sms = get(kCuNumSms);
  spec.l2_bytes = static_cast<size_t>(get(kCuL2Bytes));
  // Two transfers a clock.
  spec.memory_bandwidth = 2e3 * get(kCuMemoryClockKHz) * get(kCuMemoryBusBits) / 8;
  spec.smem_per_block_bytes = static_cast<size_t>(get(kCuSmemPerBlockOptin));
  return spec;
}

CudaDevice::CudaDevice(const DriverApi& api, int ordinal)
    : api_(api), spec_(cuda_spec(api, ordinal)) {
  CuDevice device = 0;
  check(api_.device_get(&device, ordinal), "cuDeviceGet");
  check(api_.primary_retain(&context_, device), "cuDevicePrimaryCtxRetain");
}

std::unique_ptr<Kernel> CudaDevice::load(const KernelImage& image, uint32_t dynamic_smem_bytes) {
  return std::make_unique<CudaKernel>(api_, context_, spec_, image, dynamic_smem_bytes);
}

bool CudaDevice::is_capturing(void* stream) const {
  const ContextScope scope = enter();
  int status = 0;
  const CuResult result = api_.stream_is_capturing(stream, &status);
  // The NULL stream cannot be asked while another stream of the context is being captured.
  if (result == kCuStreamCaptureImplicit) return true;
  check(result, "cuStreamIsCapturing");
  return status != 0;
}

void CudaDevice::enqueue_zero(void* to, size_t bytes, void* stream) const {
  if (bytes == 0) return;
  const ContextScope scope = enter();
  check(api_.memory_set_async(as_pointer(to), 0, bytes / 4, stream), "cuMemsetD32Async");
}

void CudaDevice::enqueue_copy(const CopyRows& copy, void* stream) const {
  if (copy.width == 0 || copy.rows == 0) return;
  const ContextScope scope = enter();
  const size_t bytes = copy.width * copy.rows;
  if (copy.width == copy.to_pitch && copy.width == copy.from_pitch) {
    check(api_.copy_async(as_pointer(copy.to), as_pointer(copy.from), bytes, stream),
          "cuMemcpyDtoDAsync");
    return;
  }
  CuCopy2d rows{};
  rows.from.memory = rows.to.memory = kCuMemoryOfDevice;
  rows.from.device = as_pointer(copy.from);
  rows.from.pitch = copy.from_pitch;
  rows.to.device = as_pointer(copy.to);
  rows.to.pitch = copy.to_pitch;
  rows.width = copy.width;
  rows.height = copy.rows;
  check(api_.copy_2d_async(&rows, stream), "cuMemcpy2DAsync");
}

void* CudaDevice::allocate(size_t bytes) {
  if (bytes == 0) return nullptr;
  const ContextScope scope = enter();
  CuPointer pointer = 0;
  check(api_.memory_allocate(&pointer, bytes),
        fmt::format("cuMemAlloc of {} bytes", bytes).c_str());
  return reinterpret_cast<void*>(pointer);
}

void CudaDevice::free(void* pointer) {
  if (pointer == nullptr) return;
  const ContextScope scope = enter();
  check(api_.memory_free(as_pointer(pointer)), "cuMemFree");
}

void CudaDevice::copy_to_device(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  const ContextScope scope = enter();
  check(api_.copy_to_device(as_pointer(to), from, bytes), "cuMemcpyHtoD");
}

void CudaDevice::copy_to_host(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  const ContextScope scope = enter();
  check(api_.copy_to_host(to, as_pointer(from), bytes), "cuMemcpyDtoH");
}

void CudaDevice::fill(void* to, unsigned char value, size_t bytes) {
  if (bytes == 0) return;
  const ContextScope scope = enter();
  check(api_.memory_set(as_pointer(to), value, bytes), "cuMemsetD8");
}

// A blocking stream: ordered after the copies above, which use the NULL stream.
void* CudaDevice::create_stream() {
  const ContextScope scope = enter();
  CuStream stream = nullptr;
  check(api_.stream_create(&stream, 0), "cuStreamCreate");
  return stream;
}

void CudaDevice::destroy_stream(void* stream) {
  if (stream == nullptr) return;
  const ContextScope scope = enter();
  check(api_.stream_destroy(stream), "cuStreamDestroy");
}

void CudaDevice::synchronize(void* stream) {
  const ContextScope scope = enter();
  check(api_.stream_synchronize(stream), "cuStreamSynchronize");
}

std::unique_ptr<Event> CudaDevice::create_event() {
  return std::make_unique<CudaEvent>(api_, context_, spec_.name, 0);
}

void* CudaDevice::create_urgent_stream() {
  const ContextScope scope = enter();
  CuStream stream = nullptr;
  check(api_.stream_create_with_priority(&stream, kCuStreamNonBlocking, kCuHighestPriority),
        "cuStreamCreateWithPriority");
  return stream;
}

std::unique_ptr<Event> CudaDevice::create_untimed_event() {
  return std::make_unique<CudaEvent>(api_, context_, spec_.name, kCuEventDisableTiming);
}

void CudaDevice::encode_tensor_map(const TensorMapDesc& desc, void* map) const {
  const ContextScope scope = enter();  // the driver (580) refuses to encode without one
  int type = kCuMapBF16;
  if (desc.dtype == DType::kF16) type = kCuMapF16;
  if (desc.dtype == DType::kF32) type = kCuMapF32;
  constexpr uint32_t kElementStrides[5] = {1, 1, 1, 1, 1};
  constexpr int kNoInterleave = 0, kFillZeros = 0;
  const CuResult result = api_.tensor_map_encode(
      map, type, static_cast<uint32_t>(desc.rank), const_cast<void*>(desc.base), desc.dims,
      desc.strides_bytes, desc.box, kElementStrides, kNoInterleave, static_cast<int>(desc.swizzle),
      kCuMapL2Promotion128B, kFillZeros);
  if (result == kCuSuccess) return;
  check(result,
        fmt::format("cuTensorMapEncodeTiled(base {}, rank {}, dims {} {} {} {} {}, strides "
                    "{} {} {} {}, box {} {} {} {} {}, swizzle {})",
                    desc.base, desc.rank, desc.dims[0], desc.dims[1], desc.dims[2], desc.dims[3],
                    desc.dims[4], desc.strides_bytes[0], desc.strides_bytes[1],
                    desc.strides_bytes[2], desc.strides_bytes[3], desc.box[0], desc.box[1],
                    desc.box[2], desc.box[3], desc.box[4], static_cast<int>(desc.swizzle))
            .c_str());
}

}  // namespace fa4::internal
