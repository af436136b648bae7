#include "distributed/local_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <compare>
#include <limits>
#include <string>

namespace fa4::internal {
namespace {

constexpr int64_t kFailed = std::numeric_limits<int64_t>::max();

// How far a rank is. Exchange n of an execution has two steps: 2 n, when the rank says what it
// sends, and 2 n + 1, when it has taken what it receives. A rank gets beyond either only when all
// have got to it, or by failing.
struct Progress {
  int64_t execution = 0;
  int64_t step = -1;
  auto operator<=>(const Progress&) const = default;
};

struct Member {
  Progress at;
  bool has_left = false;
  const ExchangeStep* exchange = nullptr;  // at an even step
  const Bases* bases = nullptr;
  // The rank's last failure: its own, or that of the rank that it waited for.
  ErrorCode code = ErrorCode::kInternal;
  std::string why;
};

struct Group {
  explicit Group(size_t ranks) : members(ranks) {}

  // With the mutex held: wakes those that wait.
  void announce() {
    ++changes;
    changes.notify_all();
  }
  // Until something was announced. Not by std::condition_variable, whose wait has a version of its
  // own since GCC 12, which an older libstdc++ does not know.
  void wait(std::unique_lock<std::mutex>& lock) const {
    const int seen = changes;
    lock.unlock();
    changes.wait(seen);
    lock.lock();
  }

  std::mutex mutex;
  std::atomic<int> changes{0};
  std::vector<Member> members;
};

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<Group> group, int rank)
      : group_(std::move(group)), rank_(rank) {}
  ~LocalCommunicator() override { leave(); }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_->members.size()); }

  void check_device(const DeviceSpec& device) const override {
    if (device.kind != DeviceKind::kCuda || size() == 1) return;
    throw Error(ErrorCode::kNotSupported,
                fmt::format("communicator is of {} threads of one process; accepted on {}: one of "
                            "fa4_communicator_of_nccl (those of fa4_create_local_communicators "
                            "are for CPUs and emulated devices)",
                            size(), device.name));
  }

  void exchange(const ExchangeStep& step, const Bases& bases, const Memory& memory,
                void* stream) override {
    Member& mine = me();
    {
      std::unique_lock lock(group_->mutex);
      mine.exchange = &step;
      mine.bases = &bases;
      mine.at.step = mine.at.step < 0 ? 0 : mine.at.step + 1;
      group_->announce();
      wait_for_all(lock);
      check_same();
    }
    std::exception_ptr failed;
    try {
      receive(step, bases, memory, stream);
    } catch (...) {  // others still read what this rank sends
      failed = std::current_exception();
    }
    std::unique_lock lock(group_->mutex);
    ++mine.at.step;
    group_->announce();
    const auto has_come = [&](const Member& other) { return other.at >= mine.at; };
    while (!std::all_of(group_->members.begin(), group_->members.end(), has_come)) {
      group_->wait(lock);
    }
    if (failed != nullptr) std::rethrow_exception(failed);
  }

  void leave() override {
    const std::lock_guard lock(group_->mutex);
    me().has_left = true;
    group_->announce();
  }

 protected:
  void begin() override {
    const std::lock_guard lock(group_->mutex);
    if (me().has_left) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("communicator of rank {} has been destroyed; accepted: one that "
                              "lives as long as what is executed",
                              rank_));
    }
    me().at = {me().at.execution + 1, -1};
    relays_ = false;
  }

  void fail(ErrorCode code, const char* why) noexcept override {
    const std::lock_guard lock(group_->mutex);
    Member& mine = me();
    mine.at.step = kFailed;
    mine.code = code;
    try {
      mine.why = relays_ ? why : fmt::format("rank {} failed: {}", rank_, why);
    } catch (...) {  // no memory for the words
      mine.why.clear();
    }
    group_->announce();
  }

 private:
  Member& me() const { return group_->members[static_cast<size_t>(rank_)]; }

  // Until every rank has posted the exchange that this rank has; throws when one never will.
  void wait_for_all(std::unique_lock<std::mutex>& lock) {
    const Progress here = me().at;
    const Progress taken{here.execution, here.step + 1};
    for (;;) {
      bool all = true;
      for (size_t r = 0; r < group_->members.size(); ++r) {
        const Member& other = group_->members[r];
        if (other.at > taken) {  // it could not have got there with this rank
          relays_ = true;
          throw Error(other.code, other.why.empty() ? fmt::format("rank {} failed", r) : other.why);
        }
        if (other.at >= here) continue;
        if (other.has_left) {
          throw Error(ErrorCode::kInvalidArgument,
                      fmt::format("rank {} has destroyed its communicator, and rank {} waits for "
                                  "it; accepted: the same calls on every rank",
                                  r, rank_));
        }
        all = false;
      }
      if (all) return;
      group_->wait(lock);
    }
  }

  void check_same() const {
    const std::string& first = group_->members[0].exchange->what;
    for (size_t r = 1; r < group_->members.size(); ++r) {
      const std::string& other = group_->members[r].exchange->what;
      if (other == first) continue;
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("rank {} executes [{}], rank 0 [{}]; accepted: the same problem, "
                              "options and outputs on every rank",
                              r, other, first));
    }
  }

  // The i-th message of a peer to this rank for the i-th that this rank expects of it.
  void receive(const ExchangeStep& step, const Bases& bases, const Memory& memory,
               void* stream) const {
    for (int peer = 0; peer < size(); ++peer) {
      const Member& other = group_->members[static_cast<size_t>(peer)];
      auto sent = other.exchange->sends.begin();
      const auto end = other.exchange->sends.end();
      for (const Message& message : step.receives) {
        if (message.peer != peer) continue;
        sent = std::find_if(sent, end, [&](const Message& m) { return m.peer == rank_; });
        if (sent == end || sent->bytes != message.bytes) {
          throw Error(ErrorCode::kInternal,
                      fmt::format("rank {} expects {} bytes of rank {}, which sends {}", rank_,
                                  message.bytes, peer, sent == end ? 0 : sent->bytes));
        }
        memory.copy({.to = bases.resolve(message.at),
                     .to_pitch = message.bytes,
                     .from = other.bases->resolve(sent->at),
                     .from_pitch = message.bytes,
                     .width = message.bytes,
                     .rows = 1},
                    stream);
        ++sent;
      }
    }
  }

  std::shared_ptr<Group> group_;
  int rank_;
  bool relays_ = false;  // it fails because another rank has
};

}  // namespace

std::vector<std::shared_ptr<Communicator>> local_communicators(int ranks) {
  const auto group = std::make_shared<Group>(static_cast<size_t>(ranks));
  std::vector<std::shared_ptr<Communicator>> communicators;
  for (int rank = 0; rank < ranks; ++rank) {
    communicators.push_back(std::make_shared<LocalCommunicator>(group, rank));
  }
  return communicators;
}

}  // namespace fa4::internal
