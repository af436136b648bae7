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
  uint32_t bytes = 0;  // of one lane; the alignment too
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

// Throws Trap for the first lane whose access is out of bounds or misaligned.
void resolve_lanes(const Exec& exec, const MemoryOperand& operand, LaneHosts* hosts);
// Tells the observer, and that memory has changed.
void note_access(Exec& exec, const Insn& insn, const MemoryOperand& operand);

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
