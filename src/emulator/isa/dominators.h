// Graph algorithms under control_flow: depth-first order, strong components, dominators.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace ptxemu {

constexpr uint32_t kNoNode = UINT32_MAX;

using Edge = std::pair<uint32_t, uint32_t>;  // from, to

// Node n has the edges to edges[first[n]] ... edges[first[n + 1] - 1]. Node 0 is where it begins.
struct Graph {
  std::vector<uint32_t> first, edges;
  uint32_t size() const { return static_cast<uint32_t>(first.size() - 1); }
  static Graph from_pairs(uint32_t nodes, const std::vector<Edge>& pairs);
  Graph reversed() const;
};

// Depth-first order from node 0.
struct Walk {
  explicit Walk(const Graph& graph);
  std::vector<uint32_t> order;   // nodes as they are found
  std::vector<uint32_t> number;  // a node's place in order, kNoNode: not reached
  std::vector<uint32_t> parent;  // in numbers, of the node with this number
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

}  // namespace ptxemu
