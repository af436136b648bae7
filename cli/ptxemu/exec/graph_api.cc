// Graphs made node by node, and their execution, of the runtime and of the driver (CUDA Runtime API
// and Driver API manuals, graph management).
#include <algorithm>
#include <cstring>

#include "ptxemu/exec/api.h"
#include "ptxemu/exec/cuda_types.h"
#include "ptxemu/exec/graph.h"

using namespace ptxemu::exec;

namespace {

Graph& graph_of(void* handle) { return *static_cast<Graph*>(handle); }

std::vector<GraphNode*> nodes_of(void* const* nodes, size_t count) {
  std::vector<GraphNode*> list;
  for (size_t i = 0; i < count; ++i) list.push_back(static_cast<GraphNode*>(nodes[i]));
  return list;
}

// What a kernel node runs from now on; its attributes stay as they are.
int set_kernel(const KernelNode& node, KernelWork* work) {
  KernelEntry* kernel = find_kernel(node.function);
  if (kernel == nullptr) return kInvalidDeviceFunction;
  if (node.extra != nullptr) return Gpu::missing("a kernel node with extra");
  ArgumentBytes bytes;
  const int status = Gpu::get().bind(*kernel, node.arguments, &bytes);
  if (status != kSuccess) return status;
  work->kernel = kernel;
  work->shape.grid = shape_of(node.grid);
  work->shape.block = shape_of(node.block);
  work->shape.shared_bytes = node.shared_bytes;
  work->arguments = std::move(bytes);
  return kSuccess;
}

int set_kernel(const KernelNode& node, std::optional<KernelWork>* work) {
  return *work ? set_kernel(node, &**work) : int{kInvalidValue};
}

std::function<int()> memset_work(const MemsetNode& node) {
  return [node] {
    for (size_t row = 0; row < node.height; ++row) {
      char* to = static_cast<char*>(node.to) + row * node.pitch;
      const int status = Gpu::get().fill(to, node.value, node.element_bytes, node.width, nullptr);
      if (status != kSuccess) return status;
    }
    return int{kSuccess};
  };
}

int copy_out(const std::vector<GraphNode*>& list, void** nodes, size_t* count) {
  if (nodes != nullptr) std::copy_n(list.begin(), std::min(*count, list.size()), nodes);
  *count = list.size();
  return kSuccess;
}

}  // namespace

CUDART int cudaGraphCreate(void** graph, unsigned) {
  *graph = new Graph;
  return kSuccess;
}
SAME_AS(cuGraphCreate, cudaGraphCreate);
CUDART int cudaGraphDestroy(void* graph) {
  delete static_cast<Graph*>(graph);
  return kSuccess;
}
SAME_AS(cuGraphDestroy, cudaGraphDestroy);

