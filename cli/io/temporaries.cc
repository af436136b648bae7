#include "io/temporaries.h"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <utility>

#include "failure.h"

namespace fa4::cli {
namespace {

constexpr int kSlots = 1024;  // more than there are kernels to keep
const char* program_name = "";
std::atomic<const char*> temporaries[kSlots];

// Async-signal-safe: unlink, write and _exit only.
void remove_and_exit(int signal) {
  for (auto& slot : temporaries) {
    if (const char* path = slot.load()) ::unlink(path);
  }
  static constexpr char kWords[] = ": interrupted\n";
  const ssize_t name = ::write(STDERR_FILENO, program_name, std::strlen(program_name));
  if (name >= 0 && ::write(STDERR_FILENO, kWords, sizeof kWords - 1) < 0) ::_exit(128 + signal);
  ::_exit(128 + signal);
}

sigset_t ending_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

void install_signal_handlers(const char* program) {
  program_name = program;
  struct sigaction action = {};
  action.sa_handler = remove_and_exit;
  action.sa_mask = ending_signals();
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  ::signal(SIGXFSZ, SIG_IGN);
  ::signal(SIGPIPE, SIG_IGN);
}

Temporary::Temporary(std::string path) : path_(std::move(path)) {
  for (int i = 0; i < kSlots; ++i) {
    const char* expected = nullptr;
    if (temporaries[i].compare_exchange_strong(expected, path_.c_str())) {
      slot_ = i;
      return;
    }
  }
  throw bad_input(fmt::format("too many output files; accepted: at most {}", kSlots));
}

Temporary::~Temporary() { temporaries[slot_].store(nullptr); }

SignalBlock::SignalBlock() {
  const sigset_t set = ending_signals();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}
SignalBlock::~SignalBlock() {
  const sigset_t set = ending_signals();
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace fa4::cli
