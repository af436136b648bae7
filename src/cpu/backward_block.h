// The blocks of one head in a tiled backward: packed, run against each other, finished. Heads are
// numbered b * heads_kv + head of k.
#pragma once

#include <cstdint>

#include "cpu/backward_job.h"
#include "cpu/tensor_rows.h"
#include "plan/cpu_backward_spec.h"
#include "plan/cpu_tuning.h"
#include "problem/backward_args.h"

namespace fa4::internal {

// What all tasks of one call share.
struct BackwardContext {
  BackwardContext(const AttentionProblem& problem, const CpuBackwardSpec& spec,
                  const BackwardArgs& args, const double* delta);

  const AttentionProblem& problem;
  const CpuBackwardSpec& spec;
  const BackwardArgs& args;
  const double* delta;
  CpuBackwardScratch scratch;
  CpuPacking packing;
  char* threads;  // scratch
  char* heads;
};

// One head of a wave, and its place in the shared scratch.
class HeadBlocks {
 public:
  HeadBlocks(const BackwardContext& context, int64_t head, int64_t index_in_wave);

  // Queries and dout of block `m`, packed, with what each row sees and its statistics; the sums of
  // dq begin at 0.
  void pack_rows(int64_t m) const;
  void store_dq(int64_t m) const;

  const BackwardContext& context() const { return context_; }
  const SequenceView& view() const { return view_; }
  int64_t head() const { return head_; }  // of k
  int64_t b() const { return b_; }
  int num_rows(int64_t m) const;
  // The blocks of keys that some row of block m sees, [begin, end).
  RowRange key_blocks(int64_t m) const;
  char* part(int64_t m, size_t offset) const {
    return memory_ + static_cast<size_t>(m) * context_.scratch.bytes_per_block + offset;
  }
  int32_t& turn(int64_t m) const { return word(context_.scratch.turn, m); }
  int32_t& nonfinite(int64_t m) const { return word(context_.scratch.nonfinite, m); }

 private:
  // What a product takes of the queries' side: q or dout, NULL for zeros.
  struct Operand {
    const void* data;
    TensorRows rows;
    int64_t dim, padded, columns;  // of a row: as given, packed as rows, packed as panels
  };
  // lse, delta and the keys that each row sees.
  void store_statistics(int64_t m) const;
  // Whether a number is not finite.
  bool pack_operand(const Operand& of, int64_t m, char* to_rows, char* to_panels) const;
  bool pack_operand_in_tiles(const Operand& of, int64_t m, uint16_t* tiles, uint16_t* panels) const;

  int32_t& word(size_t offset, int64_t m) const {
    return reinterpret_cast<int32_t*>(memory_ + offset)[m];
  }

  const BackwardContext& context_;
  int64_t b_, head_;
  SequenceView view_;
  char* memory_;
};

// f32: float sums over this many blocks are moved into totals, doubles, so that roundings do not
// grow with the number of blocks.
inline constexpr int64_t kBlocksOfFloatSums = 16;
void move_to_totals(int64_t count, float* sums, double* totals);

inline constexpr int32_t kNonfiniteQ = 1, kNonfiniteDout = 2;

// The task of block `n` of keys.
void run_keys(const HeadBlocks& blocks, int64_t n, int64_t slot, RunBackwardBlock run_block);

}  // namespace fa4::internal
