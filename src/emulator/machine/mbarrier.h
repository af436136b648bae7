// Barriers in shared memory ("Parallel Synchronization and Communication Instructions: mbarrier";
// PTX ISA 9.7.13.15).
//
// The 64-bit state lies in the shared memory itself; beside it each CTA keeps a record of every
// barrier for reports: how many phases have completed, who arrived last.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "emulator/machine/cluster.h"
#include "emulator/observe/observer.h"

namespace ptxemu {

struct Exec;
struct Insn;

inline constexpr uint32_t kMaxMbarrierCount = (1u << 20) - 1;  // arrivals
inline constexpr int64_t kMaxMbarrierBytes = (1 << 20) - 1;    // |tx-count|

// The state word, from bit 0: pending arrivals 20, expected 20, tx-count 21 (two's complement),
// completed phases mod 4.
struct MbarrierState {
  uint32_t pending = 0, expected = 0;
  int32_t bytes = 0;   // tx-count
  uint32_t phase = 0;  // mod 4

  uint64_t word() const;
  static MbarrierState of(uint64_t word);
};

// What a CTA remembers of a barrier; never read by the semantics.
struct MbarrierRecord {
  uint32_t offset = 0;
  bool live = false;    // initialised and not invalidated
  uint64_t phases = 0;  // completed since init
  struct Arrival {
    bool async = false;
    uint32_t rank = 0, warp = 0, line = 0;
  };
  std::array<Arrival, 4> last;  // a ring
  uint64_t arrivals = 0;        // since init; last[(arrivals - 1) % 4] is the latest
  void note(const Arrival& arrival);
  std::string last_arrivals() const;
};

// CTA state: cta.state<MbarrierRecords>().
class MbarrierRecords {
 public:
  MbarrierRecord* find(uint32_t offset);  // null when never initialised
  MbarrierRecord& make(uint32_t offset);
  const std::vector<MbarrierRecord>& all() const { return records_; }

 private:
  std::vector<uint16_t> index_;  // offset / 8 -> index of records_ + 1
  std::vector<MbarrierRecord> records_;
};

// An operation on a barrier that is not live, arrivals that nothing awaits, and a tx-count out of
// range throw Trap ("mbarrier-uninitialised", "mbarrier-underflow", "mbarrier-bytes").
MbarrierState read_mbarrier(Cta& cta, uint32_t offset);

// A new barrier that awaits `count` arrivals in each phase; the end of one.
void mbarrier_init(Cta& cta, uint32_t offset, uint32_t count);
void mbarrier_invalidate(Cta& cta, uint32_t offset);

// One arrival more is awaited in this phase (cp.async.mbarrier.arrive without .noinc).
void mbarrier_await_one_more(Cta& cta, uint32_t offset);

// An engine's signal: `tx_bytes` are complete (the tx-count goes down by so many), then `arrivals`
// arrive. Tells the observer.
void mbarrier_async_arrive(Cluster& cluster, Cta& cta, uint32_t offset, uint32_t arrivals,
                           int64_t tx_bytes, const AsyncOp& op);

// What a thread does: `expect` bytes are expected first, in the same step; the count may be 0.
// drop: the next phases await `count` fewer. Returns the state word before.
struct ThreadArrival {
  uint32_t count = 1;
  int64_t expect = 0;
  bool expects = false;  // even when expect is 0
  bool drop = false;
  ArriveOrder order = {};
};
uint64_t mbarrier_thread_arrive(const Exec& exec, const Insn& insn, Cta& cta, uint32_t offset,
                                const ThreadArrival& arrival);

}  // namespace ptxemu
