#include "io/temporaries.h"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <utility>

#include "failure.h"

namespace fa4::cli {

// Moves `file` to `place`; removes it where that is empty.
struct Undo {
  std::string file, place;

  // Async-signal-safe, and nothing when it is done a second time.
  void run() const {
    if (place.empty()) {
      ::unlink(file.c_str());
    } else {
      (void)!std::rename(file.c_str(), place.c_str());
    }
  }
};

namespace {

constexpr int kSlots = 1024;  // more than there are kernels to keep
const char* program_name = "";
pthread_t main_thread;
std::atomic<const Undo*> undos[kSlots];

// Async-signal-safe: pthread_kill, unlink, rename, write and _exit only. The thread that moves
// files is the one that a SignalBlock holds back, so it is the one that takes them back.
void take_back_and_exit(int signal) {
  if (::pthread_equal(::pthread_self(), main_thread) == 0) {
    ::pthread_kill(main_thread, signal);
    return;
  }
  for (auto& slot : undos) {
    if (const Undo* undo = slot.load()) undo->run();
  }
  static constexpr char kWords[] = ": interrupted\n";
  const ssize_t name = ::write(STDERR_FILENO, program_name, std::strlen(program_name));
  if (name >= 0 && ::write(STDERR_FILENO, kWords, sizeof kWords - 1) < 0) ::_exit(128 + signal);
  ::_exit(128 + signal);
}

sigset_t ending_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) sigaddset(&set, signal);
  return set;
}

// As nohup asks for.
bool is_ignored(int signal) {
  struct sigaction action = {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

void install_signal_handlers(const char* program) {
  program_name = program;
  main_thread = ::pthread_self();
  struct sigaction action = {};
  action.sa_handler = take_back_and_exit;
  action.sa_mask = ending_signals();
  if (!is_ignored(SIGHUP)) ::sigaction(SIGHUP, &action, nullptr);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  ::signal(SIGXFSZ, SIG_IGN);
  ::signal(SIGPIPE, SIG_IGN);
}

std::string temporary_name(const std::string& target) {
  static std::atomic<int> number{0};
  const size_t slash = target.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : target.substr(0, slash + 1);
  return fmt::format("{}.fa4-{}-{}.tmp", folder, ::getpid(), ++number);
}

Temporary::Temporary(std::string path)
    : path_(std::move(path)), undo_(std::make_unique<Undo>(Undo{path_, ""})) {
  for (int i = 0; i < kSlots; ++i) {
    const Undo* expected = nullptr;
    if (undos[i].compare_exchange_strong(expected, undo_.get())) {
      slot_ = i;
      return;
    }
  }
  throw bad_input(fmt::format("too many output files; accepted: at most {}", kSlots));
}

Temporary::~Temporary() { undos[slot_].store(nullptr); }

void Temporary::has_replaced(const std::string& target, const std::string& old) {
  auto undo = std::make_unique<const Undo>(old.empty() ? Undo{target, ""} : Undo{old, target});
  undos[slot_].store(undo.get());
  undo_ = std::move(undo);
}

void Temporary::take_back() const { undo_->run(); }

void Temporary::keep() const {
  if (!undo_->place.empty()) ::unlink(undo_->file.c_str());
}

SignalBlock::SignalBlock() {
  const sigset_t set = ending_signals();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}
SignalBlock::~SignalBlock() {
  const sigset_t set = ending_signals();
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace fa4::cli
