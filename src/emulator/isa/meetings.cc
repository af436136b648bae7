#include "emulator/isa/meetings.h"

#include <algorithm>

namespace ptxemu {
namespace {

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

// The nodes that node 0 reaches, those of a component together, in the components' order.
std::vector<uint32_t> sorted_by_component(const Walk& walk, const Components& components) {
  std::vector<uint32_t> nodes = walk.order;
  std::stable_sort(nodes.begin(), nodes.end(),
                   [&](uint32_t a, uint32_t b) { return components.of[a] < components.of[b]; });
  return nodes;
}

// Where each component is entered: its node that the walk found first.
std::vector<uint32_t> entries(const Walk& walk, const Components& components) {
  std::vector<uint32_t> entered(components.count, kNoNode);
  for (const uint32_t node : walk.order) {
    uint32_t& first = entered[components.of[node]];
    if (first == kNoNode) first = node;
  }
  return entered;
}

// A graph seen from its exits: its node n is n + 1 here, and 0 is before all exits. An endless loop
// gets a node of its own for its next round, to which its edges to its entry lead.
struct FromExits {
  struct Exit {
    uint32_t entry;  // in the graph
    uint32_t root;   // here: of a loop, its next round
  };
  std::vector<Exit> exits;            // the one that most nodes reach first
  std::vector<uint32_t> round_entry;  // of each loop: the next rounds are the last nodes here
  Graph backward;
};

FromExits seen_from_exits(const Graph& graph) {
  const Walk walk(graph);
  const Components components = strong_components(graph);
  const std::vector<uint32_t> entered = entries(walk, components);
  FromExits seen;
  std::vector<uint32_t> round_of(components.count, kNoNode);
  for (const uint32_t component :
       ranked_exits(graph, components, sorted_by_component(walk, components))) {
    const uint32_t entry = entered[component];
    const bool is_loop = graph.first[entry] != graph.first[entry + 1];
    if (is_loop) {
      round_of[component] = graph.size() + static_cast<uint32_t>(seen.round_entry.size()) + 1;
      seen.round_entry.push_back(entry);
    }
    seen.exits.push_back({entry, is_loop ? round_of[component] : entry + 1});
  }
  std::vector<Edge> edges;
  for (const uint32_t node : walk.order) {
    const uint32_t component = components.of[node];
    for (uint32_t e = graph.first[node]; e < graph.first[node + 1]; ++e) {
      const uint32_t to = graph.edges[e];
      const bool is_next_round = round_of[component] != kNoNode && to == entered[component];
      edges.push_back({is_next_round ? round_of[component] : to + 1, node + 1});
    }
  }
  const auto rounds = static_cast<uint32_t>(seen.round_entry.size());
  seen.backward = Graph::from_pairs(graph.size() + rounds + 1, edges);
  return seen;
}

// Each exit in its turn takes the nodes that reach it and are not taken: `taken` has the entries of
// the exits, and what is left of the graph are the edges between nodes of the same exit.
Graph dealt_out(const FromExits& seen, std::vector<uint32_t>* taken) {
  const Graph& all = seen.backward;
  taken->assign(all.size(), kNoNode);
  std::vector<uint32_t> queue;
  std::vector<Edge> kept;
  for (const FromExits::Exit& exit : seen.exits) {
    kept.push_back({0, exit.root});
    (*taken)[exit.root] = exit.entry;
    queue.assign(1, exit.root);
    while (!queue.empty()) {
      const uint32_t node = queue.back();
      queue.pop_back();
      for (uint32_t e = all.first[node]; e < all.first[node + 1]; ++e) {
        const uint32_t from = all.edges[e];
        uint32_t& exit_of = (*taken)[from];
        if (exit_of == kNoNode) {
          exit_of = exit.entry;
          queue.push_back(from);
        }
        if (exit_of == exit.entry) kept.push_back({node, from});
      }
    }
  }
  return Graph::from_pairs(all.size(), kept);
}

}  // namespace

Meetings find_meetings(const Graph& graph) {
  const FromExits seen = seen_from_exits(graph);
  std::vector<uint32_t> taken;
  const Graph kept = dealt_out(seen, &taken);
  const std::vector<uint32_t> idom = immediate_dominators(kept);
  const uint32_t size = graph.size();
  Meetings result;
  result.exit.assign(taken.begin() + 1, taken.begin() + 1 + size);
  result.place.assign(size, kNoNode);
  for (uint32_t n = 0; n < size; ++n) {
    const uint32_t above = idom[n + 1];
    if (above == kNoNode || above == 0) continue;
    result.place[n] = above - 1 < size ? above - 1 : seen.round_entry[above - 1 - size];
  }
  return result;
}

}  // namespace ptxemu
