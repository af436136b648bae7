// Context parallelism over NCCL: the GPUs of this machine, a thread each, against one of them.
#include <gtest/gtest.h>

#include "gpu_group.h"

namespace {

using namespace gpu_group;

struct Case {
  int64_t batch, seqlen, heads_q, heads_kv, head_dim, head_dim_v;
  int32_t causal;
  int64_t window_left;
  int32_t method, layout;
  bool captured = false;
  std::vector<int32_t> cu_seqlens = {};  // packed, of seqlen rows
  int32_t slices = 0;
};

fa4::Problem problem_of(const Case& c) {
  fa4::Problem problem;
  problem.dtype = FA4_BF16;
  problem.batch = c.batch;
  problem.seqlen_q = problem.seqlen_k = c.seqlen;
  problem.heads_q = c.heads_q;
  problem.heads_kv = c.heads_kv;
  problem.head_dim = c.head_dim;
  problem.head_dim_v = c.head_dim_v;
  problem.causal = c.causal;
  problem.has_window = c.window_left >= 0;
  problem.window_left = c.window_left;
  problem.window_right = -1;
  if (!c.cu_seqlens.empty()) {
    problem.layout_q = problem.layout_kv = FA4_PACKED;
    problem.batch = static_cast<int64_t>(c.cu_seqlens.size()) - 1;
    problem.total_q = problem.total_k = c.seqlen;
  }
  return problem;
}

HostTensors alone(const fa4::Problem& problem, const HostTensors& whole) {
  const fa4::Device device("cuda:0");
  const Stream stream(0);
  const fa4::Plan forward(device, problem);
  const fa4::Plan backward(device, problem, fa4::Direction::kBackward);
  const Attention attention(device, problem, tokens_of(problem), forward, backward, stream.get());
  attention.write(whole);
  attention.forward();
  attention.backward();
  stream.synchronize();
  return attention.read();
}

// Captures forward and backward once and launches the graph twice.
void run_captured(const Attention& attention, const Stream& stream) {
  void* graph = nullptr;
  void* executable = nullptr;
  void* const driver = stream.driver();
  stream.make_current();
  constexpr int kThreadLocal = 1;
  succeed(
      symbol<int (*)(void*, int)>(driver, "cuStreamBeginCapture_v2")(stream.get(), kThreadLocal),
      "cuStreamBeginCapture");
  attention.forward();
  attention.backward();
  succeed(symbol<int (*)(void*, void**)>(driver, "cuStreamEndCapture")(stream.get(), &graph),
          "cuStreamEndCapture");
  succeed(symbol<int (*)(void**, void*, unsigned long long)>(driver, "cuGraphInstantiateWithFlags")(
              &executable, graph, 0),
          "cuGraphInstantiateWithFlags");
  const auto launch = symbol<int (*)(void*, void*)>(driver, "cuGraphLaunch");
  for (int i = 0; i < 2; ++i) succeed(launch(executable, stream.get()), "cuGraphLaunch");
  stream.synchronize();
  symbol<int (*)(void*)>(driver, "cuGraphExecDestroy")(executable);
  symbol<int (*)(void*)>(driver, "cuGraphDestroy")(graph);
}

void run_case(const Case& c, int ranks, const NcclGroup& group) {
  const fa4::Problem problem = problem_of(c);
  HostTensors whole = random_tensors(problem);
  whole.cu_seqlens = c.cu_seqlens;
  const HostTensors wanted = alone(problem, whole);
  fa4::ContextParallelOptions options;
  options.method = c.method;
  options.layout = c.layout;
  options.slices = c.slices;
  const Ranks all = make_ranks(group, ranks, problem, options, whole);
  run_once(all);
  if (c.captured) {  // what a first exchange sets up is there
    on_ranks(ranks, [&](int rank) {
      const Rank& mine = *all[static_cast<size_t>(rank)];
      run_captured(mine.attention, mine.stream);
    });
  }
  const HostTensors got = gather(all, problem, whole);
  EXPECT_EQ(problem_of(got, wanted), "")
      << ranks << " ranks, method " << c.method << ", layout " << c.layout << ", heads "
      << c.heads_q << ":" << c.heads_kv << ", causal " << c.causal << ", slices " << c.slices;
}

TEST(ContextParallelNccl, IsTheAttentionOfOneGpu) {
  const int gpus = gpu_count();
  if (gpus == 0) GTEST_SKIP() << "no GPU on this machine";
  int ranks = 1;
  while (2 * ranks <= std::min(gpus, 8)) ranks *= 2;
  const NcclGroup group(ranks);
  for (const int32_t layout : {FA4_ZIGZAG, FA4_CONTIGUOUS}) {
    run_case({1, 4096, 16, 8, 128, 0, 1, -1, FA4_ALL_TO_ALL, layout}, ranks, group);
    run_case({2, 2048, 8, 8, 64, 0, 0, -1, FA4_ALL_TO_ALL, layout}, ranks, group);
    run_case({1, 2048, 8, 1, 128, 0, 1, -1, FA4_ALL_TO_ALL, layout}, ranks, group);  // f32 sums
    run_case({2, 1024, 8, 8, 192, 128, 1, 300, 0, layout}, ranks, group);
    run_case({1, 4096, 16, 8, 128, 0, 1, -1, FA4_ALL_GATHER, layout}, ranks, group);
    run_case({2, 2048, 6, 3, 64, 0, 0, -1, FA4_ALL_GATHER, layout}, ranks, group);
    run_case({2, 1024, 5, 1, 128, 0, 1, 300, 0, layout}, ranks, group);
    run_case({1, 4096, 16, 8, 128, 0, 1, -1, FA4_RING, layout, true}, ranks, group);
    run_case({2, 2048, 6, 3, 64, 0, 0, -1, FA4_RING, layout}, ranks, group);
    run_case({2, 1024, 5, 1, 128, 0, 1, 300, FA4_RING, layout}, ranks, group);
  }
  run_case({1, 4096, 16, 8, 128, 0, 1, -1, 0, FA4_ZIGZAG, false, {0, 700, 2049, 2050, 4096}}, ranks,
           group);
  for (const int32_t slices : {1, 2}) {
    run_case({1,
              4096,
              6,
              2,
              128,
              0,
              1,
              -1,
              FA4_ALL_GATHER,
              FA4_ZIGZAG,
              true,
              {0, 700, 2049, 2050, 4096},
              slices},
             ranks, group);
  }
  for (const int32_t method : {FA4_ALL_TO_ALL, FA4_ALL_GATHER}) {
    for (const int32_t slices : {1, 2, 4}) {
      const int64_t heads = 4 * ranks;
      run_case({1, 4096, heads, heads, 128, 0, 1, -1, method, FA4_ZIGZAG, true, {}, slices}, ranks,
               group);
      run_case({2, 2048, 2 * heads, heads, 64, 0, 0, -1, method, FA4_ZIGZAG, false, {}, slices},
               ranks, group);
    }
  }
}

TEST(ContextParallelNccl, NamesTheDeviceOfTheCommunicator) {
  const int gpus = gpu_count();
  if (gpus < 2) GTEST_SKIP() << gpus << " GPUs on this machine; this test takes 2";
  const NcclGroup group(2);
  const auto communicator = fa4::Communicator::of_nccl(group.comm(1));
  const fa4::Device device("cuda:0");
  try {
    const fa4::ContextParallelPlan plan(device, communicator,
                                        problem_of({1, 1024, 8, 8, 128, 0, 1, -1, 0, FA4_ZIGZAG}));
    ADD_FAILURE() << "planned";
  } catch (const fa4::Error& error) {
    EXPECT_NE(std::string(error.what()).find("NCCL communicator of cuda:1"), std::string::npos)
        << error.what();
  }
}

}  // namespace
