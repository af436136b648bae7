// Asynchronous work: copies, tensor-core products, loads and stores of tensor memory. A handler
// makes an AsyncOp and submits it; the policy says when it happens.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "emulator/isa/code.h"

namespace ptxemu {

struct Cluster;
struct Exec;
struct Region;
struct Trap;

enum class EngineKind : uint8_t {
  kCopyIn,       // TMA and bulk loads into shared memory
  kCopyOut,      // TMA and bulk stores and reductions
  kTensorCore,   // tcgen05.mma, cp, shift, commit
  kTensorLoad,   // tcgen05.ld
  kTensorStore,  // tcgen05.st
  kWgmma,
  kCopyAsync,      // cp.async
  kRemoteStore,    // st.async, red.async
  kLaunchControl,  // clusterlaunchcontrol.try_cancel
};
std::string_view name_of(EngineKind kind);

// One piece of asynchronous work. It keeps whatever it needs by value or by pointer into its
// cluster, which outlives it.
class AsyncOp {
 public:
  AsyncOp(EngineKind kind, const Exec& issuer);
  virtual ~AsyncOp() = default;
  // Does the next part; true when that was the last one. `parts` asks for work in so many parts
  // where the op can (1, or more under Policy::kSplit): reading its source, writing its destination
  // and signalling are parts of their own only where the model of the instruction lets others come
  // between. Never blocks.
  virtual bool advance(Cluster& cluster, bool split) = 0;
  // What it reads and writes, at the moment it does.
  void note_read(Cluster& cluster, const Region& region) const;
  void note_write(Cluster& cluster, const Region& region) const;
  // Tells this operation of a cluster from every other, and from all statements
  // (Finding::statement).
  uint64_t statement(uint64_t cluster_index) const { return (cluster_index << 40 | id) << 1 | 1; }

  uint64_t id = 0;  // given by submit, in order of issue in the cluster; never 0
  EngineKind kind;
  uint32_t cta_rank;             // of the issuer
  uint32_t warp;                 // of the issuer, in its CTA
  uint32_t lane;                 // the first lane of the issuer
  uint32_t agent;                // the issuing warp's Warp::agent
  const Insn* insn;              // may be null
  const CodeFunction* function;  // of insn
  uint64_t queue = 0;            // ops with the same queue, not 0, happen in order of issue
  // Of a tcgen05.mma: what it has in common with those that stay in order with it (its place, shape
  // and kind of D). 0: no product.
  uint64_t accumulator = 0;
  bool only_signals = false;  // a tcgen05.commit, which waits for what was issued before it
  uint64_t not_before = 0;    // of Engines' rounds, under the random policies
  uint64_t issued_at = 0;     // instructions that the cluster had executed
  uint64_t held_bytes = 0;    // of the host, for what the op keeps beside itself; set before submit
};

// Queue numbers of the ordered engines.
inline uint64_t tensor_core_queue(uint32_t leader_rank) { return 0x100 + leader_rank; }
inline uint64_t wgmma_queue(uint32_t agent) { return 0x10000 + agent; }

// Products of different accumulators may overtake each other, and the commits between them
// ("tcgen05 pipelined instructions", PTX ISA 9.7.16.6.2, orders only those of the same N,
// accumulator, shape and kind).
inline bool may_overtake(const AsyncOp& later, const AsyncOp& earlier) {
  if (later.accumulator == 0) return false;
  if (earlier.only_signals) return true;
  return earlier.accumulator != 0 && earlier.accumulator != later.accumulator;
}

class Engines {
 public:
  explicit Engines(Cluster& cluster) : cluster_(cluster) {}
  // Gives the op its id before submit does, for Observer::issue.
  void name(AsyncOp& op) {
    if (op.id == 0) op.id = next_id_++;
  }
  // Takes the op. Returns its id.
  uint64_t submit(std::unique_ptr<AsyncOp> op);
  bool is_pending(uint64_t id) const { return pending_.count(id) != 0; }
  bool idle() const { return pending_.empty(); }
  // More work waits than any kernel that is known has under way: nothing is issued before some of
  // it is done, as a queue of the hardware is finite too.
  bool full() const { return pending_.size() >= kMostPending || held_bytes_ >= kMostHeldBytes; }
  // Lets one op do one part, chosen by the policy; false when there is none.
  bool advance_one();
  // What the policy lets happen after every warp had a turn: a round. Eager: everything. Random and
  // split: each op a random number of rounds after its issue, never at once, because known-good
  // kernels rely on warps that wait for a barrier to see a phase before work as long as a matrix
  // product has come and gone.
  void tick();
  // Every pending op, for reports.
  std::vector<const AsyncOp*> pending() const;

 private:
  static constexpr size_t kMostPending = 16'384;
  static constexpr uint64_t kMostHeldBytes = 256 << 20;
  void advance(uint64_t id);
  uint64_t oldest() const;
  uint64_t newest() const;
  void delay(AsyncOp& op, uint64_t least, uint64_t most);
  std::vector<uint64_t> candidates() const;  // ops that may go next, in order of issue
  void add_overtakers(const std::deque<uint64_t>& ordered, std::vector<uint64_t>* ids) const;
  uint64_t round_ = 0;
  void finish(uint64_t id);
  [[noreturn]] void report_trap(const AsyncOp& op, const Trap& trap);
  Cluster& cluster_;
  uint64_t next_id_ = 1;
  std::unordered_map<uint64_t, std::unique_ptr<AsyncOp>> pending_;
  uint64_t held_bytes_ = 0;                                    // of pending_
  std::set<uint64_t> free_;                                    // unordered ops
  std::unordered_map<uint64_t, std::deque<uint64_t>> queues_;  // ordered ones
  std::vector<uint64_t> queue_names_;                          // of queues_ that are not empty
};

}  // namespace ptxemu
