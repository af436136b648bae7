// The practical ceiling of a Hopper GPU's tensor cores, measured.
#pragma once

#include <memory>

#include "device/device.h"

namespace fa4::internal {

class Sm90Peak {
 public:
  // Loads the kernel on `device`. Throws Error{kCompiler, kDriver}.
  explicit Sm90Peak(std::shared_ptr<Device> device);
  ~Sm90Peak();

  // Runs for about 5 ms on `stream` and waits. FLOP/s of dense bf16 products in registers and
  // shared memory: what no attention kernel exceeds at the same clock.
  double measure(void* stream);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fa4::internal
