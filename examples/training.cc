// Training steps through attention, from C++: the forward with its lse, a loss, the backward, a
// step against the gradient. The gradient is checked first: the loss along it must change as it
// says.
#include <fa4/attention.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

namespace {

constexpr int kRows = 96, kHeads = 2, kDim = 32;
constexpr size_t kElements = static_cast<size_t>(kRows) * kHeads * kDim;
using Tensor = std::vector<float>;  // (1, seqlen, heads, head_dim)
using Memory = std::unique_ptr<void, decltype(&std::free)>;

Memory workspace_of(const fa4::Plan& plan) {
  return Memory(std::aligned_alloc(256, plan.workspace_bytes()), std::free);
}

struct Model {
  Tensor q, k, v;
};

// The loss is half the squared distance of out from a target.
class Step {
 public:
  Step(const fa4::Device& device, const fa4::Problem& problem, Tensor target)
      : forward_plan_(device, problem),
        backward_plan_(device, problem, fa4::Direction::kBackward),
        forward_(forward_plan_),
        backward_(backward_plan_),
        forward_workspace_(workspace_of(forward_plan_)),
        backward_workspace_(workspace_of(backward_plan_)),
        target_(std::move(target)),
        out_(kElements),
        dout_(kElements),
        lse_(kRows * kHeads) {}

  double loss(const Model& model) {
    fa4::ForwardArgs args;
    args.q = model.q.data(), args.k = model.k.data(), args.v = model.v.data();
    args.out = out_.data(), args.lse = lse_.data();  // the backward needs both
    args.workspace = forward_workspace_.get();
    args.workspace_bytes = forward_plan_.workspace_bytes();
    forward_.execute(args);
    double sum = 0;
    for (size_t i = 0; i < kElements; ++i) {
      dout_[i] = out_[i] - target_[i];
      sum += 0.5 * dout_[i] * dout_[i];
    }
    return sum;
  }

  // Of the model whose loss was asked last.
  Model gradient(const Model& model) {
    Model g{Tensor(kElements), Tensor(kElements), Tensor(kElements)};
    fa4::BackwardArgs args;
    args.q = model.q.data(), args.k = model.k.data(), args.v = model.v.data();
    args.out = out_.data(), args.lse = lse_.data(), args.dout = dout_.data();
    args.dq = g.q.data(), args.dk = g.k.data(), args.dv = g.v.data();
    args.workspace = backward_workspace_.get();
    args.workspace_bytes = backward_plan_.workspace_bytes();
    backward_.execute(args);
    return g;
  }

 private:
  fa4::Plan forward_plan_, backward_plan_;
  fa4::ForwardOp forward_;
  fa4::BackwardOp backward_;
  Memory forward_workspace_, backward_workspace_;
  Tensor target_, out_, dout_, lse_;
};

Model moved(const Model& model, const Model& along, float by) {
  Model to = model;
  for (size_t i = 0; i < kElements; ++i) {
    to.q[i] += by * along.q[i], to.k[i] += by * along.k[i], to.v[i] += by * along.v[i];
  }
  return to;
}

double squared_length(const Model& g) {
  double sum = 0;
  for (const Tensor* x : {&g.q, &g.k, &g.v}) {
    for (const float e : *x) sum += double{e} * e;
  }
  return sum;
}

Tensor random_tensor(std::mt19937& generator) {
  std::normal_distribution<float> normal;
  Tensor x(kElements);
  for (float& e : x) e = normal(generator);
  return x;
}

}  // namespace

int main() try {
  fa4::Problem problem;
  problem.dtype = FA4_F32;
  problem.batch = 1;
  problem.seqlen_q = problem.seqlen_k = kRows;
  problem.heads_q = problem.heads_kv = kHeads;
  problem.head_dim = kDim;
  problem.causal = 1;

  std::mt19937 generator(1);
  Model model{random_tensor(generator), random_tensor(generator), random_tensor(generator)};
  fa4::Device device("cpu");  // or "cuda:0", with tensors there and in 16 bits
  Step step(device, problem, random_tensor(generator));

  const double first = step.loss(model);
  Model g = step.gradient(model);
  // A step of `by` along the gradient changes the loss by `by` times its squared length.
  constexpr float kBy = 1e-3f;
  const double change = step.loss(moved(model, g, kBy)) - step.loss(moved(model, g, -kBy));
  const double ratio = change / (2 * kBy * squared_length(g));
  std::printf("loss %.4f; the loss along the gradient changes by %.5f of what it says\n", first,
              ratio);
  if (!(std::fabs(ratio - 1) < 1e-3)) return 1;

  double last = first;
  for (int i = 0; i < 20; ++i) {
    model = moved(model, g, -0.1f);
    last = step.loss(model);
    g = step.gradient(model);
  }
  std::printf("loss %.4f after 20 steps\n", last);
  return last < 0.9 * first ? 0 : 1;
} catch (const fa4::Error& error) {
  std::fprintf(stderr, "%s: %s\n", error.status_name(), error.what());
  return 1;
}
