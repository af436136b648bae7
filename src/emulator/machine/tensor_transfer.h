// How tcgen05.ld and tcgen05.st lay a warp's registers over tensor memory ("Data Movement Shape",
// PTX ISA 9.7.16.2.3), and the operations that move them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "emulator/machine/engine.h"
#include "emulator/machine/exec.h"
#include "emulator/machine/tensor_memory.h"

namespace ptxemu {

enum class TransferShape : uint8_t { k32x32b, k16x64b, k16x128b, k16x256b, k16x32bx2 };

// Registers a thread for .x1, and 32-bit columns.
uint32_t registers_of(TransferShape shape);
inline uint32_t rows_of(TransferShape shape) { return shape == TransferShape::k32x32b ? 32 : 16; }

// Where a register of a thread lies, relative to the address.
struct TensorCell {
  uint32_t row, column;
};
// `half_split` is immHalfSplitoff of .16x32bx2, in columns.
TensorCell tensor_cell(TransferShape shape, uint32_t thread, uint32_t reg, uint32_t half_split);

// What is moved.
struct Transfer {
  TransferShape shape = TransferShape::k32x32b;
  bool halfwords = false;  // .pack::16b, .unpack::16b: two columns a register
  uint32_t registers = 0;  // of a thread
  uint32_t half_split = 0;
  TensorAddress at;
};
// The one or two rectangles of cells that a transfer touches.
std::vector<Region> regions_of(const Transfer& transfer, Cta* cta);
// A warp reaches the quarter of the lanes that its index names, and known kernels leave the quarter
// out of the address: lanes 0 to 31 then mean the warp's own. Throws Trap{"tmem-lane-quarter"} for
// an address in another quarter.
TensorAddress in_quarter(TensorAddress address, TransferShape shape, const Warp& warp,
                         const char* what);
// Throws Trap unless the cells are allocated.
void check_transfer(const Transfer& transfer, const Warp& warp, const char* what);

// Reduction of what a thread loads (tcgen05.ld.red).
struct TransferReduction {
  enum class Kind : uint8_t { kNone, kFloat, kUnsigned, kSigned };
  Kind kind = Kind::kNone;
  bool maximum = false, absolute = false, keeps_nan = false;
};
uint32_t reduce_pair(const TransferReduction& reduction, uint32_t a, uint32_t b);

// tcgen05.ld and st of the warps that share a quarter of a CTA's tensor memory. The manual orders
// none of them; known kernels store in one warp and load in another of the same quarter with no
// wait::st between, so the hardware's port must.
inline uint64_t tensor_memory_queue(uint32_t rank, uint32_t warp) {
  return 0x20000000 + rank * 4 + warp % 4;
}

class TmemLoadOp final : public AsyncOp {
 public:
  TmemLoadOp(const Exec& exec, const Insn& insn, const Transfer& transfer,
             const TransferReduction& reduction);
  bool advance(Cluster& cluster, bool split) override;

 private:
  void load_register(uint32_t reg);
  void reduce();

  Cta* cta_;
  Warp* owner_;
  std::shared_ptr<Frame> frame_;
  uint32_t mask_;
  Transfer transfer_;
  TransferReduction reduction_;
  Slot reduced_;
  const Slot* slots_;
  uint32_t next_ = 0;
};

class TmemStoreOp final : public AsyncOp {
 public:
  TmemStoreOp(const Exec& exec, const Insn& insn, const Transfer& transfer);
  bool advance(Cluster& cluster, bool split) override;

 private:
  void store_register(uint32_t reg);

  Cta* cta_;
  uint32_t mask_;
  Transfer transfer_;
  std::vector<uint32_t> values_;  // [register][lane], as they were when it was issued
  uint32_t next_ = 0;
};

}  // namespace ptxemu
