// The state of a warp: groups of lanes that run together, each with a place in the code.
//
// Lanes that part at a branch become two groups, which are scheduled in turn, and meet again at the
// branch's immediate post-dominator (a Join). When nothing else in the cluster can run, a group
// that waits at a Join goes on alone, as independent thread scheduling would let it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "emulator/isa/code.h"

namespace ptxemu {

struct Cta;
struct Warp;

// Storage of one call of a function, for the lanes of one group: registers, .local and .param.
struct Frame {
  Frame() = default;
  ~Frame();  // lets go of its callers one by one: a chain may be longer than the host's stack
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  const CodeFunction* function = nullptr;
  std::unique_ptr<std::byte[]> storage;
  std::byte* registers = nullptr;       // 64-byte aligned, function->register_bytes
  std::unique_ptr<std::byte[]> local;   // 32 lanes x function->local_bytes
  std::unique_ptr<std::byte[]> params;  // 32 lanes x function->param_bytes
  std::shared_ptr<Frame> caller;
  uint32_t return_pc = kNoPc;
  uint32_t caller_join_pc = kNoPc;
  uint32_t local_base = 0;  // of this frame in the lane's local memory
  uint32_t depth = 0;       // calls up to the kernel's frame
  // What it takes of the launch's memory, and where that is counted.
  uint64_t bytes = 0;
  uint64_t* counted = nullptr;
};

// Where lanes of one frame meet again.
struct Join {
  uint32_t pc = kNoPc;
  const Frame* frame = nullptr;
  uint32_t expected = 0;  // lanes, those that exit are taken out
  uint32_t arrived = 0;
  std::shared_ptr<Join> outer;
  std::shared_ptr<Frame> frame_owner;
};

// Why a group does not run. `kind` is also the handler's memory between two tries.
struct Wait {
  enum class Kind : uint8_t {
    kNone,
    kMbarrier,
    kNamedBarrier,
    kClusterBarrier,
    kWarpSync,
    kRegisters,
    kTensorAlloc,
    kTensorLoad,
    kTensorStore,
    kBulkGroup,
    kCopyGroup,
    kWgmma,
    kRegisterPool,
    kSleep,
    kGlobal,
  };
  Kind kind = Kind::kNone;
  uint64_t object = 0;   // an address, a barrier number ...
  uint64_t value = 0;    // a number of phases, of groups ...
  uint32_t parity = 0;   // of kMbarrier
  uint64_t since = 0;    // instructions executed by the launch when it began
  bool expired = false;  // of kMbarrier: the try_wait's time is over, it returns false
  // Of kMbarrier: the cluster's progress when a try_wait of the group last gave up by chance.
  uint64_t gave_up = ~uint64_t{0};
};

struct Group {
  uint32_t mask = 0;
  uint32_t pc = 0;
  uint32_t join_pc = kNoPc;  // join->pc while in the join's frame
  std::shared_ptr<Frame> frame;
  std::shared_ptr<Join> join;
  Wait wait;
};

// State that an instruction family keeps with a warp, a CTA or a cluster: state<T>() makes it on
// first use. T is default-constructible.
class FamilyStates {
 public:
  template <class T>
  T& get() {
    static const char tag = 0;
    for (auto& entry : entries_) {
      if (entry.tag == &tag) return *static_cast<T*>(entry.value.get());
    }
    entries_.push_back({&tag, std::make_shared<T>()});
    return *static_cast<T*>(entries_.back().value.get());
  }

 private:
  struct Entry {
    const void* tag;
    std::shared_ptr<void> value;
  };
  std::vector<Entry> entries_;
};

// Slots whose value is still on its way (tcgen05.ld, wgmma): an instruction that touches one
// stalls.
struct PendingRegisters {
  struct Range {
    const Frame* frame;
    Slot begin, end;
    uint64_t op;         // AsyncOp::id
    bool stalls;         // on its way, and who touches it waits; else who touches it is told of
    uint32_t shape = 0;  // of a wgmma's accumulators: N and K of the product; of its A: 0
  };
  std::vector<Range> ranges;
};

struct Warp {
  Cta* cta = nullptr;
  uint32_t index = 0;  // in its CTA
  uint32_t agent = 0;  // in its cluster: rank x warps + index
  uint32_t lanes = 0;  // that exist
  uint32_t exited = 0;
  std::vector<std::unique_ptr<Group>> groups;  // those that may run or are blocked
  std::vector<std::shared_ptr<Join>> joins;    // with lanes that wait there
  PendingRegisters pending;
  bool watched = false;  // by the launch's observer, which is told of every statement of the warp
  uint64_t instructions = 0;
  uint32_t register_limit = 0;  // a thread's registers, as setmaxnreg moves it
  FamilyStates states;

  template <class T>
  T& state() {
    return states.get<T>();
  }
  bool done() const { return exited == lanes; }
};

}  // namespace ptxemu
