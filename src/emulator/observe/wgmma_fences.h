// What a warp does with the registers of its wgmma: they need a wgmma.fence after other statements
// have touched them ("Asynchronous Warpgroup Level Matrix Instructions: wgmma.fence", PTX ISA
// 9.7.15.7.1), and what is never read does no harm.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "emulator/isa/code.h"

namespace ptxemu {

struct Exec;
struct Launch;

// Which statements of a kernel, other than wgmma itself, touch registers that some wgmma uses.
class WgmmaUsers {
 public:
  explicit WgmmaUsers(const Code& code);
  bool any() const { return !by_function_.empty(); }
  bool touches(const CodeFunction& function, uint32_t pc) const;

 private:
  std::map<const CodeFunction*, std::vector<bool>> by_function_;
};

// One warp's account.
class WgmmaRegisters {
 public:
  // Another statement than wgmma; `used` gets the products whose results it reads.
  void touched(const CodeFunction& function, const Insn& insn, std::vector<uint64_t>* used);
  void fence() { ++fences_; }
  // A finding where a fence is missing before this wgmma.
  void check(const Exec& exec, const Insn& insn) const;
  // The wgmma has become operation `op`. Returns the one to whose result it adds; 0: none.
  uint64_t issued(const Exec& exec, const Insn& insn, uint64_t op);

 private:
  struct Use {
    uint32_t since = 0;  // fences, counted from 1
    uint32_t line = 0;
    bool is_move = false;
    uint64_t result_of = 0;  // an operation
  };
  std::vector<Use> uses_;  // by Slot / 64
  uint32_t fences_ = 0;
};

}  // namespace ptxemu
