// Basic blocks of a function, and where the lanes that part at a branch meet again.
#pragma once

#include <cstdint>
#include <vector>

#include "emulator/isa/dominators.h"
#include "emulator/parse/ast.h"

namespace ptxemu {

constexpr uint32_t kNoReconvergence = UINT32_MAX;

struct ControlFlow {
  struct Block {
    uint32_t begin = 0, end = 0;  // statements [begin, end)
    // Of `successors`, without repetition; a block that ends the thread has none. One that leaves
    // the function at its end, or by the ret of a .func, has the block end_block().
    uint32_t first_successor = 0, last_successor = 0;
  };
  // The last one is empty and stands for the function's end, statement statements.size().
  std::vector<Block> blocks;
  std::vector<uint32_t> successors;  // indices of blocks
  std::vector<uint32_t> block_of;    // per statement

  // Per statement: for a branch at which lanes may part (bra and brx.idx without .uni, a guarded
  // ret of a .func) the first statement that all its lanes come to, statements.size() for the end
  // of a .func; else kNoReconvergence.
  //
  // That is the immediate post-dominator, but for lanes that end: a way that only leads to an exit,
  // a trap or (in a kernel) a ret is left out where another way goes on, so that an early exit in
  // an inner branch does not keep the lanes of an outer one apart. A branch of which fewer than two
  // ways go on has no such place, nor one whose lanes would meet only to end. A guarded exit, or
  // ret of a kernel, parts nothing: its lanes end.
  std::vector<uint32_t> reconverge;

  Graph graph() const;  // of the blocks and their successors
  uint32_t end_block() const { return static_cast<uint32_t>(blocks.size() - 1); }
};

// Time is near-linear in the statements, for any graph: irreducible, endless, unreachable in part.
ControlFlow analyze(const Function& function);

}  // namespace ptxemu
