// Addresses of a warp's lanes, found together where they lie together. Used by every instruction
// that touches memory lane by lane.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "emulator/isa/decoder.h"
#include "emulator/machine/exec.h"

namespace ptxemu {

// What an instruction does to memory, as decoded.
struct MemoryOperand {
  Space space = Space::kGeneric;
  Address address;
  uint32_t bytes = 0;    // of one lane; the alignment too
  uint32_t element = 0;  // MemoryAccess::element
  bool reads = false, writes = false, atomic = false;
  bool acquires = false, releases = false;
  Scope scope = Scope::kCta;  // of a strong access
  bool strong = false;        // volatile, or relaxed and stronger
  bool sums_floats = false;
  bool read_only = false;  // .nc
};

struct LaneHosts {
  std::byte* at[32];  // of the lanes of exec.mask
};

// The access of the lanes of exec.mask: where it happens on the host, and who must know is told.
// Called before the instruction writes a register, which may hold its address. Throws Trap for the
// first lane that is out of bounds or misaligned.
void access_lanes(Exec& exec, const Insn& insn, const MemoryOperand& operand, LaneHosts* hosts);
// The places alone, of asynchronous work, which tells of each access when it happens.
void resolve_lanes(const Exec& exec, const MemoryOperand& operand, LaneHosts* hosts);

// .cta .cluster .gpu .sys, if one of them stands there.
std::optional<Scope> take_scope(Decoder& decoder);
// .weak .volatile .relaxed .acquire .release .acq_rel .mmio, and the scope they name.
void take_ordering(Decoder& decoder, MemoryOperand* operand);
// Cache operators, eviction priorities and prefetch sizes: hints that change no value ("Cache
// Operators", "Cache Eviction Priority Hints"; PTX ISA 9.7.9.1, 9.7.9.2). True when an operand with
// a cache policy follows.
bool take_cache_hints(Decoder& decoder);
// v2, v4, v8; 1 without.
uint32_t take_vector(Decoder& decoder);

}  // namespace ptxemu
