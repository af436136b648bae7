// One launch of a kernel over the machine's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/isa/code.h"
#include "emulator/machine/memory.h"
#include "emulator/machine/options.h"
#include "emulator/observe/finding.h"
#include "emulator/observe/line_counts.h"
#include "emulator/observe/observer.h"
#include "emulator/observe/trace.h"

namespace ptxemu {

struct Cluster;
struct EarlierGrid;

struct LaunchShape {
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t cluster[3] = {1, 1, 1};
  uint32_t dynamic_shared_bytes = 0;
};

enum class Status : uint8_t { kOk, kFindings, kDeadlock, kTrap };

struct Counters {
  uint64_t warp_instructions = 0;  // statements executed, a warp each
  uint64_t moves = 0;              // of them mov
  uint64_t mma = 0;                // tensor-core instructions
  uint64_t tma_bytes = 0;

  void add(const Counters& other);
};

// A launch that prints more than its options allow.
Finding printed_limit(uint64_t most);

// Registers of a thread when CTAs of so many threads run: .maxnreg, else what the register file
// leaves each where .minnctapersm of them share it.
uint32_t registers_of_thread(const Function& entry, uint64_t threads);

struct Launch {
  const Code* code = nullptr;
  LaunchShape shape;
  Options options;
  GlobalMemory* memory = nullptr;
  std::vector<std::byte> params;       // the kernel's parameters, laid out as PTX says
  std::unique_ptr<Observer> observer;  // null when nothing observes
  std::unique_ptr<Trace> trace;        // null when nothing is recorded
  Counters counters;
  std::vector<Finding> findings;
  std::vector<Waiter> waiters;         // of a deadlock
  std::vector<WarpLines> line_counts;  // under options.count_lines, of clusters that have ended
  uint64_t line_count_bytes = 0;       // what they take
  Status status = Status::kOk;
  std::string printed;       // what the kernel printed
  uint64_t frame_bytes = 0;  // of all frames that there are, see Options::max_local_memory

  // Where the words of a cooperative launch lie by which its CTAs meet (cooperative_groups finds
  // the address in %envreg1 and %envreg2); 0 for kernels that do not ask.
  uint64_t grid_workspace = 0;
  // What a programmatic launch may run beside, and after run() what the next one may; the checker
  // keeps it. Null: nothing.
  std::shared_ptr<const std::vector<EarlierGrid>> earlier_grids;
  uint64_t clusters = 0;      // in the grid
  uint64_t next_cluster = 0;  // how many have started or been cancelled
  uint32_t ctas_per_cluster = 1;
  uint32_t registers_per_thread = 255;  // at launch, see setmaxnreg

  // Adds a finding, or counts it when the same rule was broken at the same line before.
  void report(Finding finding);
  // Counts the finding again when this rule was broken at this line before; false when it was not.
  // What one execution of a statement (Finding::statement) breaks in many places is counted once.
  bool report_again(std::string_view rule, uint32_t ptx_line, Severity severity,
                    uint64_t statement);
  // The same, with kernel, CTA, warp, line and source of an instruction filled in.
  void report(const Exec& exec, const Insn& insn, Severity severity, std::string rule,
              std::string message, std::string object = "", int lane = -1);
  // Ends the launch as a trap with this finding: throws LaunchStopped.
  [[noreturn]] void stop(Finding finding);
  // Ends it when its trace and line counts take more than options.max_recorded.
  void check_recorded();
  // Takes the next cluster that has not started (launch control); false when there is none.
  bool cancel_cluster(uint64_t* index);
  // The cluster that starts as the `number`-th.
  uint64_t cluster_at(uint64_t number) const;
  // Runs the grid. Findings, status, counters are then filled.
  void run();

  // A launch of the same kernel, arguments and options that nothing observes and that has counted
  // nothing yet: what one of several host threads fills for one cluster.
  std::unique_ptr<Launch> part() const;
  // Adds what a part found. Parts are taken in the order of their clusters.
  void take(Launch& part);
  // Fills `waiters` from what is resident.
  void report_deadlock(const std::vector<std::unique_ptr<Cluster>>& resident);
};

}  // namespace ptxemu
