// Bulk async-groups of each thread ("Async-group mechanism"; PTX ISA 9.7.9.25.1.1).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "emulator/machine/exec.h"

namespace ptxemu {

// A copy out of shared memory, as those who wait for it see it.
struct BulkStatus {
  uint64_t id = 0;
  bool read = false;  // its source may be written again
  bool done = false;
};

// What is kept for kernels that never wait before what is done is forgotten.
inline constexpr size_t kMostRemembered = 4096;

// Warp state.
class BulkGroups {
 public:
  void add(int lane, std::shared_ptr<BulkStatus> op);
  void commit(int lane);
  // True when all but the latest `keep` groups of the lane have been read, or are done.
  bool ready(int lane, uint64_t keep, bool read_only) const;
  // Tells the observer, and forgets the groups that are done.
  void observe(const Exec& exec, const Insn& insn, int lane, uint64_t keep, bool read_only);

 private:
  using Group = std::vector<std::shared_ptr<BulkStatus>>;
  struct Lane {
    Group open;
    std::deque<Group> groups;
    size_t look_at = kMostRemembered;  // ops in a group before those that are done are looked for
    size_t read_seen = 0;              // of groups: the thread knows that their sources were read
  };
  Lane lanes_[32];
};

}  // namespace ptxemu
