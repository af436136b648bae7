// Finds accesses that nothing orders: between warps, between warps and asynchronous operations, and
// ordinary writes that the asynchronous proxy reads without a fence ("Memory Consistency Model",
// PTX ISA 8; "tcgen05 Memory Consistency Model", 9.7.16.6). Also reads of what nobody has written,
// and what is left over at the end.
//
// It follows what each warp knows (observe/clock.h) through barriers, and asks of every access
// whether the earlier ones to the same place are known to be over. The answer does not depend on
// when asynchronous work happened to complete, so a race is found even where it did no harm.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "emulator/machine/engine.h"
#include "emulator/machine/launch.h"
#include "emulator/observe/clock.h"
#include "emulator/observe/observer.h"
#include "emulator/observe/paged_records.h"
#include "emulator/observe/shadow.h"
#include "emulator/observe/undefined_values.h"
#include "emulator/observe/wgmma_fences.h"

namespace ptxemu {

class GlobalHazards;
struct MbarrierRecord;

// What a node of a hash table takes on the host beside its value, about.
constexpr uint64_t kNodeBytes = 96;

// Whether the engine's accesses are of the asynchronous proxy; cp.async, st.async and red.async are
// asynchronous, but of the generic one.
bool in_async_proxy(EngineKind kind);

// What is said of sums of floats in no fixed order, and of two strong accesses that race all the
// same ("" where one is not strong).
std::string open_sum_message(const std::string& before, const std::string& after,
                             std::string_view why = "");
std::string_view why_not_morally_strong(const Touch& earlier, const Touch& now);

// The hazards of one cluster.
class ClusterHazards {
 public:
  ClusterHazards(Launch& launch, Cluster& cluster, GlobalHazards& global);

  void access(const Exec& exec, const Insn& insn, const MemoryAccess& access);
  void fence(const Exec& exec, const Fence& fence);
  void warp_exit(const Exec& exec, const Insn& insn);
  // All is over: what is left behind, and findings that had to wait for that.
  void end();

  void issue(const AsyncOp& op);
  // It touches nothing any more: what its issuer knew is forgotten.
  void finished(const AsyncOp& op) { record(op).at_issue.reset(); }
  void async_access(const AsyncOp& op, const Region& region, bool writes);
  void op_observed(const Exec& exec, uint64_t op, bool only_read);

  void mbarrier_init(const Exec& exec, const Insn& insn, Cta& cta, uint32_t offset);
  void mbarrier_inval(Cta& cta, uint32_t offset);
  void mbarrier_used(const Exec& exec, const Insn& insn, Cta& cta, uint32_t offset);
  void mbarrier_arrive(const Exec& exec, const Insn& insn, Cta& cta, uint32_t offset,
                       const ArriveOrder& order);
  void mbarrier_async_arrive(const AsyncOp& op, Cta& cta, uint32_t offset, bool arrives);
  void mbarrier_follows(Cta& cta, uint32_t offset, uint64_t op);
  void mbarrier_phase(Cta& cta, uint32_t offset);
  void mbarrier_observed(const Exec& exec, const Insn& insn, Cta& cta, uint32_t offset,
                         const WaitOrder& order);
  void mbarrier_waits(const Exec& exec, const Insn& insn, Cta& cta, uint32_t offset,
                      uint32_t parity);
  void mbarrier_overtaken(const Exec& exec, const Insn& insn, Cta& cta, uint32_t offset);

  void barrier_arrive(const Exec& exec, uint64_t key);
  void barrier_passed(const Exec& exec, uint64_t key);
  void cluster_arrive(const Exec& exec, uint64_t key, bool releases);
  void pair_used(const Exec& exec, const Insn& insn);
  void setmaxnreg(const Exec& exec, const Insn& insn, uint32_t registers);
  void pending_register(const Exec& exec, const Insn& insn, uint64_t op);
  void tensor_alloc(Cta& cta, uint32_t column, uint32_t columns);
  void tensor_dealloc(const Exec& exec, const Insn& insn, Cta& cta, uint32_t column,
                      uint32_t columns);
  bool knows_release(const Exec& exec);
  // Every statement of a warp that may read what nobody wrote, or whose kernel has wgmma.
  void watched(const Exec& exec, const Insn& insn, const WgmmaUsers& users);
  // A load has filled registers of the warp with what nobody wrote.
  void load_undefined(const Exec& exec, const Insn& insn, const MissingBytes& missing,
                      Finding finding);
  void wgmma_issued(const Exec& exec, const Insn& insn);

