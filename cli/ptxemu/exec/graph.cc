#include "ptxemu/exec/graph.h"

#include <algorithm>
#include <set>

namespace ptxemu::exec {

GraphNode* Graph::add(int type, std::function<int()> work, std::vector<GraphNode*> before) {
  nodes.push_back(std::make_unique<GraphNode>(GraphNode{type, std::move(work), std::move(before)}));
  return nodes.back().get();
}

GraphNode* Graph::add(KernelWork work, std::vector<GraphNode*> before) {
  GraphNode* node = add(GraphNode::kKernel, {}, std::move(before));
  node->kernel = std::move(work);
  return node;
}

GraphNode* Graph::append(int type, std::function<int()> work) {
  std::vector<GraphNode*> before;
  if (!nodes.empty()) before.push_back(nodes.back().get());
  return add(type, std::move(work), std::move(before));
}

GraphNode* Graph::append(KernelWork work, const void* stream) {
  GraphNode* last = nodes.empty() ? nullptr : nodes.back().get();
  GraphNode* node = append(GraphNode::kKernel, {});
  const bool follows = last != nullptr && last->kernel && last->stream == stream;
  if (follows && work.shape.programmatic) node->beside.push_back(last);
  node->kernel = std::move(work);
  node->stream = stream;
  return node;
}

std::vector<GraphNode*> Graph::in_order() const {
  std::vector<GraphNode*> order;
  std::set<const GraphNode*> done;
  while (order.size() < nodes.size()) {
    const size_t before = order.size();
    for (const auto& node : nodes) {
      const auto is_done = [&](const GraphNode* other) { return done.count(other) != 0; };
      if (is_done(node.get())) continue;
      if (!std::all_of(node->before.begin(), node->before.end(), is_done)) continue;
      done.insert(node.get());
      order.push_back(node.get());
    }
    if (order.size() == before) break;  // a circle
  }
  return order;
}

GraphProgram::GraphProgram(const Graph& graph) {
  const GraphNode* last_kernel = nullptr;
  for (const GraphNode* node : graph.in_order()) {
    const auto& beside = node->beside;
    const bool beside_last = std::find(beside.begin(), beside.end(), last_kernel) != beside.end();
    steps.push_back({node, node->type, node->work, node->kernel, beside_last});
    if (node->kernel || node->type == GraphNode::kGraph) last_kernel = node;
  }
}

int GraphProgram::Step::run() const {
  if (kernel) return Gpu::get().run(*kernel, beside_last);
  return work ? work() : int{kSuccess};
}

int GraphProgram::run() const {
  for (const Step& step : steps) {
    if (const int status = step.run(); status != kSuccess) return status;
  }
  return kSuccess;
}

Stream* stream_of(void* handle) {
  constexpr uintptr_t kNamedStreams = 2;  // 1: the legacy one, 2: the thread's own
  return reinterpret_cast<uintptr_t>(handle) <= kNamedStreams ? nullptr
                                                              : static_cast<Stream*>(handle);
}

Graph* captured_by(void* stream) {
  const Stream* known = stream_of(stream);
  return known == nullptr ? nullptr : known->captured.get();
}

}  // namespace ptxemu::exec
