// Finds accesses to global memory that nothing orders: between clusters, where only strong accesses
// and fences of the device order anything, and within a cluster as for shared memory. Also reads of
// buffers that nobody has written, and float sums whose order is left open.
#pragma once

#include <memory>
#include <unordered_map>

#include "emulator/observe/hazards.h"

namespace ptxemu {

// Of one launch: launches of a stream come one after the other.
class GlobalHazards {
 public:
  explicit GlobalHazards(Launch& launch) : launch_(launch) {}

  void start(uint64_t cluster, ClusterHazards* hazards) { clusters_[cluster] = hazards; }
  // True when other clusters may know of this one: its hazards must stay.
  bool end(uint64_t cluster);

  void access(ClusterHazards& hazards, const Exec& exec, const Insn& insn,
              const MemoryAccess& access);
  void async_access(ClusterHazards& hazards, const AsyncOp& op, const Region& region, bool writes);
  // name(op) for the operations of the cluster that some word remembers; and how many words are
  // kept.
  void name_operations(uint64_t cluster, const std::function<void(Who)>& name) const;
  size_t words() const { return cells_.size(); }
  // The warps of the cluster that wrote what the 128 bytes of a tensor map hold.
  std::vector<Who> map_writers(uint64_t cluster, uint64_t map);
  // A strong access: what it tells other clusters, and what it learns of them.
  void exchange(ClusterHazards& hazards, const Exec& exec, const MemoryAccess& access);
  // The copy engine reads the 128 bytes of a tensor map, in the proxy of tensor maps.
  void tensor_map_read(ClusterHazards& hazards, const Exec& exec, const Insn& insn,
                       uint64_t address);

 private:
  struct GlobalTouch {
    Touch touch;  // who is none: nobody
    uint32_t cluster = 0;
    uint32_t agent = 0;  // the warp that stores or issues
  };
  struct GlobalCell {
    GlobalTouch writer, reader;
  };
  // Who asks.
  struct Access {
    ClusterHazards* hazards;
    GlobalTouch now;
    const Knowledge* knows;
    uint32_t agent;
    const AsyncOp* op;  // null: a warp
    bool writes;
    uint64_t address;  // of the first byte, for reports
    const Insn* insn;
    const CodeFunction* function;
    bool read_only = false;             // ld.global.nc
    uint64_t word = 0;                  // that is looked at
    const std::byte* before = nullptr;  // Region::before
  };
  // Two warps have stored to one place at the same statement. Whether it is the same value shows
  // once the second store has happened, which is when the next event comes.
  struct SecondStore {
    uint64_t word;
    uint8_t bytes;
    uint32_t before;
  };
  enum class Order : uint8_t { kOrdered, kRace, kNoProxyFence };

  void check_host_bytes();
  void touch_bytes(Access& access, uint64_t address, uint64_t bytes);
  void touch(GlobalCell& cell, const Access& access);
  // Whether both are strong, each with a scope that reaches the other's thread: no data race then.
  static bool morally_strong(const GlobalTouch& earlier, const Access& access);
  Order order(const GlobalTouch& earlier, bool earlier_reads, const Access& access);
  // `exec`: of a warp's access, null for an operation's.
  void check_written(const Access& access, const Exec* exec, int lane, uint64_t address,
                     uint64_t bytes);
  uint32_t value_of(uint64_t word, uint8_t bytes) const;
  bool copies_the_same(const Access& access) const;
  uint32_t line_of(const GlobalTouch& touch) const {
    return launch_.code->lines[touch.touch.statement];
  }
  void settle_second_stores();
  void report_read_only(const Access& access, const GlobalTouch& writer);
  void report(const Access& access, const GlobalTouch& earlier, bool earlier_wrote, Order order);
  Finding found_at(const Access& access) const;
  std::string describe(const GlobalTouch& touch, bool wrote) const;

  Launch& launch_;
  PagedWords<GlobalCell> cells_;
  // The plain writes under strong ones, which need no order among themselves, but each after it.
  PagedWords<GlobalTouch> plain_;
  std::vector<SecondStore> second_stores_;  // of one statement
  Finding second_store_;
  // What fences of the kind .sc before the writes covered, and how often that was added to.
  struct SequencedWrites {
    Told<ForeignClocks> told;
    SharedClocks taken;
    uint64_t writes = 0;
  };
  // A word that was released to: what its readers learn in other clusters.
  struct Flag {
    Told<ForeignClocks> told;
    SharedClocks taken;  // the last that was joined
    uint64_t releases = 0;
    std::unique_ptr<SequencedWrites> sequenced;  // null: none
    // Whose store was the last that is no read-modify-write.
    uint64_t cluster = 0;
    uint32_t agent = 0;
  };
  std::unordered_map<uint64_t, Flag> flags_;  // by address
  std::unordered_map<uint64_t, ClusterHazards*> clusters_;
  size_t next_check_ = 0;  // of the words that are remembered, for check_host_bytes
  std::unordered_map<uint64_t, bool> told_;  // clusters that have released something
};

}  // namespace ptxemu
