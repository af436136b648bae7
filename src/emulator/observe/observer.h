// What the machine tells those who watch it. Handlers and asynchronous operations call these at the
// moment of the event, only when there is an observer; nothing here changes what a kernel computes.
//
// An agent is a warp (Warp::agent) or an asynchronous operation (AsyncOp::id).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ptxemu {

struct Exec;
struct Insn;
struct Cta;
struct Cluster;
struct Warp;
class AsyncOp;

// The threads that an ordering reaches ("Scope", PTX ISA 8.5).
enum class Scope : uint8_t { kCta, kCluster, kGpu, kSystem };

// Ordinary accesses of the lanes of exec.mask (generic proxy). address[lane] is an offset in the
// memory of `cta` for shared memory, else a global address.
struct MemoryAccess {
  enum class Space : uint8_t { kShared, kGlobal };
  Space space;
  bool reads, writes, atomic;
  bool acquires = false, releases = false;  // ld.acquire, st.release, atom with such an order
  Scope scope = Scope::kCta;                // of a strong access
  bool strong = false;       // atomic, volatile, or relaxed and stronger: no data race by itself
  bool sums_floats = false;  // an atomic whose result depends on the order of others
  bool read_only = false;    // ld.global.nc: the memory is not written while the kernel runs
  uint32_t bytes;            // of one lane
  uint32_t element = 0;     // of a strong one: bytes of each value that is accessed at once; 0: any
  const uint64_t* address;  // 32 lanes
  Cta* const* cta;          // 32 lanes; shared memory only
};

// Bytes of shared memory, cells of tensor memory or bytes of global memory.
struct Region {
  enum class Space : uint8_t { kShared, kTensor, kGlobal };
  Space space;
  Cta* cta = nullptr;             // kShared, kTensor
  uint64_t begin = 0, bytes = 0;  // kShared: offset; kGlobal: address
  // kTensor; and of kShared that a product reads as A, the lanes of D that it feeds (lanes 0: all).
  uint32_t lane = 0, lanes = 0, column = 0, columns = 0;
  // What is written is a sum with what was there; a read: only in order to add to it.
  bool reduces = false, sums_floats = false;
  // kGlobal, of what a copy has written there: what the bytes held before. Null: it is not known.
  const std::byte* before = nullptr;
};

enum class FenceKind : uint8_t {
  kMemory,  // fence, membar
  kProxyAsync,
  kProxyAsyncShared,
  kProxyAsyncGlobal,
  kProxyAlias,
  kProxyTensorMap,
  kMbarrierInit,
  kTensorBeforeSync,
  kTensorAfterSync,
  kWgmma,
};

struct Fence {
  FenceKind kind;
  // Of kMemory and kProxyTensorMap, which may work in one direction only.
  bool acquires = true, releases = true;
  Scope scope = Scope::kCta;     // of kMemory
  bool only_shared = false;      // of kMemory: .sync_restrict
  bool sequential = false;       // of kMemory: .sc, membar
  std::vector<uint64_t> maps{};  // of an acquiring kProxyTensorMap: the maps that it names
};

// What a thread's arrival (at an mbarrier, at the cluster's barrier) and its wait ask for.
struct ArriveOrder {
  bool releases = true;
  Scope scope = Scope::kCta;
};
struct WaitOrder {
  uint32_t parity = 0;
  bool acquires = true;
  Scope scope = Scope::kCta;
};

class Observer {
 public:
  virtual ~Observer() = default;

  virtual void launch_end() {}
  virtual void cluster_start(Cluster&) {}
  virtual void cluster_end(Cluster&) {}
  virtual void warp_exit(const Exec&, const Insn&) {}

  virtual void access(const Exec&, const Insn&, const MemoryAccess&) {}
  virtual void fence(const Exec&, const Insn&, const Fence&) {}

  // Asynchronous operations: issued by a warp (Engines::submit tells), then reads, writes, done.
  virtual void issue(Cluster&, const AsyncOp&) {}
  virtual void async_read(Cluster&, const AsyncOp&, const Region&) {}
  virtual void async_write(Cluster&, const AsyncOp&, const Region&) {}
  virtual void async_done(Cluster&, const AsyncOp&) {}
  // A warp knows that operation `op` has done reading its source / has completed: wait_group,
  // tcgen05.wait, wgmma.wait_group.
  virtual void op_read_observed(const Exec&, const Insn&, uint64_t /*op*/) {}
  virtual void op_done_observed(const Exec&, const Insn&, uint64_t /*op*/) {}

