// Where the ways through a graph of control flow meet again.
#pragma once

#include <cstdint>
#include <vector>

#include "emulator/isa/dominators.h"

namespace ptxemu {

// Each node's exit: of the nodes without edges that it reaches, the one that most nodes reach. A
// loop that nothing leaves counts as an exit too, named by the node where it is entered.
// `place` is the first node on all ways to that exit (its immediate post-dominator among the nodes
// of the same exit), kNoNode for the exit itself and for what node 0 does not reach.
struct Meetings {
  std::vector<uint32_t> exit, place;
};
Meetings find_meetings(const Graph& graph);

}  // namespace ptxemu
