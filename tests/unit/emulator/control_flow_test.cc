#include "emulator/isa/control_flow.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <random>
#include <string>

#include "emulator/isa/dominators.h"
#include "parse_helpers.h"

namespace ptxemu {
namespace {

constexpr uint32_t kNone = kNoReconvergence;

ControlFlow flow_of_kernel(const std::string& body) {
  return analyze(parse_body(body)->functions[0]);
}

ControlFlow flow_of_function(const std::string& body) {
  const auto module = parse_text(".func f { .reg .pred %p<9>; .reg .b32 %r<9>;\n" + body + " }");
  return analyze(module->functions[0]);
}

TEST(ControlFlow, BlocksAndSuccessors) {
  const ControlFlow flow = flow_of_kernel(
      "mov.u32 %r1, 1; @%p1 bra A; mov.u32 %r1, 2; A: mov.u32 %r1, 3; @%p1 bra A; ret;");
  EXPECT_EQ(flow.block_of, (std::vector<uint32_t>{0, 0, 1, 2, 2, 3}));
  ASSERT_EQ(flow.blocks.size(), 5u);
  const auto successors = [&](uint32_t b) {
    return std::vector<uint32_t>(flow.successors.begin() + flow.blocks[b].first_successor,
                                 flow.successors.begin() + flow.blocks[b].last_successor);
  };
  EXPECT_EQ(successors(0), (std::vector<uint32_t>{1, 2}));
  EXPECT_EQ(successors(1), (std::vector<uint32_t>{2}));
  EXPECT_EQ(successors(2), (std::vector<uint32_t>{2, 3}));
  EXPECT_TRUE(successors(3).empty());
  EXPECT_EQ(flow.blocks[flow.end_block()].begin, 6u);
}

TEST(ControlFlow, BranchesMeetBehindThem) {
  // if; if-else
  const ControlFlow one = flow_of_kernel("@%p1 bra A; trap; A: membar; ret;");
  EXPECT_EQ(one.reconverge[0], kNone);  // the other way only traps
  const ControlFlow two = flow_of_kernel("@%p1 bra A; a; bra B; A: b; B: c; ret;");
  EXPECT_EQ(two.reconverge, (std::vector<uint32_t>{4, kNone, kNone, kNone, kNone, kNone}));
}

TEST(ControlFlow, NestedBranches) {
  const ControlFlow flow = flow_of_kernel(
      "@%p1 bra OUT;\n"  // 0
      "@%p2 bra IN;\n"   // 1
      "a;\n"             // 2
      "IN: b;\n"         // 3
      "OUT: c; ret;");   // 4
  EXPECT_EQ(flow.reconverge[0], 4u);
  EXPECT_EQ(flow.reconverge[1], 3u);
}

TEST(ControlFlow, LanesThatLeaveALoopMeetBehindIt) {
  const ControlFlow flow = flow_of_kernel("L: a; @%p1 bra OUT; b; bra L; OUT: c; ret;");
  EXPECT_EQ(flow.reconverge[1], 4u);
  const ControlFlow bottom = flow_of_kernel("L: a; @%p1 bra L; c; ret;");
  EXPECT_EQ(bottom.reconverge[1], 2u);
}

TEST(ControlFlow, UniformBranchesPartNothing) {
  const ControlFlow flow = flow_of_kernel(
      "@%p1 bra.uni A; a; A: b; @%p2 ret; @%p3 exit; ts: .branchtargets A, B;\n"
      "brx.idx.uni %r1, ts; B: c; ret;");
  EXPECT_EQ(flow.reconverge, std::vector<uint32_t>(flow.reconverge.size(), kNone));
}

TEST(ControlFlow, IndexedBranches) {
  const ControlFlow flow = flow_of_kernel(
      "ts: .branchtargets A, B, C, A;\nbrx.idx %r1, ts;\n"  // 0
      "A: a; bra D; B: b; bra D; C: trap; D: d; ret;");
  EXPECT_EQ(flow.reconverge[0], 6u);  // C's lanes end
  EXPECT_EQ(flow.blocks[0].last_successor - flow.blocks[0].first_successor, 3u);
}

TEST(ControlFlow, AnEarlyExitWithinDoesNotKeepLanesApart) {
  for (const char* end : {"ret;", "exit;", "trap;"}) {
    const ControlFlow flow =
        flow_of_kernel(std::string("@%p1 bra B; @%p2 bra A; ") + end + " A: a; B: b; ret;");
    EXPECT_EQ(flow.reconverge[0], 4u) << end;
    EXPECT_EQ(flow.reconverge[1], kNone) << end;
  }
}

TEST(ControlFlow, EachRoleOfAKernelHasItsOwnPlaces) {
  const ControlFlow flow = flow_of_kernel(
      "@%p1 bra R2;\n"                                   // 0: roles that both return
      "@%p2 bra A; @%p3 bra C; ret; C: a; A: b; ret;\n"  // 1 .. 6
      "R2: @%p2 bra D; c; D: d; e; ret;");               // 7 ..
  EXPECT_EQ(flow.reconverge[0], kNone);
  EXPECT_EQ(flow.reconverge[1], 5u);
  EXPECT_EQ(flow.reconverge[2], kNone);
  EXPECT_EQ(flow.reconverge[7], 9u);
}

TEST(ControlFlow, LanesDoNotMeetOnlyToEnd) {
  EXPECT_EQ(flow_of_kernel("@%p1 bra E; a; E: ret;").reconverge[0], kNone);
  EXPECT_EQ(flow_of_kernel("@%p1 bra E; a; E:").reconverge[0], kNone);
  EXPECT_EQ(flow_of_kernel("@%p1 bra E; a; E: b; ret;").reconverge[0], 2u);
}

TEST(ControlFlow, FunctionsMeetAtTheirEnd) {
  const ControlFlow flow = flow_of_function("@%p1 bra A; a; ret; A: b; @%p2 ret; c; ret;");
  const uint32_t end = 7;
  EXPECT_EQ(flow.reconverge[0], end);
  EXPECT_EQ(flow.reconverge[4], end);
  const ControlFlow dying = flow_of_function("@%p1 bra A; exit; A: b; ret;");
  EXPECT_EQ(dying.reconverge[0], kNone);
}

TEST(ControlFlow, EndlessLoops) {
  const ControlFlow flow = flow_of_kernel("a; L: @%p1 bra A; b; A: c; @%p2 exit; bra L;");
  EXPECT_EQ(flow.reconverge[1], 3u);
  // Whatever parts in a round meets at the next one.
  const ControlFlow bare = flow_of_kernel("a; L: @%p1 bra A; b; bra L; A: c; bra L;");
  EXPECT_EQ(bare.reconverge[1], 1u);
  const ControlFlow self = flow_of_kernel("L: bra L;");
  EXPECT_EQ(self.reconverge[0], kNone);
}

TEST(ControlFlow, IrreducibleLoops) {
  // Two ways into one loop.
  const ControlFlow flow = flow_of_kernel("@%p1 bra B; A: a; B: b; @%p2 bra A; c; ret;");
  EXPECT_EQ(flow.reconverge[0], 2u);
  const ControlFlow two =
      flow_of_kernel("@%p1 bra B; A: a; @%p2 bra OUT; B: b; bra A; OUT: c; ret;");
  EXPECT_EQ(two.reconverge[0], 1u);
  EXPECT_EQ(two.reconverge[2], 5u);
}

TEST(ControlFlow, UnreachableCodeAndEmptyFunctions) {
  const ControlFlow flow = flow_of_kernel("ret; @%p1 bra A; a; A: b; ret;");
  EXPECT_EQ(flow.reconverge[1], kNone);
  EXPECT_EQ(flow.block_of.size(), 5u);
  EXPECT_EQ(flow_of_kernel("").blocks.size(), 1u);
}

TEST(ControlFlow, ABranchToTheNextStatement) {
  EXPECT_EQ(flow_of_kernel("@%p1 bra A; A: a; ret;").reconverge[0], 1u);
}

TEST(ControlFlow, TimeIsNearLinear) {
  // A ladder of branches, each out of the rest, and a loop around all: bad for simple iteration.
  std::string body = "TOP: a;\n";
  constexpr int kRungs = 30000;
  for (int i = 0; i < kRungs; ++i) {
    const std::string n = std::to_string(i);
    body += "@%p1 bra L" + std::to_string(i / 2) + "; L" + n + ": a; @%p2 bra E" + n + ";\n";
  }
  body += "@%p3 bra TOP;\n";
  for (int i = kRungs; i-- > 0;) body += "E" + std::to_string(i) + ": a;\n";
  const auto module = parse_body(body + "ret;");
  const clock_t begin = clock();
  const ControlFlow flow = analyze(module->functions[0]);
  EXPECT_LT(static_cast<double>(clock() - begin) / CLOCKS_PER_SEC, 2.0);
  EXPECT_GT(flow.blocks.size(), size_t{kRungs});
}

// What dominators are, straight from the definition: d dominates n when n is not reached without d.
std::vector<uint32_t> slow_dominators(const Graph& graph) {
  const auto reached_without = [&](uint32_t removed) {
    std::vector<bool> seen(graph.size(), false);
    std::vector<uint32_t> queue;
    if (removed != 0) queue.push_back(0), seen[0] = true;
    while (!queue.empty()) {
      const uint32_t n = queue.back();
      queue.pop_back();
      for (uint32_t e = graph.first[n]; e < graph.first[n + 1]; ++e) {
        const uint32_t next = graph.edges[e];
        if (next != removed && !seen[next]) seen[next] = true, queue.push_back(next);
      }
    }
    return seen;
  };
  const std::vector<bool> reached = reached_without(kNoNode);
  std::vector<std::vector<uint32_t>> dominators(graph.size());
  for (uint32_t d = 0; d < graph.size(); ++d) {
    const std::vector<bool> without = reached_without(d);
    for (uint32_t n = 0; n < graph.size(); ++n) {
      if (n != d && reached[n] && reached[d] && !without[n]) dominators[n].push_back(d);
    }
  }
  // The immediate one is dominated by all the others.
  std::vector<uint32_t> result(graph.size(), kNoNode);
  for (uint32_t n = 0; n < graph.size(); ++n) {
    for (const uint32_t d : dominators[n]) {
      if (dominators[d].size() + 1 == dominators[n].size()) result[n] = d;
    }
  }
  return result;
}

TEST(Dominators, AgreeWithTheirDefinitionOnRandomGraphs) {
  std::mt19937 random(7);
  for (int round = 0; round < 400; ++round) {
    const uint32_t nodes = 1 + random() % 14;
    std::vector<std::pair<uint32_t, uint32_t>> edges;
    for (uint32_t i = random() % (3 * nodes); i > 0; --i) {
      const uint32_t from = random() % nodes;
      edges.push_back({from, static_cast<uint32_t>(random() % nodes)});
    }
    const Graph graph = Graph::from_pairs(nodes, edges);
    EXPECT_EQ(immediate_dominators(graph), slow_dominators(graph)) << "round " << round;
  }
}

TEST(Dominators, ComponentsComeSuccessorsFirst) {
  std::mt19937 random(8);
  for (int round = 0; round < 200; ++round) {
    const uint32_t nodes = 1 + random() % 12;
    std::vector<std::pair<uint32_t, uint32_t>> edges;
    for (uint32_t i = random() % (2 * nodes); i > 0; --i) {
      const uint32_t from = random() % nodes;
      edges.push_back({from, static_cast<uint32_t>(random() % nodes)});
    }
    const Graph graph = Graph::from_pairs(nodes, edges);
    const Components components = strong_components(graph);
    // reach[a][b]: a leads to b.
    std::vector<std::vector<bool>> reach(nodes, std::vector<bool>(nodes, false));
    for (uint32_t n = 0; n < nodes; ++n) reach[n][n] = true;
    for (const auto& [a, b] : edges) reach[a][b] = true;
    for (uint32_t k = 0; k < nodes; ++k) {
      for (uint32_t a = 0; a < nodes; ++a) {
        for (uint32_t b = 0; b < nodes; ++b) {
          if (reach[a][k] && reach[k][b]) reach[a][b] = true;
        }
      }
    }
    for (uint32_t a = 0; a < nodes; ++a) {
      EXPECT_EQ(components.of[a] != kNoNode, reach[0][a]);
      for (uint32_t b = 0; b < nodes; ++b) {
        if (!reach[0][a] || !reach[0][b]) continue;
        EXPECT_EQ(components.of[a] == components.of[b], reach[a][b] && reach[b][a]);
        if (reach[a][b]) {
          EXPECT_GE(components.of[a], components.of[b]);
        }
      }
    }
  }
}

TEST(ControlFlow, EveryWayCanComeToThePlaceInRandomKernels) {
  std::mt19937 random(9);
  for (int round = 0; round < 300; ++round) {
    const int count = 3 + static_cast<int>(random() % 16);
    std::string body;
    for (int i = 0; i < count; ++i) {
      body += "L" + std::to_string(i) + ": ";
      const std::string to = "L" + std::to_string(random() % static_cast<uint32_t>(count));
      const uint32_t kind = random() % 10;
      body += kind < 4   ? "@%p1 bra " + to + ";"
              : kind < 5 ? "bra " + to + ";"
              : kind < 6 ? std::string("ret;")
                         : std::string("a;");
      body += "\n";
    }
    const ControlFlow flow = flow_of_kernel(body + "b; ret;");
    for (uint32_t s = 0; s < flow.reconverge.size(); ++s) {
      const uint32_t place = flow.reconverge[s];
      if (place == kNone) continue;
      // From each way, the place can be reached.
      const ControlFlow::Block& block = flow.blocks[flow.block_of[s]];
      for (uint32_t e = block.first_successor; e < block.last_successor; ++e) {
        std::vector<bool> seen(flow.blocks.size(), false);
        std::vector<uint32_t> queue{flow.successors[e]};
        seen[queue[0]] = true;
        bool found = false;
        while (!queue.empty()) {
          const uint32_t b = queue.back();
          queue.pop_back();
          if (flow.blocks[b].begin == place) {
            found = true;
            continue;
          }
          for (uint32_t i = flow.blocks[b].first_successor; i < flow.blocks[b].last_successor;
               ++i) {
            const uint32_t next = flow.successors[i];
            if (!seen[next]) seen[next] = true, queue.push_back(next);
          }
        }
        EXPECT_TRUE(found) << body << "\nstatement " << s << " meets at " << place;
      }
    }
  }
}

}  // namespace
}  // namespace ptxemu