  // Barriers in shared memory; `offset` in the memory of `cta`. phase: how many were completed.
  virtual void mbarrier_init(const Exec&, const Insn&, Cta&, uint32_t /*offset*/,
                             uint32_t /*count*/) {}
  virtual void mbarrier_inval(const Exec&, const Insn&, Cta&, uint32_t /*offset*/) {}
  // A thread has come to an operation on a barrier, other than its initialisation.
  virtual void mbarrier_used(const Exec&, const Insn&, Cta&, uint32_t /*offset*/) {}
  virtual void mbarrier_arrive(const Exec&, const Insn&, Cta&, uint32_t /*offset*/,
                               const ArriveOrder&) {}
  virtual void mbarrier_expect(const Exec&, const Insn&, Cta&, uint32_t /*offset*/,
                               int64_t /*bytes*/) {}
  virtual void mbarrier_async_arrive(const AsyncOp&, Cta&, uint32_t /*offset*/, int64_t /*bytes*/,
                                     uint32_t /*arrivals*/) {}
  // The phase that goes on will not be over without an arrival that speaks for `op`, which is done.
  virtual void mbarrier_follows(Cta&, uint32_t /*offset*/, uint64_t /*op*/) {}
  virtual void mbarrier_phase(Cta&, uint32_t /*offset*/) {}  // a phase has completed
  virtual void mbarrier_observed(const Exec&, const Insn&, Cta&, uint32_t /*offset*/,
                                 const WaitOrder&) {}
  // A wait for this parity begins: its phase has not completed.
  virtual void mbarrier_waits(const Exec&, const Insn&, Cta&, uint32_t /*offset*/,
                              uint32_t /*parity*/) {}
  // A wait that had begun has passed, but the barrier has completed another phase since.
  virtual void mbarrier_overtaken(const Exec&, const Insn&, Cta&, uint32_t /*offset*/) {}

  // Named barriers and the cluster's. `generation` counts the barrier's completions before this
  // one.
  virtual void barrier_arrive(const Exec&, const Insn&, uint32_t /*number*/,
                              uint64_t /*generation*/) {}
  virtual void barrier_passed(const Exec&, const Insn&, uint32_t /*number*/,
                              uint64_t /*generation*/) {}
  virtual void cluster_arrive(const Exec&, const Insn&, uint64_t /*generation*/,
                              const ArriveOrder&) {}
  virtual void cluster_passed(const Exec&, const Insn&, uint64_t /*generation*/) {}
  virtual void warp_sync(const Exec&, const Insn&) {}

  // griddepcontrol.wait has passed; .launch_dependents was executed.
  virtual void grid_wait(const Exec&, const Insn&) {}
  virtual void grid_trigger(const Exec&, const Insn&) {}

  // Tensor memory of exec.cta.
  virtual void tensor_alloc(const Exec&, const Insn&, Cta&, uint32_t /*column*/,
                            uint32_t /*columns*/) {}
  virtual void tensor_dealloc(const Exec&, const Insn&, Cta&, uint32_t /*column*/,
                              uint32_t /*columns*/) {}
  // A statement with .cta_group::2: it works on the peer CTA of the pair, too.
  virtual void pair_used(const Exec&, const Insn&) {}
  // The copy engine reads a tensor map in global memory.
  virtual void tensor_map_read(const Exec&, const Insn&, uint64_t /*address*/) {}
  virtual void setmaxnreg(const Exec&, const Insn&, uint32_t /*registers*/) {}
  // The release of tensor memory of exec.cta comes before what this warp does now.
  virtual bool knows_release(const Exec&) { return true; }
  // A register range that asynchronous work fills or reads was touched before it was waited for.
  virtual void pending_register_touched(const Exec&, const Insn&, uint64_t /*op*/) {}
  // Every statement of a warp that the observer watches (Warp::watched), before it
  // runs.
  virtual void watched_instruction(const Exec&, const Insn&) {}
};

}  // namespace ptxemu
