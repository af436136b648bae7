// Errors of the library: one exception type inside, one status code at the C boundary.
//
// An error names the argument, its value and what is accepted, e.g.
//   "num_heads 3 of k does not divide num_heads 4 of q; accepted: 1, 2, 4".
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace fa4::internal {

// The values are those of fa4_status in fa4.h (a test compares them).
enum class ErrorCode : int32_t {
  kInvalidArgument = 1,    // the caller's fault: a value that is never accepted
  kNotSupported = 2,       // valid, but this device or version does not do it
  kOutOfMemory = 3,        // host or device memory
  kDeviceUnavailable = 4,  // no such device, no driver
  kDriver = 5,             // a driver call failed
  kCompiler = 6,           // NVRTC is missing, or refused a kernel
  kStreamCapture = 7,      // the call is refused while the stream is being captured
  kIo = 8,                 // a file could not be read or written
  kInternal = 9,           // a bug in fa4
};

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace fa4::internal
