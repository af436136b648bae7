// Files that must not outlive the process, and changes that must not stay unless it succeeds: a
// signal that ends it takes them back.
#pragma once

#include <memory>
#include <string>

namespace fa4::cli {

// Installs handlers for SIGHUP (status 129), SIGINT (130) and SIGTERM (143) that take the
// temporaries back; a SIGHUP that is ignored stays so. Ignores SIGXFSZ and SIGPIPE, so that a write
// fails instead. `program`, a literal, begins the line that an interrupted one prints. The thread
// that calls it is the one that makes temporaries.
void install_signal_handlers(const char* program);

// Beside `target`, and one that no other file of this process has.
std::string temporary_name(const std::string& target);

struct Undo;

// A path that is removed by a signal while the object lives; otherwise its owner's to remove.
class Temporary {
 public:
  explicit Temporary(std::string path);
  ~Temporary();
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  const std::string& path() const { return path_; }

  // The file has been moved to `target`; what was there is now called `old`, empty: nothing was.
  // From here on a signal puts that back.
  void has_replaced(const std::string& target, const std::string& old);
  // What a signal does.
  void take_back() const;
  // What was replaced is not wanted any more.
  void keep() const;

 private:
  std::string path_;
  std::unique_ptr<const Undo> undo_;
  int slot_ = -1;
};

// Holds the signals back: several renames are one step.
class SignalBlock {
 public:
  SignalBlock();
  ~SignalBlock();
  SignalBlock(const SignalBlock&) = delete;
  SignalBlock& operator=(const SignalBlock&) = delete;
};

}  // namespace fa4::cli
