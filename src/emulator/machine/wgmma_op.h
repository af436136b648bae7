// wgmma.mma_async of one warp: its sixteen of the warpgroup's 64 rows ("Asynchronous
// Multiply-and-Accumulate Instruction: wgmma.mma_async", PTX ISA 9.7.15.5.2).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "emulator/machine/engine.h"
#include "emulator/machine/exec.h"
#include "emulator/machine/mma_math.h"
#include "emulator/machine/tensor_core_op.h"

namespace ptxemu {

// What the instruction says, as decoded.
struct WgmmaForm {
  int n = 0, k = 0;
  ElementType a = ElementType::kF16, b = ElementType::kF16;
  Accumulator accumulator = Accumulator::kF32;
  bool saturate = false;
  bool a_in_registers = false;
  bool negate_a = false, negate_b = false, transpose_a = false, transpose_b = false;
  uint32_t d_registers = 0;  // the first of Insn::list; then the four of A, if they are registers
  Slot a_descriptor = kNoSlot, b_descriptor = kNoSlot;
  Slot accumulates = kNoSlot;
  bool accumulates_negated = false;

  uint32_t shape() const { return static_cast<uint32_t>(n) << 16 | static_cast<uint32_t>(k); }
};

// Warp state: what has been issued and not been waited for. The four warps of a warpgroup multiply
// together: the i-th wgmma of each is one operation, and done when all four parts are.
struct WgmmaGroups {
  uint64_t issued = 0, done = 0;  // parts of this warp, in order
  std::deque<uint64_t> recent;    // AsyncOp::id of parts (issued - recent.size(), issued]
  std::deque<uint64_t> groups;    // `issued` at each commit that has not been waited for
  uint64_t waited = 0;            // parts that a wait_group has covered
  std::vector<uint16_t> users;    // by Slot / 128: pending parts that write the register
  uint16_t& users_of(Slot slot) {
    if (users.size() <= slot / 128) users.resize(slot / 128 + 1);
    return users[slot / 128];
  }
  void note_issue(uint64_t op) {
    constexpr size_t kRemembered = 4096;
    ++issued;
    recent.push_back(op);
    if (recent.size() > kRemembered) recent.pop_front();
  }
  // The op of part number `part`, counted from 1; 0 when it is forgotten or not issued.
  uint64_t op_of(uint64_t part) const {
    const uint64_t first = issued - recent.size() + 1;
    return part < first || part > issued ? 0 : recent[part - first];
  }
};

class WgmmaOp final : public AsyncOp {
 public:
  WgmmaOp(const Exec& exec, const Insn& insn);
  bool advance(Cluster& cluster, bool split) override;

 private:
  void load_a(MmaSide& side) const;
  void load_b(MmaSide& side) const;
  void read_accumulators(uint32_t* cells) const;
  void write_accumulators(const uint32_t* cells, int begin, int end) const;
  uint32_t* register_at(uint32_t i) const {
    return reinterpret_cast<uint32_t*>(frame_->registers + slots_[i]);
  }

  Cta* cta_;
  Warp* owner_;
  std::shared_ptr<Frame> frame_;
  const WgmmaForm& form_;
  const Slot* slots_;
  MatrixDescriptor a_, b_;
  bool accumulates_ = true;
  // Registers of D that nobody else was writing when this was issued: their values then, by
  // [register][lane]; meanwhile they hold NaN patterns. Empty under the eager policy.
  std::vector<uint32_t> kept_;
  std::vector<bool> is_kept_;
  int next_ = 0;  // the first column that is not done
};

}  // namespace ptxemu
