// Why a command ends early, and its exit status.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace fa4::cli {

enum ExitCode : int {
  kSuccess = 0,
  kCheckFailed = 1,
  kBadInput = 2,     // bad usage or bad input
  kCouldNotRun = 3,  // memory, driver, compiler, launch, full disk
  // And 128 and a signal's number, which its handler ends the process with (io/temporaries.cc).
};

// One line: argument, value, what is accepted. The program's and command's names are put before it.
class Failure : public std::runtime_error {
 public:
  Failure(ExitCode code, const std::string& message);
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

inline Failure bad_input(const std::string& message) { return {kBadInput, message}; }
inline Failure could_not_run(const std::string& message) { return {kCouldNotRun, message}; }

// Runs `body`; a Failure out of it gets "argument value: " in front.
template <class Body>
auto naming(const std::string& argument, const std::string& value, const Body& body) {
  try {
    return body();
  } catch (const Failure& failure) {
    throw Failure(failure.code(), argument + " " + value + ": " + failure.what());
  }
}

// The parts of `text` in one line of UTF-8: newlines become "; ", tabs become spaces, other
// control characters, and bytes of no character, \xNN.
std::string one_line(std::string_view text);

bool is_utf8(std::string_view text);

}  // namespace fa4::cli
