// A GPU that is not there, behind the door of device.h: PTX runs on the CPU (ptxemu/machine.h).
//
// Every call has done its work when it returns, whatever the stream: nothing is ever captured or
// pending. A launch in which the emulator sees an error of the kernel throws. Thread-safe; launches
// run one at a time.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "core/error.h"
#include "device/device.h"
#include "device/emulated/launch_files.h"
#include "ptxemu/methods.h"

namespace fa4::internal {

// How config() wants the machine.
ptxemu::MachineOptions configured_machine(const DeviceSpec& spec);

class EmulatedDevice : public Device {
 public:
  // `methods` outlives the device.
  EmulatedDevice(const DeviceSpec& spec, const ptxemu::Methods& methods,
                 const ptxemu::MachineOptions& options);

  const DeviceSpec& spec() const override { return spec_; }
  KernelImage::Kind image_kind() const override { return KernelImage::Kind::kPtx; }
  std::unique_ptr<Kernel> load(const KernelImage& image, uint32_t dynamic_smem_bytes) override;
  void encode_tensor_map(const TensorMapDesc& desc, void* map) const override;
  bool is_capturing(void*) const override { return false; }
  int64_t formal_findings() const override { return shared_->formal_findings.load(); }
  void enqueue_zero(void* to, size_t bytes, void* stream) const override;
  void enqueue_copy(const CopyRows& copy, void* stream) const override;

  void* allocate(size_t bytes) override;
  void free(void* pointer) override;
  void copy_to_device(void* to, const void* from, size_t bytes) override;
  void copy_to_host(void* to, const void* from, size_t bytes) override;
  void fill(void* to, unsigned char value, size_t bytes) override;
  void* create_stream() override;
  void destroy_stream(void* stream) override;
  void synchronize(void*) override;
  std::unique_ptr<Event> create_event() override;
  void* create_urgent_stream() override { return create_stream(); }
  std::unique_ptr<Event> create_untimed_event() override { return create_event(); }

 private:
  // The machine, which one thread may use at a time; kernels share it with the device.
  struct Shared {
    const ptxemu::Methods& methods;
    std::mutex mutex;
    ptxemu::Machine* machine;
    void* last_stream = nullptr;  // of the last launch
    Allocations allocations;
    std::atomic<int64_t> formal_findings = 0;

    explicit Shared(const ptxemu::Methods& of, const ptxemu::MachineOptions& options)
        : methods(of), machine(of.create(options)) {}
    ~Shared() { methods.destroy(machine); }
    Shared(const Shared&) = delete;
    Shared& operator=(const Shared&) = delete;

    template <class Method, class... Arguments>
    auto call(Method ptxemu::Methods::*method, Arguments&&... arguments) {
      return (machine->*(methods.*method))(std::forward<Arguments>(arguments)...);
    }
  };
  class LoadedKernel;

  // Runs `body(shared)` alone; its InputError becomes an Error{code} that names device and call.
  template <class Body>
  auto with_machine(ErrorCode code, const char* what, const Body& body) const;

  DeviceSpec spec_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace fa4::internal
