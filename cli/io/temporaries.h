// Files that must not outlive the process: removed when a signal ends it.
#pragma once

#include <string>

namespace fa4::cli {

// Installs handlers for SIGINT (status 130) and SIGTERM (143) that remove the temporaries.
// Ignores SIGXFSZ and SIGPIPE, so that a write fails instead. `program`, a literal, begins the line
// that an interrupted one prints.
void install_signal_handlers(const char* program);

// A path that is removed by a signal while the object lives; otherwise its owner's to remove.
class Temporary {
 public:
  explicit Temporary(std::string path);
  ~Temporary();
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int slot_ = -1;
};

// Holds SIGINT and SIGTERM back: several renames are one step.
class SignalBlock {
 public:
  SignalBlock();
  ~SignalBlock();
  SignalBlock(const SignalBlock&) = delete;
  SignalBlock& operator=(const SignalBlock&) = delete;
};

}  // namespace fa4::cli