  // --- For global memory ---
  Cluster& cluster() { return cluster_; }
  const Knowledge& known_to(uint32_t agent) const { return warps_[agent]; }
  const Knowledge& known_at_issue(const AsyncOp& op) { return *record(op).at_issue; }
  // To whoever knows this of the cluster, the operation is over (or has read its source).
  bool is_over(uint64_t op, const Clock& clock, bool only_read) {
    return over(ops_[op - 1], clock, only_read);
  }
  // Within the cluster; `async` as for fence.proxy.async.
  enum class Order : uint8_t {
    kOrdered,
    kRace,
    kNoProxyFence,
    kNoTensorFence,
    kMayOvertake,
    kLoadNotWaited
  };
  Order order_in_global(const Touch& earlier, bool earlier_reads, uint32_t agent,
                        const Knowledge& knows, const AsyncOp* op, bool async_read);
  // What the warp's strong write tells those readers that its own scope, and that of the fence
  // before a relaxed one, reaches; null: nothing.
  std::shared_ptr<const Knowledge> released_by(uint32_t agent, const MemoryAccess& access,
                                               Scope readers);
  // Who takes in what the word's latest release tells the warp that reads it: the warp itself where
  // the read acquires, else what counts from the next fence on that reaches the writers. Null: it
  // has done so already.
  Knowledge* listener(uint32_t agent, bool acquires, Scope writers, uint64_t word,
                      uint64_t release);
  // The warp has read the word that so many fences of the kind .sc came before: it has not heard of
  // the latest.
  bool hears_sequenced(uint32_t agent, uint64_t word, uint64_t writes);
  void read_sequenced(uint32_t agent, const ForeignClocks& clocks) {
    join(of_warp(agent).read_sequenced, clocks);
  }
  // The warp has released to the word: nothing that it need hear of.
  void note_own_release(uint32_t agent, Scope readers, uint64_t word, uint64_t release);
  // The tensor map was written by this warp in this epoch: the proxy of tensor maps sees it. Of a
  // writer in another cluster: it has fenced the map at all. So may another warp of its CTA have,
  // before what the warp knows of it.
  bool sees_tensor_map(uint32_t agent, uint64_t map, Who writer) const;
  bool has_fenced_map(uint32_t agent, uint64_t map) const {
    return fence_of_map(agent, map, [](const Clock&) { return true; });
  }
  // The statement that is looked at, for Finding::statement.
  uint64_t statement() const { return statement_; }
  // Of host memory, for the words that were released to.
  uint64_t flag_bytes() const { return flags_.size() * (sizeof(Flag) + kNodeBytes); }
  void step(uint32_t agent);  // a new epoch
  // The warp's griddepcontrol.wait has passed.
  void earlier_grids_over(uint32_t agent) { of_warp(agent).earlier_grids_over = true; }
  void drop_shadows();

 private:
  // It is known that an operation is over when `component` of a clock has reached `value`.
  struct Point {
    uint32_t component, value;
  };
  struct OpRecord {
    EngineKind kind;  // also of a wgmma that has yet to begin; so is the line
    uint32_t cta_rank, warp, agent, line;
    const Insn* insn;
    const CodeFunction* function;
    uint64_t queue;
    uint64_t sequence;                          // in its queue
    std::shared_ptr<const Knowledge> at_issue;  // null: it has finished
    uint32_t epoch = 0;                         // of the issuer
    std::vector<Point> done, read;
    std::vector<Point> used_registers;  // of a tcgen05.ld: a use of what it fills, not waited for
    uint64_t accumulator = 0;           // AsyncOp::accumulator
    uint64_t accumulates = 0;           // the operation whose D this one adds to; 0: none
    uint8_t used = 0;                   // sixteenths of the lanes of D that somebody has read
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
    uint32_t component = 0;
    uint32_t line = 0;  // of its initialisation
    uint32_t phases = 0;
    Knowledge gathering, completed;
    // Who has signalled in the phase: a thread of another CTA.
    struct Signals {
      bool remote = false;
    } signals, completed_signals;
    std::vector<uint32_t> seen;    // by warp: phases when it last passed a wait
    uint32_t observed = 0;         // phases when somebody last did
    Point init = {};               // the warp that initialised it, and when
    std::vector<bool> knows_init;  // by warp
  };
  // Who asks: a warp, or an operation with what it knew at its issue.
  struct Asker {
    const Knowledge* knows;
    uint32_t agent;      // a warp; of an operation that of its issuer
    const OpRecord* op;  // null for a warp
    Region::Space space = Region::Space::kShared;
    bool async_proxy = false;  // shared memory through the asynchronous proxy
    bool stores = false;       // the plain store of a statement
    // The latest answer: neighbouring cells have the same history.
    Who asked = {};
    bool asked_reads = false;
    Order answer = Order::kOrdered;
  };
  // A wgmma of a warp, to which the other warps of its warpgroup have yet to come.
  struct WaitingProduct {
    uint64_t op;
    std::shared_ptr<const Knowledge> knows;  // by the warp
  };
  // The latest use of another CTA's shared memory by the threads of a warp.
  struct PeerUse {
    uint32_t epoch = 0;
    const Insn* insn = nullptr;  // null: none
    const CodeFunction* function = nullptr;
    bool is_reported = false;
  };
  // One setmaxnreg of a warp.
  struct RegisterMove {
    Point at;
    uint32_t registers, line;
  };
  // A lane has stored to shared memory where another warp did at the same statement. Whether it is
  // the same value shows once the store has happened, which is when the next event comes.
  struct SecondStore {
    Touch earlier, now;
    uint32_t agent;
    Region where;
    std::vector<std::byte> before;
  };
  // A finding about a product that matters only if somebody reads its result.
  struct Undecided {
    Finding finding;
    uint64_t op;
    uint8_t feeds;
  };

