#include "attention/sm90_peak.h"

#include "jit/kernel_cache.h"
#include "kernels/sm90/peak/traits.h"
#include "plan/kernel_spec.h"

namespace fa4::internal {

struct Sm90Peak::State {
  explicit State(std::shared_ptr<Device> opened)
      : device(std::move(opened)),
        kernel(device->find_or_load(
            KernelCache::get().find_or_compile(sm90_peak_source(), device->spec().architecture,
                                               device->image_kind()),
            sm90::kPeakSmemBytes)),
        start(device->create_event()),
        stop(device->create_event()) {}

  std::shared_ptr<Device> device;
  const Kernel& kernel;  // the device's
  std::unique_ptr<Event> start, stop;
};

Sm90Peak::Sm90Peak(std::shared_ptr<Device> device)
    : state_(std::make_unique<State>(std::move(device))) {}
Sm90Peak::~Sm90Peak() = default;

double Sm90Peak::measure(void* stream) {
  constexpr int kIterations = 2000;  // 5 ms at 800 TFLOP/s
  const int blocks = state_->device->spec().num_sms;
  LaunchConfig config;
  config.grid[0] = static_cast<uint32_t>(blocks);
  config.block[0] = sm90::kPeakThreads;
  config.dynamic_smem_bytes = sm90::kPeakSmemBytes;
  const PeakParams params{.iterations = kIterations, .never_written = nullptr};
  state_->start->record(stream);
  state_->kernel.launch(config, &params, sizeof(params), stream);
  state_->stop->record(stream);
  state_->stop->synchronize();
  const double seconds = state_->stop->milliseconds_since(*state_->start) / 1e3;
  return sm90::kPeakFlops * kIterations * blocks / seconds;
}

}  // namespace fa4::internal
