// A record of every warp and engine over time, in the format of Chrome's tracing and Perfetto.
//
// Time is the cluster's count of executed warp instructions, shown as microseconds: an order, not a
// prediction.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ptxemu {

struct Cluster;
struct Warp;
class AsyncOp;

class Trace {
 public:
  // A warp ran `count` instructions from `begin` on, the last at this line, and then waited or not.
  void ran(const Warp& warp, uint64_t begin, uint64_t count, uint32_t line, bool blocked);
  // An operation from its issue to its end.
  void finished(const Cluster& cluster, const AsyncOp& op);
  // What it takes of memory.
  uint64_t bytes() const {
    constexpr uint64_t kProcessBytes = sizeof(std::string) + 64;  // and its text and key
    return events_.size() * sizeof(Event) + processes_.size() * kProcessBytes;
  }
  // Adds the events of other clusters.
  void take(Trace& other);
  // Writes all events to `file`; false when that fails.
  bool write(const std::string& file) const;

 private:
  struct Event {
    uint64_t begin, duration;
    uint32_t process, thread;  // a CTA; a warp, or kEngine + EngineKind
    uint32_t line;
    bool blocked;
  };
  static constexpr uint32_t kEngine = 1000;
  uint32_t process_of(const Cluster& cluster, uint32_t rank);
  std::vector<Event> events_;
  std::vector<std::string> processes_;
  std::vector<uint64_t> keys_;  // of processes_: cluster, rank
};

}  // namespace ptxemu
