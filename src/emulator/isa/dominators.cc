#include "emulator/isa/dominators.h"

#include <algorithm>
#include <utility>

namespace ptxemu {
namespace {

using Edge = std::pair<uint32_t, uint32_t>;

// Depth-first order from node 0, without recursion.
struct Walk {
  std::vector<uint32_t> order;   // nodes as they are found
  std::vector<uint32_t> number;  // a node's place in order, kNoNode: not reached
  std::vector<uint32_t> parent;  // in numbers, of the node with this number

  explicit Walk(const Graph& graph) : number(graph.size(), kNoNode) {
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
};

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

// How many nodes reach each of up to 64 components, a bit each; components come in the order in
// which successors are smaller.
void count_reaching(const Graph& graph, const Components& components,
                    const std::vector<uint32_t>& by_component, const std::vector<uint32_t>& exits,
                    size_t begin, size_t end, std::vector<uint32_t>* counts) {
  std::vector<uint64_t> reaches(components.count, 0);
  for (size_t i = begin; i < end; ++i) reaches[exits[i]] |= uint64_t{1} << (i - begin);
  for (const uint32_t node : by_component) {
    uint64_t& bits = reaches[components.of[node]];
    for (uint32_t e = graph.first[node]; e < graph.first[node + 1]; ++e) {
      bits |= reaches[components.of[graph.edges[e]]];
    }
  }
  for (const uint32_t node : by_component) {
    for (uint64_t bits = reaches[components.of[node]]; bits != 0; bits &= bits - 1) {
      ++(*counts)[begin + static_cast<size_t>(__builtin_ctzll(bits))];
    }
  }
}

// The components that nothing leaves, the one that most nodes reach first.
std::vector<uint32_t> ranked_exits(const Graph& graph, const Components& components,
                                   const std::vector<uint32_t>& by_component) {
  std::vector<uint8_t> leaves(components.count, 0);
  for (const uint32_t node : by_component) {
    for (uint32_t e = graph.first[node]; e < graph.first[node + 1]; ++e) {
      leaves[components.of[node]] |= components.of[graph.edges[e]] != components.of[node];
    }
  }
  std::vector<uint32_t> exits;
  for (uint32_t c = 0; c < components.count; ++c) {
    if (!leaves[c]) exits.push_back(c);
  }
  // Counting is for programs as they are; of more exits than this, the rest stay in order.
  constexpr size_t kCounted = 1024;
  std::vector<uint32_t> counts(exits.size(), 0);
  for (size_t i = 0; i < std::min(exits.size(), kCounted); i += 64) {
    count_reaching(graph, components, by_component, exits, i,
                   std::min({exits.size(), kCounted, i + 64}), &counts);
  }
  std::vector<uint32_t> rank(exits.size());
  for (uint32_t i = 0; i < rank.size(); ++i) rank[i] = i;
  std::stable_sort(rank.begin(), rank.end(),
                   [&](uint32_t a, uint32_t b) { return counts[a] > counts[b]; });
  for (uint32_t& place : rank) place = exits[place];
  return rank;
}

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

Meetings find_meetings(const Graph& graph) {
  const uint32_t size = graph.size();
  const Components components = strong_components(graph);
  std::vector<uint32_t> by_component;
  const Walk walk(graph);
  by_component = walk.order;
  std::stable_sort(by_component.begin(), by_component.end(),
                   [&](uint32_t a, uint32_t b) { return components.of[a] < components.of[b]; });
  // Where each component is entered: its node that the walk found first.
  std::vector<uint32_t> entered(components.count, kNoNode);
  for (const uint32_t node : by_component) {
    uint32_t& first = entered[components.of[node]];
    if (first == kNoNode) first = node;
  }

  // Seen from the exits: node n is n + 1, 0 is before all exits. An endless loop gets a node of its
  // own for its next round, to which its edges to its entry lead.
  std::vector<Edge> backward;
  std::vector<uint32_t> round_of(components.count, kNoNode), round_entry;
  const std::vector<uint32_t> exits = ranked_exits(graph, components, by_component);
  for (const uint32_t component : exits) {
    const uint32_t entry = entered[component];
    if (graph.first[entry] == graph.first[entry + 1]) continue;
    round_of[component] = size + static_cast<uint32_t>(round_entry.size());
    round_entry.push_back(entry);
  }
  for (const uint32_t node : walk.order) {
    for (uint32_t e = graph.first[node]; e < graph.first[node + 1]; ++e) {
      uint32_t to = graph.edges[e];
      const uint32_t component = components.of[node];
      const bool is_next_round = round_of[component] != kNoNode && to == entered[component];
      if (is_next_round) to = round_of[component];
      backward.push_back({to + 1, node + 1});
    }
  }
  const uint32_t nodes = size + static_cast<uint32_t>(round_entry.size()) + 1;
  const Graph all = Graph::from_pairs(nodes, backward);

  // Each exit in its turn takes the nodes that reach it and are not taken.
  std::vector<uint32_t> taken(nodes, kNoNode), queue;
  std::vector<Edge> kept;
  for (const uint32_t component : exits) {
    const uint32_t entry = entered[component];
    const uint32_t root = 1 + (round_of[component] == kNoNode ? entry : round_of[component]);
    kept.push_back({0, root});
    taken[root] = entry;
    queue.assign(1, root);
    while (!queue.empty()) {
      const uint32_t node = queue.back();
      queue.pop_back();
      for (uint32_t e = all.first[node]; e < all.first[node + 1]; ++e) {
        const uint32_t from = all.edges[e];
        if (taken[from] == kNoNode) {
          taken[from] = entry;
          queue.push_back(from);
        }
        if (taken[from] == entry) kept.push_back({node, from});
      }
    }
  }

  const std::vector<uint32_t> idom = immediate_dominators(Graph::from_pairs(nodes, kept));
  Meetings result;
  result.exit.assign(taken.begin() + 1, taken.begin() + 1 + size);
  result.place.assign(size, kNoNode);
  for (uint32_t n = 0; n < size; ++n) {
    const uint32_t above = idom[n + 1];
    if (above == kNoNode || above == 0) continue;
    result.place[n] = above - 1 < size ? above - 1 : round_entry[above - 1 - size];
  }
  return result;
}

}  // namespace ptxemu