  std::shared_ptr<const Knowledge> snapshot(uint32_t agent);
  Knowledge& of_warp(uint32_t agent);
  OpRecord& record(const AsyncOp& op);
  bool is_awaited(const OpRecord& r) const;
  void forget_unnamed();
  uint32_t warps_per_cta() const;
  void release_at_fence(uint32_t agent, Scope scope, const Knowledge& covered);
  void release_all_at_fence(uint32_t agent, Scope scope);
  void acquire_at_fence(uint32_t agent, const Fence& fence);
  void sequence_at_fence(uint32_t agent);
  // Barriers (observe/barrier_hazards.cc).
  Mbarrier& mbarrier(const Cta& cta, uint32_t offset);
  void forget_phase_before(uint64_t key);
  bool knows_init(Mbarrier& barrier, uint32_t agent, const Knowledge& knows);
  void check_observed(const Mbarrier& barrier, Finding finding);
  Finding finding_at(const Exec& exec, const Insn& insn) const;

  bool over(const OpRecord& earlier, const Clock& clock, bool only_read);
  bool has_tensor_fences(const OpRecord& earlier, const Asker& asker, bool only_read);
  Order order_of_op(const OpRecord& earlier, const Asker& asker, bool earlier_reads);
  Order order(const Touch& earlier, const Asker& asker, bool earlier_reads);
  Order order_again(const Touch& earlier, Asker& asker, bool earlier_reads);

  // Accesses (observe/accesses.cc, observe/memory_order.cc).
  void exchange(const Exec& exec, const MemoryAccess& access);
  void touch(Cell& cell, const Touch& now, Asker& asker, bool writes, const Region& where);
  bool morally_strong(const Touch& earlier, const Touch& now, const Asker& asker) const;
  uint32_t rank_of(const Who& who) const;
  void add_reader(Cell& cell, const Touch& now);
  bool is_before(const Touch& reader, const Touch& now) const;
  void touch_region(Touch now, Asker& asker, const Region& region, bool writes);
  void touch_tensor(const Cell& cell, const Touch& now, bool writes, const Region& where,
                    uint8_t lanes);
  void use_result(uint64_t op, uint8_t lanes);
  void begin_product(const Exec& exec, const Insn& insn);
  uint32_t line_of(const WaitingProduct& product) const { return ops_[product.op - 1].line; }
  uint32_t line_of(const Touch& touch) const { return launch_.code->lines[touch.statement]; }
  SharedShadow& shared_shadow(const Cta& cta);
  std::vector<Cell>& tensor_shadow(const Cta& cta);

  void note_map_fence(uint32_t agent, uint64_t map);
  bool fence_of_map(uint32_t agent, uint64_t map,
                    const std::function<bool(const Clock&)>& sees) const;

  // Reports (observe/race_report.cc).
  void report(const Touch& earlier, bool earlier_wrote, const Touch& now, bool writes,
              const Asker& asker, Order order, const Region& where);
  void note_second_store(const Touch& earlier, const Touch& now, const Asker& asker,
                         const Region& where);
  void settle_second_stores();
  void report_unwritten(const Touch& now, const Asker& asker, const Region& where);
  void report_over_mbarrier(const Touch& now, bool writes, const Asker& asker, const Region& where);
  MissingBytes missing_bytes(const Region& where);
  Finding unwritten_at(const Touch& now, const Asker& asker, const Region& where) const;
  bool before_relaxed_barrier(const Touch& written, const Asker& asker, const Region& where);
  Finding found_at(const Touch& now, const Asker& asker, const Region& where) const;
  Severity severity_of(const Touch& earlier, bool earlier_wrote, const Touch& now, bool writes,
                       const Asker& asker, Order order) const;
  bool is_product_read(const Touch& touch, bool wrote, bool tensor) const;
  bool undecided_again(std::string_view rule, const Touch& product);
  std::string describe(const Touch& touch, const OpRecord* op, bool writes) const;

