#include "emulator/isa/dominators.h"

#include <algorithm>

namespace ptxemu {
namespace {

// Lengauer and Tarjan's forest, with path compression; everything in depth-first numbers.
class Forest {
 public:
  explicit Forest(uint32_t size) : ancestor_(size, kNoNode), label(size) {
    for (uint32_t i = 0; i < size; ++i) label[i] = i;
    semi = label;
  }
  void link(uint32_t parent, uint32_t child) { ancestor_[child] = parent; }
  uint32_t eval(uint32_t v) {
    if (ancestor_[v] == kNoNode) return v;
    path_.clear();
    for (uint32_t u = v; ancestor_[ancestor_[u]] != kNoNode; u = ancestor_[u]) path_.push_back(u);
    for (size_t i = path_.size(); i-- > 0;) {
      const uint32_t u = path_[i], above = ancestor_[u];
      if (semi[label[above]] < semi[label[u]]) label[u] = label[above];
      ancestor_[u] = ancestor_[above];
    }
    return label[v];
  }

 private:
  std::vector<uint32_t> ancestor_, path_;

 public:
  std::vector<uint32_t> label, semi;
};

}  // namespace

Graph Graph::from_pairs(uint32_t nodes, const std::vector<Edge>& pairs) {
  Graph graph;
  graph.first.assign(nodes + 1, 0);
  for (const auto& [from, to] : pairs) ++graph.first[from + 1];
  for (uint32_t n = 0; n < nodes; ++n) graph.first[n + 1] += graph.first[n];
  std::vector<uint32_t> next(graph.first.begin(), graph.first.end() - 1);
  graph.edges.resize(pairs.size());
  for (const auto& [from, to] : pairs) graph.edges[next[from]++] = to;
  return graph;
}

Graph Graph::reversed() const {
  std::vector<Edge> pairs;
  pairs.reserve(edges.size());
  for (uint32_t n = 0; n < size(); ++n) {
    for (uint32_t e = first[n]; e < first[n + 1]; ++e) pairs.push_back({edges[e], n});
  }
  return from_pairs(size(), pairs);
}

// Without recursion.
Walk::Walk(const Graph& graph) : number(graph.size(), kNoNode) {
  std::vector<Edge> stack;  // node, next edge
  const auto visit = [&](uint32_t node, uint32_t from) {
    number[node] = static_cast<uint32_t>(order.size());
    order.push_back(node);
    parent.push_back(from);
    stack.push_back({node, graph.first[node]});
  };
  if (graph.size() != 0) visit(0, 0);
  while (!stack.empty()) {
    const uint32_t node = stack.back().first;
    if (stack.back().second == graph.first[node + 1]) {
      stack.pop_back();
      continue;
    }
    const uint32_t next = graph.edges[stack.back().second++];
    if (number[next] == kNoNode) visit(next, number[node]);
  }
}

// Tarjan's algorithm, without recursion.
Components strong_components(const Graph& graph) {
  Components result;
  const uint32_t size = graph.size();
  result.of.assign(size, kNoNode);
  std::vector<uint32_t> number(size, kNoNode), low(size, 0), open;
  std::vector<Edge> stack;
  uint32_t next_number = 0;
  const auto visit = [&](uint32_t node) {
    number[node] = low[node] = next_number++;
    open.push_back(node);
    stack.push_back({node, graph.first[node]});
  };
  if (size != 0) visit(0);
  while (!stack.empty()) {
    const uint32_t node = stack.back().first;
    if (stack.back().second < graph.first[node + 1]) {
      const uint32_t next = graph.edges[stack.back().second++];
      if (number[next] == kNoNode) {
        visit(next);
      } else if (result.of[next] == kNoNode) {
        low[node] = std::min(low[node], number[next]);
      }
      continue;
    }
    stack.pop_back();
    if (!stack.empty()) low[stack.back().first] = std::min(low[stack.back().first], low[node]);
    if (low[node] != number[node]) continue;
    for (uint32_t member = kNoNode; member != node; open.pop_back()) {
      member = open.back();
      result.of[member] = result.count;
    }
    ++result.count;
  }
  return result;
}

// Lengauer and Tarjan, "A fast algorithm for finding dominators in a flowgraph", 1979.
std::vector<uint32_t> immediate_dominators(const Graph& graph) {
  const Walk walk(graph);
  const Graph backward = graph.reversed();
  const uint32_t count = static_cast<uint32_t>(walk.order.size());
  Forest forest(count);
  std::vector<uint32_t> idom(count, 0);
  std::vector<std::vector<uint32_t>> bucket(count);
  for (uint32_t w = count; w-- > 1;) {
    const uint32_t node = walk.order[w];
    for (uint32_t e = backward.first[node]; e < backward.first[node + 1]; ++e) {
      const uint32_t v = walk.number[backward.edges[e]];
      if (v == kNoNode) continue;
      forest.semi[w] = std::min(forest.semi[w], forest.semi[forest.eval(v)]);
    }
    bucket[forest.semi[w]].push_back(w);
    const uint32_t parent = walk.parent[w];
    forest.link(parent, w);
    for (const uint32_t v : bucket[parent]) {
      const uint32_t u = forest.eval(v);
      idom[v] = forest.semi[u] < forest.semi[v] ? u : parent;
    }
    bucket[parent].clear();
  }
  std::vector<uint32_t> result(graph.size(), kNoNode);
  for (uint32_t w = 1; w < count; ++w) {
    if (idom[w] != forest.semi[w]) idom[w] = idom[idom[w]];
    result[walk.order[w]] = walk.order[idom[w]];
  }
  return result;
}

}  // namespace ptxemu
