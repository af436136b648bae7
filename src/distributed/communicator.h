// One rank of a group, and how bytes go from rank to rank.
#pragma once

#include <exception>
#include <mutex>

#include "core/device_spec.h"
#include "core/error.h"
#include "distributed/memory.h"
#include "distributed/program.h"

namespace fa4::internal {

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Throws Error{kNotSupported} unless it moves memory of such a device.
  virtual void check_device(const DeviceSpec& device) const = 0;

  // This rank's part of an exchange: enqueued on `stream`, or done when it returns. Allocates
  // nothing. Called within in_turn().
  virtual void exchange(const ExchangeStep& step, const Bases& bases, const Memory& memory,
                        void* stream) = 0;

  // This rank takes part in nothing more; those that wait for it get an error.
  virtual void leave() {}

  // Runs `body`, one execution of an operation, while no other thread of this rank runs one. What
  // it throws is made known to the other ranks, where that can be.
  template <class Body>
  void in_turn(const Body& body) {
    const std::lock_guard lock(turn_);
    begin();
    try {
      body();
    } catch (const Error& error) {
      fail(error.code(), error.what());
      throw;
    } catch (const std::exception& error) {
      fail(ErrorCode::kInternal, error.what());
      throw;
    }
  }

 protected:
  virtual void begin() {}
  virtual void fail(ErrorCode, const char*) noexcept {}

 private:
  std::mutex turn_;
};

}  // namespace fa4::internal
