// Graphs, and the streams and events that make them by capture. A graph's nodes run one after
// another, in an order that keeps their dependencies.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "ptxemu/exec/gpu.h"

namespace ptxemu::exec {

struct Graph;

// A kernel with its arguments as they were when its node was made.
struct KernelWork {
  KernelEntry* kernel = nullptr;
  LaunchShape shape;
  ArgumentBytes arguments;
};

struct GraphNode {
  enum Type : int {
    kKernel = 0,
    kMemcpy = 1,
    kMemset = 2,
    kHost = 3,
    kGraph = 4,
    kEmpty = 5,
  };
  int type = kEmpty;
  std::function<int()> work;       // of all but kernels
  std::vector<GraphNode*> before;  // what it comes after
  std::optional<KernelWork> kernel = {};
  std::vector<GraphNode*> beside = {};  // of `before`: kernels before whose end it may start
  const void* stream = nullptr;         // that it was captured from
};

struct Graph {
  std::vector<std::unique_ptr<GraphNode>> nodes;

  // A node after `before`.
  GraphNode* add(int type, std::function<int()> work, std::vector<GraphNode*> before);
  GraphNode* add(KernelWork work, std::vector<GraphNode*> before);
  // A node after all others, as capture makes them.
  GraphNode* append(int type, std::function<int()> work);
  // A programmatic kernel may start before the kernel that its stream has just captured ends.
  GraphNode* append(KernelWork work, const void* stream);
  std::vector<GraphNode*> in_order() const;
};

// What cudaGraphInstantiate makes: the nodes' work as it was then.
struct GraphProgram {
  struct Step {
    const GraphNode* node;
    int type;
    std::function<int()> work;
    std::optional<KernelWork> kernel;
    bool beside_last;  // may start before the kernel of the steps before it ends
    int run() const;
  };
  std::vector<Step> steps;
  explicit GraphProgram(const Graph& graph);
  int run() const;
};

struct Stream {
  unsigned flags = 0;
  int priority = 0;
  uint64_t id = 0;
  std::shared_ptr<Graph> captured;  // what it adds to while it is captured
  bool began = false;               // the capture, so that it ends there
};

struct Event {
  std::chrono::steady_clock::time_point at;
  std::weak_ptr<Graph> captured;  // recorded in a stream that was being captured
};

// The stream behind a handle; null for the two that have no object of their own.
Stream* stream_of(void* handle);
// The graph that work on this stream goes to; null: it is not captured.
Graph* captured_by(void* stream);

}  // namespace ptxemu::exec