  // Peers: whether they run yet, and whether they still do (observe/exits.cc).
  Finding found_by(const AsyncOp& op, const Cta& cta, std::string rule, std::string message) const;
  void check_peer(const AsyncOp& op, const Cta& cta, bool signals);
  void check_peer(const Exec& exec, const Insn& insn, const Cta& cta);
  void check_peer_uses();
  void check_register_moves(const Exec& exec, const Insn& insn);
  void check_waiting_products(const Exec& exec, const Insn& insn);
  void check_leaks(Cta& cta);
  void check_barrier_at_end(Cta& cta, const MbarrierRecord& record);

  Launch& launch_;
  Cluster& cluster_;
  GlobalHazards& global_;
  std::vector<Knowledge> warps_;
  std::vector<std::shared_ptr<const Knowledge>> snapshots_;  // null when out of date
  // By the scope of the fences: what the last ones that release covered, and what the next that
  // acquires takes in. Scope::kGpu stands for kSystem, too.
  static constexpr size_t kScopes = 3;
  std::vector<std::array<std::shared_ptr<const Knowledge>, kScopes>> fenced_;
  struct Awaiting {
    Knowledge knowledge;
    Heard heard;  // of relaxed reads since the last such fence
  };
  std::vector<std::array<Awaiting, kScopes>> awaiting_fence_;
  std::vector<std::array<Heard, kScopes>> heard_;  // for good; by the writers' scope
  std::vector<Heard> heard_sequenced_;             // of the writes behind fences of the kind .sc
  // By warp: the fences that named a tensor map, and what its proxy saw then.
  struct MapFence {
    uint32_t epoch;
    Clock seen;
  };
  std::vector<std::unordered_map<uint64_t, std::vector<MapFence>>> fenced_maps_;
  std::vector<std::vector<RegisterMove>> register_moves_;
  std::vector<std::vector<uint32_t>> tensor_fences_;  // epochs that end in before_thread_sync
  std::vector<std::vector<PeerUse>> peer_uses_;       // by warp and rank
  std::vector<Point> releases_;                       // by rank: the last tcgen05.dealloc
  std::vector<UndefinedValues> undefined_;            // by warp
  // By warp: its registers; each wgmma that its warpgroup has yet to begin, and what the warpgroup
  // knew at those begun.
  std::vector<WgmmaRegisters> wgmma_registers_;
  std::vector<std::deque<WaitingProduct>> wgmma_waiting_;
  std::vector<std::deque<std::shared_ptr<const Knowledge>>> wgmma_begun_;
  // By warp: it has issued an operation in this epoch, so that its next access must begin another
  // one, else that would look as old as those before the issue.
  std::vector<bool> issued_;
  // By warp: the same of a wgmma, which reads: its next write must.
  std::vector<bool> multiplies_;
  PagedRecords<OpRecord> ops_;  // by id - 1
  uint64_t next_sweep_;         // the number of operations at which unnamed ones are forgotten
  std::unordered_map<uint64_t, Queue> queues_;
  std::unordered_map<uint64_t, Mbarrier> mbarriers_;  // rank << 32 | offset
  std::unordered_map<uint64_t, Knowledge> barriers_;  // named and cluster barriers, by phase
  // What was known at relaxed arrivals at a barrier of the cluster, which pass nothing on: by
  // phase, and by warp at the barriers that it has passed.
  std::unordered_map<uint64_t, Knowledge> relaxed_arrivals_;
  std::vector<Knowledge> relaxed_barriers_;
  // A word that was released to: what its readers learn in any CTA, and in the writer's, by rank.
  struct Flag {
    Told<Knowledge> wide;
    std::vector<std::pair<uint32_t, Told<Knowledge>>> own;
    Told<Knowledge>& of_rank(uint32_t rank);
    uint64_t releases = 0;
    uint32_t writer = 0;  // the warp whose store was the last that is no read-modify-write
  };
  std::unordered_map<uint64_t, Flag> flags_;
  std::vector<SharedShadow> shared_;       // by rank
  std::vector<std::vector<Cell>> tensor_;  // by rank
  std::vector<Undecided> undecided_;
  std::vector<SecondStore> second_stores_;  // of one statement
  uint32_t components_;
  uint64_t statement_ = 0;
  const Insn* at_ = nullptr;  // of the access that is looked at
  const Exec* by_ = nullptr;  // the load that is looked at; null: what it reads is used at once
  uint32_t lane_ = 0;         // of that load
};

// All observers of a launch.
std::unique_ptr<Observer> make_checker(Launch& launch);

}  // namespace ptxemu
