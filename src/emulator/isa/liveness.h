// Which registers of a function can lie in one place, because no thread needs both at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "emulator/isa/control_flow.h"
#include "emulator/parse/ast.h"

namespace ptxemu {

// The registers (indices into Function::registers) that one statement touches; guards are known.
struct RegisterUses {
  std::vector<uint32_t> reads, writes;
  // Those that something goes on reading or writing after the statement, until a statement that
  // settles: the results of tcgen05.ld, the operands of wgmma.
  std::vector<uint32_t> holds;
  bool settles = false;
};

// Fills in `uses`, which comes empty, for the statement with this index.
using UsesOf = std::function<void(uint32_t statement, RegisterUses* uses)>;

struct SlotSharing {
  static constexpr uint32_t kUnused = UINT32_MAX;
  std::vector<uint32_t> slot_of;  // per register: index into slot_bits; kUnused: nothing touches it
  std::vector<int> slot_bits;     // the width (bits_of) of all the registers of a slot
  // Registers that some way through the text reads before it writes them, a guarded write taken for
  // none; parameters and results of a .func are among them.
  std::vector<uint32_t> unwritten;
};

// A register keeps its slot from the first to the last statement at which it is live, as the text
// runs, loops included; one that may be read before it is written, from the beginning. Two share a
// slot only where these spans have no statement in common and the widths are equal, so a statement
// never writes the slot of what it reads. That is right for lanes that part, as long as a statement
// writes only the lanes that execute it: each lane runs one way through the text, and no way
// needs both registers. A guarded write ends nothing.
//
// Time is linear for programs as they are, and bounded for all others: past a budget, registers get
// slots of their own.
SlotSharing share_slots(const Function& function, const ControlFlow& flow, const UsesOf& uses_of);

}  // namespace ptxemu
