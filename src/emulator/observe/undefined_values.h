// Registers of a warp that hold what nobody has written: those that no statement wrote before, and
// those filled by a load from where nobody had. Compilers copy and load before they know whether
// they need the value, so only its use is worth telling: an address, a condition, something stored.
// Arithmetic passes it on, bit by bit where the statement only moves bits.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "emulator/isa/code.h"
#include "emulator/observe/finding.h"

namespace ptxemu {

struct Exec;
struct Frame;

// Of one lane of a load: which of the bytes that it loads nobody has written, a bit each.
struct MissingBytes {
  uint32_t lane = 0;
  uint32_t bytes = 0;  // of the whole load
  uint32_t mask = 0;
};

// What one warp holds of values that nobody has written.
class UndefinedValues {
 public:
  // The load `insn` fills its registers with such bytes; `finding` tells of it once they are used.
  void loaded(const Exec& exec, const Insn& insn, const MissingBytes& missing, Finding finding);
  // `insn` is about to run for exec.mask (0: its guard keeps it from all lanes that are here).
  // Reports what it uses.
  void runs(const Exec& exec, const Insn& insn);

 private:
  static constexpr uint32_t kNone = ~0u;
  struct Value {
    uint32_t origin = 0;        // index into origins_
    uint32_t lanes = 0;         // with such bits
    std::vector<uint8_t> bits;  // as the register lies, set where nobody has written
  };
  using Values = std::unordered_map<Slot, Value>;
  struct FrameValues {
    std::weak_ptr<Frame> frame;  // keeps the address from being another frame's
    const Frame* address = nullptr;
    Values values;
  };
  // Where such a value came from: a load, or a register that nothing wrote.
  struct Origin {
    Finding finding;
    std::string_view register_name;  // empty: a load
  };

  Values& of_frame(const std::shared_ptr<Frame>& frame);
  uint32_t origin_of(const Insn& insn, Finding finding);
  static void mark(Values& values, const SlotUse& reg, const std::vector<uint8_t>& bits,
                   uint32_t mask, uint32_t origin);
  uint32_t read_by(const Exec& exec, const Insn& insn, const Values& values) const;
  void pass_on(const Exec& exec, const Insn& insn, Values& values, ValueFlow flow, uint32_t origin);
  void report(const Exec& exec, const Insn& insn, uint32_t origin, uint32_t lanes);

  std::vector<FrameValues> frames_;
  size_t last_ = 0;  // of frames_, the one that was asked for last
  std::vector<Origin> origins_;
};

}  // namespace ptxemu
