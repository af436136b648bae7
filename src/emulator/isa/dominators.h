// Graph algorithms under control_flow: strong components, dominators, where ways through a graph
// meet.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace ptxemu {

constexpr uint32_t kNoNode = UINT32_MAX;

// Node n has the edges to edges[first[n]] ... edges[first[n + 1] - 1]. Node 0 is where it begins.
struct Graph {
  std::vector<uint32_t> first, edges;
  uint32_t size() const { return static_cast<uint32_t>(first.size() - 1); }
  static Graph from_pairs(uint32_t nodes, const std::vector<std::pair<uint32_t, uint32_t>>& pairs);
  Graph reversed() const;
};

// The component of each node; a component's successors have smaller numbers. Nodes that node 0
// does not reach have kNoNode.
struct Components {
  std::vector<uint32_t> of;
  uint32_t count = 0;
};
Components strong_components(const Graph& graph);

// The immediate dominator of each node, seen from node 0; kNoNode for 0 and what it does not reach.
std::vector<uint32_t> immediate_dominators(const Graph& graph);

// Each node's exit: of the nodes without edges that it reaches, the one that most nodes reach. A
// loop that nothing leaves counts as an exit too, named by the node where it is entered.
// `place` is the first node on all ways to that exit (its immediate post-dominator among the nodes
// of the same exit), kNoNode for the exit itself and for what node 0 does not reach.
struct Meetings {
  std::vector<uint32_t> exit, place;
};
Meetings find_meetings(const Graph& graph);

}  // namespace ptxemu
