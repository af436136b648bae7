// Finds accesses that nothing orders: between warps, between warps and asynchronous operations, and
// ordinary writes that the asynchronous proxy reads without a fence ("Memory Consistency Model",
// PTX ISA 8; "tcgen05 Memory Consistency Model", 9.7.16.6).
//
// It follows what each warp knows (observe/clock.h) through barriers, and asks of every access
// whether the earlier ones to the same place are known to be over. The answer does not depend on
// when asynchronous work happened to complete, so a race is found even where it did no harm.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "emulator/machine/engine.h"
#include "emulator/machine/launch.h"
#include "emulator/observe/clock.h"
#include "emulator/observe/observer.h"
#include "emulator/observe/shadow.h"

namespace ptxemu {

// The hazards of one cluster.
class ClusterHazards {
 public:
  ClusterHazards(Launch& launch, Cluster& cluster);

  void access(const Exec& exec, const Insn& insn, const MemoryAccess& access);
  void fence(const Exec& exec, FenceKind kind);
  void warp_exit(const Exec& exec, const Insn& insn);

  void issue(const AsyncOp& op);
  void async_access(const AsyncOp& op, const Region& region, bool writes);
  void op_observed(const Exec& exec, uint64_t op, bool only_read);

  void mbarrier_arrive(const Exec& exec, Cta& cta, uint32_t offset, bool releases);
  void mbarrier_async_arrive(const AsyncOp& op, Cta& cta, uint32_t offset);
  void mbarrier_phase(Cta& cta, uint32_t offset);
  void mbarrier_observed(const Exec& exec, Cta& cta, uint32_t offset);

  void barrier_arrive(const Exec& exec, uint64_t key);
  void barrier_passed(const Exec& exec, uint64_t key);
  void pending_register(const Exec& exec, const Insn& insn, uint64_t op);

 private:
  // It is known that an operation is over when `component` of a clock has reached `value`.
  struct Point {
    uint32_t component, value;
  };
  struct OpRecord {
    EngineKind kind;
    uint32_t cta_rank, warp, agent, line;
    const Insn* insn;
    const CodeFunction* function;
    uint64_t queue;
    uint64_t sequence;  // in its queue
    std::shared_ptr<const Knowledge> at_issue;
    std::vector<Point> done, read;
  };
  // A tcgen05.commit: all earlier operations of its warp in the queue are over when it is.
  struct Commit {
    uint64_t sequence;
    uint32_t agent;
    Point point;
  };
  struct Queue {
    uint64_t operations = 0;
    std::vector<Commit> commits;
  };
  struct Mbarrier {
    uint32_t component;
    uint32_t phases = 0;
    Knowledge gathering, completed;
  };
  enum class Order : uint8_t { kOrdered, kRace, kNoProxyFence };
  // Who asks: a warp, or an operation with what it knew at its issue.
  struct Asker {
    const Knowledge* knows;
    uint32_t agent;      // a warp; of an operation that of its issuer
    const OpRecord* op;  // null for a warp
    bool async_read = false;
  };

  std::shared_ptr<const Knowledge> snapshot(uint32_t agent);
  Knowledge& of_warp(uint32_t agent);
  void step(uint32_t agent);  // a new epoch
  OpRecord& record(const AsyncOp& op);
  Mbarrier& mbarrier(const Cta& cta, uint32_t offset);
  bool over(const OpRecord& earlier, const Clock& clock, bool only_read);
  Order order(const Touch& earlier, const Asker& asker, bool earlier_reads);
  void touch(Cell& cell, const Touch& now, const Asker& asker, bool writes, const Region& where);
  void report(const Touch& earlier, bool earlier_wrote, const Touch& now, bool writes,
              const Asker& asker, Order order, const Region& where);
  std::string describe(const Touch& touch, const OpRecord* op, bool writes) const;
  Shadow& shared_shadow(const Cta& cta);
  Shadow& tensor_shadow(const Cta& cta);
  void touch_region(const Touch& now, const Asker& asker, const Region& region, bool writes);
  void check_live(const AsyncOp& op, const Cta& cta);

  Launch& launch_;
  Cluster& cluster_;
  std::vector<Knowledge> warps_;
  std::vector<std::shared_ptr<const Knowledge>> snapshots_;  // null when out of date
  std::deque<OpRecord> ops_;                                 // by id - 1
  std::unordered_map<uint64_t, Queue> queues_;
  std::unordered_map<uint64_t, Mbarrier> mbarriers_;  // rank << 32 | offset
  std::unordered_map<uint64_t, Knowledge> barriers_;  // named and cluster barriers, by phase
  std::unordered_map<uint64_t, Knowledge> flags_;     // words that were released to
  std::vector<Shadow> shared_, tensor_;               // by rank
  uint32_t components_;
  const Insn* at_ = nullptr;  // of the access that is looked at
};

// All observers of a launch.
std::unique_ptr<Observer> make_checker(Launch& launch);

}  // namespace ptxemu
