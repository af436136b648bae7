#include "emulator/isa/control_flow.h"

#include <algorithm>

#include "emulator/isa/meetings.h"

namespace ptxemu {
namespace {

bool has_word(const Statement& statement, std::string_view word) {
  const auto& words = statement.words;
  return std::find(words.begin(), words.end(), word) != words.end();
}

// What a statement does to the flow of a thread.
struct Flow {
  std::vector<uint32_t> targets;  // statements, without the next one
  bool continues = true;          // the next statement may follow
  bool may_part = false;
  bool ends_block = false;
};

Flow flow_of(const Function& function, const Statement& statement) {
  Flow flow;
  const std::string_view word = statement.words[0];
  const bool is_guarded = statement.guard.present;
  const uint32_t end = static_cast<uint32_t>(function.statements.size());
  if (word == "bra" || word == "brx") {
    for (const Operand& operand : statement.operands) {
      if (operand.kind == Operand::Kind::kLabel) flow.targets.push_back(operand.index);
      if (operand.kind == Operand::Kind::kTargets) {
        const auto& list = function.targets[operand.index].statements;
        flow.targets.insert(flow.targets.end(), list.begin(), list.end());
      }
    }
    flow.continues = is_guarded;
    flow.may_part = !has_word(statement, "uni") && (is_guarded || word == "brx");
    flow.ends_block = true;
  } else if (word == "ret" && !function.is_entry) {
    flow.targets.push_back(end);
    flow.continues = is_guarded;
    flow.may_part = is_guarded && !has_word(statement, "uni");
    flow.ends_block = true;
  } else if (word == "ret" || word == "exit" || word == "trap") {
    flow.continues = is_guarded;
    flow.ends_block = true;
  }
  return flow;
}

void find_blocks(const Function& function, const std::vector<Flow>& flows, ControlFlow* result) {
  const uint32_t count = static_cast<uint32_t>(function.statements.size());
  std::vector<uint8_t> begins(count + 1, 0);
  begins[0] = begins[count] = 1;
  for (uint32_t s = 0; s < count; ++s) {
    if (flows[s].ends_block) begins[s + 1] = 1;
    for (const uint32_t target : flows[s].targets) begins[target] = 1;
  }
  result->block_of.resize(count);
  for (uint32_t s = 0; s <= count; ++s) {
    if (begins[s]) result->blocks.push_back({s, s, 0, 0});
    if (s == count) break;
    result->block_of[s] = static_cast<uint32_t>(result->blocks.size() - 1);
    result->blocks.back().end = s + 1;
  }
}

void find_successors(const std::vector<Flow>& flows, ControlFlow* result) {
  const uint32_t count = static_cast<uint32_t>(flows.size());
  const auto block_at = [&](uint32_t s) {
    return s == count ? result->end_block() : result->block_of[s];
  };
  for (ControlFlow::Block& block : result->blocks) {
    block.first_successor = static_cast<uint32_t>(result->successors.size());
    if (block.begin < block.end) {
      const Flow& last = flows[block.end - 1];
      for (const uint32_t target : last.targets) result->successors.push_back(block_at(target));
      if (last.continues) result->successors.push_back(block_at(block.end));
      const auto first = result->successors.begin() + block.first_successor;
      std::sort(first, result->successors.end());
      result->successors.erase(std::unique(first, result->successors.end()),
                               result->successors.end());
    }
    block.last_successor = static_cast<uint32_t>(result->successors.size());
  }
}

// Whether threads that come to the block end there at once, so that they need not meet.
bool ends_at_once(const Function& function, const std::vector<Flow>& flows,
                  const ControlFlow::Block& block) {
  if (block.begin == flows.size()) return function.is_entry;
  const Flow& first = flows[block.begin];
  return first.ends_block && !first.continues && first.targets.empty();
}

}  // namespace

Graph ControlFlow::graph() const {
  Graph graph;
  graph.first.reserve(blocks.size() + 1);
  for (const Block& block : blocks) graph.first.push_back(block.first_successor);
  graph.first.push_back(static_cast<uint32_t>(successors.size()));
  graph.edges = successors;
  return graph;
}

ControlFlow analyze(const Function& function) {
  ControlFlow result;
  const uint32_t count = static_cast<uint32_t>(function.statements.size());
  std::vector<Flow> flows;
  flows.reserve(count);
  for (const Statement& statement : function.statements) {
    flows.push_back(flow_of(function, statement));
  }
  find_blocks(function, flows, &result);
  find_successors(flows, &result);
  const Meetings meetings = find_meetings(result.graph());
  result.reconverge.assign(count, kNoReconvergence);
  for (uint32_t b = 0; b + 1 < result.blocks.size(); ++b) {
    const ControlFlow::Block& block = result.blocks[b];
    if (!flows[block.end - 1].may_part || meetings.place[b] == kNoNode) continue;
    uint32_t going_on = 0;
    for (uint32_t i = block.first_successor; i < block.last_successor; ++i) {
      going_on += meetings.exit[result.successors[i]] == meetings.exit[b];
    }
    if (going_on < std::min(2u, block.last_successor - block.first_successor)) continue;
    const ControlFlow::Block& place = result.blocks[meetings.place[b]];
    if (ends_at_once(function, flows, place)) continue;
    result.reconverge[block.end - 1] = place.begin;
  }
  return result;
}

}  // namespace ptxemu