CUDART int cudaGraphAddKernelNode(void** node, void* graph, void* const* before, size_t count,
                                  const KernelNode* params) {
  KernelWork work;
  if (const int status = set_kernel(*params, &work); status != kSuccess) return kept(status);
  *node = graph_of(graph).add(std::move(work), nodes_of(before, count));
  return kSuccess;
}
CUDART int cudaGraphAddMemsetNode(void** node, void* graph, void* const* before, size_t count,
                                  const MemsetNode* params) {
  *node = graph_of(graph).add(GraphNode::kMemset, memset_work(*params), nodes_of(before, count));
  return kSuccess;
}
CUDART int cudaGraphAddMemcpyNode1D(void** node, void* graph, void* const* before, size_t count,
                                    void* to, const void* from, size_t bytes, int kind) {
  const auto work = [=] {
    return Gpu::get().copy(to, from, bytes, nullptr, static_cast<CopyKind>(kind));
  };
  *node = graph_of(graph).add(GraphNode::kMemcpy, work, nodes_of(before, count));
  return kSuccess;
}
CUDART int cudaGraphAddHostNode(void** node, void* graph, void* const* before, size_t count,
                                const HostNode* params) {
  const auto work = [host = *params] {
    host.function(host.data);
    return int{kSuccess};
  };
  *node = graph_of(graph).add(GraphNode::kHost, work, nodes_of(before, count));
  return kSuccess;
}
SAME_AS(cuGraphAddHostNode, cudaGraphAddHostNode);
CUDART int cudaGraphAddEmptyNode(void** node, void* graph, void* const* before, size_t count) {
  *node = graph_of(graph).add(GraphNode::kEmpty, {}, nodes_of(before, count));
  return kSuccess;
}
SAME_AS(cuGraphAddEmptyNode, cudaGraphAddEmptyNode);
CUDART int cudaGraphAddChildGraphNode(void** node, void* graph, void* const* before, size_t count,
                                      void* child) {
  const auto work = [program = GraphProgram(graph_of(child))] { return program.run(); };
  *node = graph_of(graph).add(GraphNode::kGraph, work, nodes_of(before, count));
  return kSuccess;
}
SAME_AS(cuGraphAddChildGraphNode, cudaGraphAddChildGraphNode);
// A programmatic edge: the kernel after it may start before the one in front of it ends.
CUDART int cudaGraphAddDependencies(void*, void* const* from, void* const* to,
                                    const GraphEdge* edges, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    auto* first = static_cast<GraphNode*>(from[i]);
    auto* second = static_cast<GraphNode*>(to[i]);
    const bool programmatic = edges != nullptr && edges[i].type == kProgrammaticEdge;
    if (programmatic && !(first->kernel && second->kernel)) return kept(kInvalidValue);
    second->before.push_back(first);
    if (programmatic) second->beside.push_back(first);
  }
  return kSuccess;
}
SAME_AS(cuGraphAddDependencies_v2, cudaGraphAddDependencies);
CUDART int cudaGraphGetNodes(void* graph, void** nodes, size_t* count) {
  return copy_out(graph_of(graph).in_order(), nodes, count);
}
SAME_AS(cuGraphGetNodes, cudaGraphGetNodes);
CUDART int cudaGraphGetRootNodes(void* graph, void** nodes, size_t* count) {
  std::vector<GraphNode*> roots = graph_of(graph).in_order();
  std::erase_if(roots, [](const GraphNode* node) { return !node->before.empty(); });
  return copy_out(roots, nodes, count);
}
SAME_AS(cuGraphGetRootNodes, cudaGraphGetRootNodes);
CUDART int cudaGraphNodeGetType(void* node, int* type) {
  *type = static_cast<GraphNode*>(node)->type;
  return kSuccess;
}
SAME_AS(cuGraphNodeGetType, cudaGraphNodeGetType);
CUDART int cudaGraphKernelNodeSetParams(void* node, const KernelNode* params) {
  return kept(set_kernel(*params, &static_cast<GraphNode*>(node)->kernel));
}

// --- Execution

CUDART int cudaGraphInstantiate(void** program, void* graph, unsigned long long) {
  *program = new GraphProgram(graph_of(graph));
  return kSuccess;
}
SAME_AS(cuGraphInstantiateWithFlags, cudaGraphInstantiate);
SAME_AS(cudaGraphInstantiateWithFlags, cudaGraphInstantiate);
CUDART int cudaGraphInstantiateWithParams(void** program, void* graph, void*) {
  return cudaGraphInstantiate(program, graph, 0);
}
SAME_AS(cuGraphInstantiateWithParams, cudaGraphInstantiateWithParams);
CUDART int cudaGraphLaunch(void* program, void* stream) {
  const auto* known = static_cast<GraphProgram*>(program);
  return kept(Gpu::get().enqueue(
      stream, [known] { return known->run(); }, GraphNode::kGraph));
}
SAME_AS(cuGraphLaunch, cudaGraphLaunch);
CUDART int cudaGraphUpload(void*, void*) { return kSuccess; }
SAME_AS(cuGraphUpload, cudaGraphUpload);
CUDART int cudaGraphExecDestroy(void* program) {
  delete static_cast<GraphProgram*>(program);
  return kSuccess;
}
SAME_AS(cuGraphExecDestroy, cudaGraphExecDestroy);
CUDART int cudaGraphExecKernelNodeSetParams(void* program, void* node, const KernelNode* params) {
  for (GraphProgram::Step& step : static_cast<GraphProgram*>(program)->steps) {
    if (step.node == node) return kept(set_kernel(*params, &step.kernel));
  }
  return kept(kInvalidValue);
}
// A graph of the same nodes in the same order takes the place of the one instantiated.
CUDART int cudaGraphExecUpdate(void* program, void* graph, int* result) {
  constexpr int kTopologyChanged = 2;
  auto& known = *static_cast<GraphProgram*>(program);
  GraphProgram now(graph_of(graph));
  const bool same =
      std::equal(known.steps.begin(), known.steps.end(), now.steps.begin(), now.steps.end(),
                 [](const auto& a, const auto& b) { return a.type == b.type; });
  if (result != nullptr) std::memset(result, 0, kGraphUpdateBytes);
  if (result != nullptr && !same) *result = kTopologyChanged;
  if (!same) return kept(kGraphUpdateFailure);
  for (size_t i = 0; i < now.steps.size(); ++i) {
    now.steps[i].node = known.steps[i].node;
    known.steps[i] = std::move(now.steps[i]);
  }
  return kSuccess;
}
SAME_AS(cuGraphExecUpdate_v2, cudaGraphExecUpdate);
