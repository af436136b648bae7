// Causal attention from C++, step by step. Every query is 0 here, so that row i is the mean of the
// i + 1 values that it sees: i / 2.
#include <fa4/attention.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

int main() {
  constexpr int kRows = 64, kHeads = 4, kDim = 32;
  std::vector<float> q(kRows * kHeads * kDim), k(q), v(q), out(q);
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i / (kHeads * kDim));
  try {
    fa4::Problem problem;  // shapes are (batch, seqlen, heads, head_dim)
    problem.dtype = FA4_F32;
    problem.batch = 1;
    problem.seqlen_q = problem.seqlen_k = kRows;
    problem.heads_q = problem.heads_kv = kHeads;
    problem.head_dim = kDim;
    problem.causal = 1;

    // On a GPU: "cuda:0", 16-bit tensors and a workspace in its memory (examples/gpu.cc).
    fa4::Device device("cpu");
    fa4::Plan plan(device, problem);  // pure, microseconds
    fa4::ForwardOp attention(plan);   // compiles, loads, starts threads: once
    fa4::ForwardArgs args;
    args.q = q.data(), args.k = k.data(), args.v = v.data(), args.out = out.data();
    args.workspace_bytes = plan.workspace_bytes();
    std::unique_ptr<void, decltype(&std::free)> workspace(
        std::aligned_alloc(256, plan.workspace_bytes()), std::free);
    args.workspace = workspace.get();
    attention.execute(args);  // any number of times, from any thread
  } catch (const fa4::Error& error) {
    std::fprintf(stderr, "%s: %s\n", error.status_name(), error.what());
    return 1;
  }
  std::printf("out[row 63] = %g\n", out.back());
  return out.back() > 31.499f && out.back() < 31.501f ? 0 : 1;
}
