// Errors of the emulator that are the input's fault: text that is no PTX, a form that no handler
// knows, a launch that cannot be. What a running kernel does wrong is a Finding
// (observe/finding.h).
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace ptxemu {

enum class ErrorCode : uint8_t {
  kSyntax,       // not PTX
  kUnknownForm,  // PTX that this emulator does not know
  kLaunch,       // a launch, an argument or a tensor map that cannot be
  kMemory,       // the sandbox is full
};

// `line` is that of the PTX text, 0 where there is none. The message already names it.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, uint32_t line, const std::string& message)
      : std::runtime_error(line == 0 ? message
                                     : "PTX line " + std::to_string(line) + ": " + message),
        code_(code),
        line_(line) {}
  ErrorCode code() const { return code_; }
  uint32_t line() const { return line_; }

 private:
  ErrorCode code_;
  uint32_t line_;
};

}  // namespace ptxemu
