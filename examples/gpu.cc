// Causal attention on a GPU, from C++: 16-bit tensors and a workspace in the GPU's memory, and a
// launch on a stream. The result is held to the bounds of docs/api.md, "How accurate", by the CPU's
// on the same inputs.
//
//   gpu [DEVICE]   cuda:0, ..., emulated:h200, emulated:b200; default: the first GPU, or where
//   there
//                  is none the emulated H200. Exit status 0: within the bounds, 1: not, or an
//                  error, 2: there is no such device, or no NVRTC for a kernel that is not
//                  prebuilt.
#include <fa4/attention.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr int kRows = 128, kHeadsQ = 4, kHeadsKv = 2, kDim = 64;
constexpr int kElements = kRows * kHeadsQ * kDim, kKeyElements = kRows * kHeadsKv * kDim;
using Tensor = std::vector<float>;   // (1, seqlen, heads, head_dim)
using Bf16 = std::vector<uint16_t>;  // the same, as the GPU takes it

uint16_t to_bf16(float x) {  // to nearest even; x is no NaN
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
float from_bf16(uint16_t x) {
  const uint32_t bits = uint32_t{x} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
float rounded(double x) { return from_bf16(to_bf16(static_cast<float>(x))); }

Bf16 narrowed(const Tensor& x) {
  Bf16 result(x.size());
  std::transform(x.begin(), x.end(), result.begin(), to_bf16);
  return result;
}

// Numbers that bf16 holds.
Tensor random_tensor(std::mt19937& generator, int elements) {
  std::normal_distribution<float> normal;
  Tensor x(elements);
  for (float& e : x) e = rounded(normal(generator));
  return x;
}

// Memory of a GPU. An engine has its own, from cudaMalloc or an allocator over it.
class GpuMemory {
 public:
  GpuMemory(const fa4::Device& device, size_t bytes) : device_(device.get()) {
    fa4::check(fa4_device_alloc(device_, bytes, &data_));
  }
  GpuMemory(const fa4::Device& device, const Bf16& from) : GpuMemory(device, 2 * from.size()) {
    fa4::check(fa4_device_copy(device_, data_, from.data(), 2 * from.size(), FA4_TO_DEVICE));
  }
  ~GpuMemory() { fa4_device_free(device_, data_); }
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;
  void* data() const { return data_; }
  // Waits for what the stream was given before.
  void fetch(void* to, size_t bytes) const {
    fa4::check(fa4_device_copy(device_, to, data_, bytes, FA4_TO_HOST));
  }

 private:
  fa4_device* device_;
  void* data_ = nullptr;
};

struct Inputs {
  Tensor q, k, v;
};
struct Result {
  Tensor out, lse;  // lse (1, heads, seqlen)
};

fa4::Problem problem_of(int32_t dtype) {
  fa4::Problem problem;
  problem.dtype = dtype;
  problem.batch = 1;
  problem.seqlen_q = problem.seqlen_k = kRows;
  problem.heads_q = kHeadsQ, problem.heads_kv = kHeadsKv;
  problem.head_dim = kDim;
  problem.causal = 1;
  return problem;
}

Result run_on_gpu(const fa4::Device& device, const Inputs& inputs) {
  const fa4::Plan plan(device, problem_of(FA4_BF16));
  const fa4::ForwardOp attention(plan);  // compiles the kernel unless it is prebuilt, and loads it
  const GpuMemory q(device, narrowed(inputs.q)), k(device, narrowed(inputs.k));
  const GpuMemory v(device, narrowed(inputs.v));
  const GpuMemory out(device, 2 * kElements), lse(device, 4 * kRows * kHeadsQ);
  const GpuMemory workspace(device, plan.workspace_bytes());

  fa4::ForwardArgs args;
  args.q = q.data(), args.k = k.data(), args.v = v.data();
  args.out = out.data(), args.lse = static_cast<float*>(lse.data());
  args.workspace = workspace.data(), args.workspace_bytes = plan.workspace_bytes();
  args.stream = nullptr;    // the default stream; else a CUstream or cudaStream_t
  attention.execute(args);  // returns when the work is enqueued

  Bf16 narrow(kElements);
  Result result{Tensor(kElements), Tensor(kRows * kHeadsQ)};
  out.fetch(narrow.data(), 2 * kElements);
  lse.fetch(result.lse.data(), 4 * kRows * kHeadsQ);
  std::transform(narrow.begin(), narrow.end(), result.out.begin(), from_bf16);
  std::printf("%s\n", plan.kernel_name().c_str());
  return result;
}

// The CPU, in f32: what the GPU's result is compared with.
Result run_on_cpu(const Inputs& inputs) {
  Result result{Tensor(kElements), Tensor(kRows * kHeadsQ)};
  fa4::ForwardArgs args;
  args.q = inputs.q.data(), args.k = inputs.k.data(), args.v = inputs.v.data();
  args.out = result.out.data(), args.lse = result.lse.data();
  fa4::forward(fa4::Device("cpu"), problem_of(FA4_F32), args);
  return result;
}

// Plain attention in bf16: scores, probabilities and out each rounded. The bounds are twice its
// error.
Tensor run_plainly(const Inputs& inputs, const Tensor& lse) {
  Tensor out(kElements);
  for (int i = 0; i < kRows; ++i) {
    for (int h = 0; h < kHeadsQ; ++h) {
      const int kv = h / (kHeadsQ / kHeadsKv);
      double sums[kDim] = {};
      for (int j = 0; j <= i; ++j) {
        double score = 0;
        for (int d = 0; d < kDim; ++d) {
          score += double{inputs.q[(i * kHeadsQ + h) * kDim + d]} *
                   inputs.k[(j * kHeadsKv + kv) * kDim + d];
        }
        score = rounded(score / std::sqrt(double{kDim}));
        const float weight = rounded(std::exp(score - lse[h * kRows + i]));
        for (int d = 0; d < kDim; ++d) {
          sums[d] += double{weight} * inputs.v[(j * kHeadsKv + kv) * kDim + d];
        }
      }
      for (int d = 0; d < kDim; ++d) out[(i * kHeadsQ + h) * kDim + d] = rounded(sums[d]);
    }
  }
  return out;
}

double larger(double a, double b) { return a >= b || std::isnan(a) ? a : b; }

// One of the rules: its error and the most that it may be.
bool holds(const char* rule, double error, double bound) {
  std::printf("%-12s error %.2e, bound %.2e\n", rule, error, bound);
  return error <= bound;  // false for a NaN
}

bool is_accurate(const Result& got, const Result& ref, const Tensor& plain) {
  bool good = true;
  double error = 0, plain_error = 0, ulp = 0, lse_share = 0;
  for (int i = 0; i < kElements; ++i) {
    const double x = ref.out[i];
    error = larger(error, std::fabs(got.out[i] - x));
    plain_error = std::max(plain_error, std::fabs(plain[i] - x));
    ulp = std::max(ulp, 2 * std::fabs(rounded(rounded(x + 0.3) - 0.3) - x));
  }
  good &= holds("out", error, 2 * plain_error + ulp);
  for (int h = 0; h < kHeadsQ; ++h) {  // a block of 128 rows each
    double squares = 0, plain_squares = 0, ref_squares = 0;
    for (int i = 0; i < kRows; ++i) {
      for (int d = 0; d < kDim; ++d) {
        const int at = (i * kHeadsQ + h) * kDim + d;
        squares += std::pow(got.out[at] - ref.out[at], 2);
        plain_squares += std::pow(plain[at] - ref.out[at], 2);
        ref_squares += std::pow(ref.out[at], 2);
      }
    }
    constexpr double kMean = 1.0 / (kRows * kDim), kRounding = 0x1p-9;
    good &=
        holds("out, a head", std::sqrt(squares * kMean),
              2 * std::sqrt(plain_squares * kMean) + kRounding * std::sqrt(ref_squares * kMean));
  }
  // Of the exponential that differs most from the true one, that of sm_100a.
  constexpr double kExponential = 8.6e-5;
  for (int i = 0; i < kRows * kHeadsQ; ++i) {
    const double bound = 1e-5 * std::max(1.0, std::fabs(double{ref.lse[i]})) + kExponential;
    lse_share = larger(lse_share, std::fabs(double{got.lse[i]} - ref.lse[i]) / bound);
  }
  return holds("lse, share", lse_share, 1) && good;
}

std::string default_device() {
  for (const fa4::DeviceInfo& info : fa4::devices()) {
    if (info.kind == FA4_DEVICE_CUDA) return info.name;
  }
  std::printf("no GPU here: the kernel runs on the emulated H200\n");
  return "emulated:h200";
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string name = argc > 1 ? argv[1] : default_device();
  const fa4::Device device(name);
  std::mt19937 generator(1);
  const Inputs inputs{random_tensor(generator, kElements), random_tensor(generator, kKeyElements),
                      random_tensor(generator, kKeyElements)};
  std::printf("%s: ", name.c_str());
  const Result got = run_on_gpu(device, inputs), ref = run_on_cpu(inputs);
  const bool good = is_accurate(got, ref, run_plainly(inputs, ref.lse));
  std::printf("%s\n", good ? "within the bounds" : "NOT within the bounds");
  return good ? 0 : 1;
} catch (const fa4::Error& error) {
  std::fprintf(stderr, "%s: %s\n", error.status_name(), error.what());
  return error.status() == FA4_DEVICE_UNAVAILABLE || error.status() == FA4_COMPILER ? 2 : 1;
}
