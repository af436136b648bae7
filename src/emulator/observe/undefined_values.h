// Registers of a warp that hold what was read where nobody had written. Compilers load before they
// know whether they need the value, so only its use is worth telling: an address, a condition,
// something stored. Arithmetic passes it on.
#pragma once

#include <cstdint>
#include <map>

#include "emulator/isa/code.h"
#include "emulator/observe/finding.h"

namespace ptxemu {

class UndefinedValues {
 public:
  bool empty() const { return lines_.empty(); }
  // `insn` has filled its registers with such values; `finding` tells of it once they are used.
  void loaded(const CodeFunction& function, const Insn& insn, Finding finding);
  // `insn` is about to run. Returns the finding of what it uses, null when it uses nothing of that.
  const Finding* runs(const CodeFunction& function, const Insn& insn);

 private:
  void define(Slot slot, uint32_t bytes);

  std::map<Slot, uint32_t> lines_;        // a register's slot: the line that loaded its value
  std::map<uint32_t, Finding> findings_;  // by that line
};

}  // namespace ptxemu
