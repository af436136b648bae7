// A kernel that is ready to run: decoded functions, the layout of its shared memory, how a frame's
// registers start.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "emulator/isa/insn.h"
#include "emulator/machine/memory.h"
#include "emulator/parse/ast.h"

namespace ptxemu {

// What a constant slot is filled with when a frame is made.
struct ConstantSlot {
  enum class Base : uint8_t {
    kNone,           // value
    kShared,         // value + (the CTA's rank in its cluster << 24)
    kSpecial,        // the special register `value` (SpecialRegister) of each lane
    kDynamicShared,  // value + where dynamic shared memory starts + rank << 24
    kLocal,          // value + Frame::local_base
  };
  Slot slot = 0;
  int bits = 32;
  Base base = Base::kNone;
  uint64_t value = 0;
};

// Special registers that do not change while a thread lives.
enum class SpecialRegister : uint8_t {
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kLaneid,
  kWarpid,
  kNwarpid,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kSmid,
  kNsmid,
  kGridid,
  kClusteridX,
  kClusteridY,
  kClusteridZ,
  kNclusteridX,
  kNclusteridY,
  kNclusteridZ,
  kClusterCtaidX,
  kClusterCtaidY,
  kClusterCtaidZ,
  kClusterNctaidX,
  kClusterNctaidY,
  kClusterNctaidZ,
  kClusterCtarank,
  kClusterNctarank,
  kIsExplicitCluster,
  kLanemaskEq,
  kLanemaskLe,
  kLanemaskLt,
  kLanemaskGe,
  kLanemaskGt,
  kDynamicSmemSize,
  kTotalSmemSize,
  kAggrSmemSize,
  kReservedSmemBegin,
  kReservedSmemEnd,
  kEnvreg1,  // high and low half of Launch::grid_workspace
  kEnvreg2,
  // These change, and are read by a mov of their own.
  kClock,
  kClockHi,
  kClock64,
  kGlobaltimer,
  kGlobaltimerLo,
  kGlobaltimerHi,
  kCount,
};

// In .param space, offsets below this are in the kernel's parameters, those from here on in the
// frame's parameter area (of a call, or of a called function).
inline constexpr uint64_t kFrameParams = uint64_t{1} << 31;
// The address of function i of Module::functions is this + i.
inline constexpr uint64_t kFunctionWindow = uint64_t{0x13} << 36;

// A .param variable of a function or of a call: where it lies in the frame's parameter area.
struct ParamVariable {
  std::string_view name;
  uint32_t offset = 0, bytes = 0;
  Slot slot = kNoSlot;  // of a parameter or result that is a register
};

// The limits of one thread: what the hardware has of local memory, what the manual allows a
// kernel's parameters, and more than any call passes.
inline constexpr uint64_t kMostLocalBytes = 512 << 10;
inline constexpr uint64_t kMostKernelParamBytes = 32764;
inline constexpr uint64_t kMostCallParamBytes = 1 << 20;
// The limit of the registers and constants of one warp in one call.
inline constexpr uint64_t kMostRegisterBytes = 64 << 20;

struct SlotUse {
  Slot slot;
  uint16_t bytes;  // of the 32 lanes
  bool written;
};

// A register that some way through a function reads before it writes it.
struct UnwrittenRegister {
  Slot slot;
  uint16_t bytes;  // of the 32 lanes
  std::string_view name;
};

struct CodeFunction {
  std::string_view name;
  bool is_entry = false;
  std::vector<Insn> code;       // ends with a return that has no statement
  uint32_t register_bytes = 0;  // of one frame
  // Bytes of the slot that begins at 4 times the index; 0 where none does.
  std::vector<uint16_t> slot_bytes;
  std::vector<ConstantSlot> constants;
  uint32_t local_bytes = 0;  // .local of one lane
  uint32_t param_bytes = 0;  // the call's .param area of one lane
  std::vector<ParamVariable> params, results;
  std::vector<SourceLocation> sources;
  // Registers that an instruction reads or writes: uses[use_begin[pc] .. use_begin[pc + 1]).
  std::vector<SlotUse> uses;
  std::vector<uint32_t> use_begin;
  std::vector<UnwrittenRegister> unwritten;
  std::vector<std::shared_ptr<void>> owned;
  std::vector<std::pair<std::string_view, uint32_t>> labels;  // name, pc
};

// A variable in shared memory of a kernel, for reports.
struct SharedVariable {
  std::string_view name;
  uint32_t offset = 0, bytes = 0;  // bytes 0: dynamic
};

// One kernel. Immutable; may run in many launches at once.
struct Code {
  std::shared_ptr<const Module> module;
  const Function* entry = nullptr;
  const CodeFunction* main = nullptr;
  std::map<std::string_view, std::unique_ptr<CodeFunction>> functions;
  std::vector<SharedVariable> shared;
  std::vector<uint32_t> lines = {0};  // by Insn::statement; what is done without one has 0
  // Where the module's .const variables lie, in global memory: address, bytes.
  std::map<uint64_t, uint64_t> constants;
  // Shared memory as ptxas lays it out: alignments count from the end of the 1 KiB reserved, so
  // that none is known to be larger than that, and those of dynamic shared memory are 16 at least.
  uint32_t static_shared_end = kReservedShared;
  uint32_t dynamic_shared_align = 16;
  uint32_t param_bytes = 0;
  std::vector<uint32_t> param_offsets, param_sizes;
  // Its clusters can learn of one another while they run (isa/cluster_contact.h).
  bool clusters_meet = false;
  // No function can be inside another call of itself (isa/call_graph.h).
  bool calls_are_bounded = false;

  // The next multiple of `align` in shared memory behind the static variables.
  uint64_t next_shared(uint64_t align) const {
    const uint64_t used = static_shared_end - kReservedShared;
    return kReservedShared + (used + align - 1) / align * align;
  }
  uint32_t dynamic_shared_begin() const {
    return static_cast<uint32_t>(next_shared(dynamic_shared_align));
  }
  // Where a CTA's shared memory ends.
  uint64_t shared_end(uint64_t dynamic_bytes) const {
    return dynamic_bytes == 0 ? static_shared_end : dynamic_shared_begin() + dynamic_bytes;
  }
};

// Addresses of the module's .global and .const variables in the machine that will run it.
using SymbolAddresses = std::map<std::string_view, uint64_t>;

// Decodes entry `name` and all that it calls. Throws Error{kUnknownForm} with the line of the first
// statement without a handler.
std::shared_ptr<const Code> decode_kernel(std::shared_ptr<const Module> module,
                                          std::string_view name, const SymbolAddresses& symbols);

}  // namespace ptxemu
