// What a CTA's (or a CTA pair's) tensor core does in order of issue: tcgen05.mma, cp, shift and
// commit ("TensorCore 5th Generation Matrix Multiply and accumulate Operations", PTX ISA
// 9.7.16.10).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "emulator/machine/engine.h"
#include "emulator/machine/exec.h"
#include "emulator/machine/instruction_descriptor.h"
#include "emulator/machine/matrix_descriptor.h"
#include "emulator/machine/mma_math.h"
#include "emulator/machine/tensor_memory.h"

namespace ptxemu {

// The CTAs that an instruction of .cta_group::1 or ::2 works on, the even one of a pair first.
// Throws Trap{"cta-pair"} when there is no peer.
struct CtaGroup {
  Cta* cta[2] = {nullptr, nullptr};
  int size = 1;
  static CtaGroup of(const Exec& exec, int cta_group);
  uint64_t queue() const { return tensor_core_queue(cta[0]->rank); }
};

// A multiplicand in shared memory.
struct MatrixSource {
  Cta* cta = nullptr;
  MatrixDescriptor matrix;
  Major major = Major::kK;
  int first = 0;                // the first of its rows (of B: columns) that is read
  bool rows_are_lanes = false;  // row i feeds lane i of D and no other
};
// Copies `rows` of its rows to those of the side from `to` on. Tells the observer of what is read
// for `op`. `operand` names the matrix in errors.
void gather_matrix(const MatrixSource& source, int to, int rows, MmaSide& side, const AsyncOp& op,
                   const char* operand);

struct MmaOperands {
  InstructionDescriptor shape;
  MmaKind kind = MmaKind::kF16;
  bool a_in_tensor_memory = false;
  MatrixDescriptor a, b;
  TensorAddress a_address, d;
  bool accumulates = true;
  int scale = 0;                       // D is scaled by 2^-scale first
  std::array<uint32_t, 8> disabled{};  // bit i of the i/32th word: lane i % 128 of CTA i / 128
};

class MmaOp final : public AsyncOp {
 public:
  MmaOp(const Exec& exec, const CtaGroup& group, const MmaOperands& operands);
  // Traps for what can be told when it is issued: unallocated cells, lanes that do not fit.
  void check() const;
  bool advance(Cluster& cluster, bool split) override;

 private:
  int rows() const { return operands_.shape.m / group_.size; }  // of a CTA
  bool two_by_two() const { return group_.size == 2 && operands_.shape.m == 128; }
  uint32_t lane_of(int row) const;  // of D and of A in tensor memory
  void load_a(int cta, MmaSide& side) const;
  void load_b(int begin, int end, MmaSide& side) const;
  void multiply(Cluster& cluster, int begin, int end) const;
  void multiply_run(int cta, const MmaSide& a, const MmaSide& b, int begin, int end, int half,
                    const MmaRules& rules) const;
  void tell_writes(Cluster& cluster, int begin, int end) const;

  CtaGroup group_;
  MmaOperands operands_;
  int next_ = 0;  // the first column of D that is not done
};

enum class CopyShape : uint8_t { k128x256b, k4x256b, k128x128b, k64x128b, k32x128b };

class Tcgen05CpOp final : public AsyncOp {
 public:
  Tcgen05CpOp(const Exec& exec, const CtaGroup& group, CopyShape shape, bool pairs_02_13,
              const MatrixDescriptor& source, TensorAddress to);
  void check() const;
  bool advance(Cluster& cluster, bool split) override;

 private:
  void copy(Cluster& cluster, Cta& cta) const;

  CtaGroup group_;
  CopyShape shape_;
  bool pairs_02_13_;
  MatrixDescriptor source_;
  TensorAddress to_;
};

class Tcgen05ShiftOp final : public AsyncOp {
 public:
  Tcgen05ShiftOp(const Exec& exec, const CtaGroup& group, TensorAddress at);
  void check() const;
  bool advance(Cluster& cluster, bool split) override;

 private:
  CtaGroup group_;
  TensorAddress at_;
};

class TensorCommitOp final : public AsyncOp {
 public:
  TensorCommitOp(const Exec& exec, const CtaGroup& group, std::vector<Cta*> targets,
                 uint32_t offset);
  bool advance(Cluster& cluster, bool split) override;

 private:
  std::vector<Cta*> targets_;
  uint32_t offset_;  // of the barrier, in the memory of each target
};

}  // namespace ptxemu
