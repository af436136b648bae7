// The streams that a program's lanes run on.
#pragma once

#include <memory>
#include <optional>

#include "device/device.h"
#include "distributed/program.h"

namespace fa4::internal {

// The lanes of one operation, which executes once at a time (Communicator::in_turn).
class Lanes {
 public:
  // The lanes of one execution; the same stream twice where they do not overlap.
  struct Streams {
    void* compute;
    void* exchange;
    void* of(Lane lane) const { return lane == Lane::kCompute ? compute : exchange; }
  };

  // Every step goes on the caller's stream.
  Lanes() = default;
  // The exchange has a stream of its own, whose work begins before what attention has not begun.
  // Throws Error{kDriver, kOutOfMemory}.
  explicit Lanes(std::shared_ptr<Device> device);

  // For an execution on the caller's `stream`.
  Streams of_execution(void* stream);

  // Enqueues: what `lane` is given from here on runs after what the other one has been given.
  void wait(Lane lane, const Streams& streams);

  // Has the caller's stream wait for an execution that failed on its way: what it has been given
  // still uses the caller's memory. Logs what the driver says against it.
  void join_failed(const Streams& streams) noexcept;

 private:
  std::shared_ptr<Device> device_;
  std::optional<OwnedStream> exchange_;
  std::unique_ptr<Event> event_;
  void* last_ = nullptr;  // caller's stream that the exchange has waited for
};

}  // namespace fa4::internal
