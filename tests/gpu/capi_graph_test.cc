// The C ABI on a real GPU, through libfa4.so and the driver alone: graphs, capture, threads.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fa4/attention.h"

namespace {

// What the test itself needs of the driver, opened at run time.
struct Driver {
  using Pointer = unsigned long long;
  int (*init)(unsigned) = nullptr;
  int (*device_get)(int*, int) = nullptr;
  int (*primary_retain)(void**, int) = nullptr;
  int (*set_current)(void*) = nullptr;
  int (*allocate)(Pointer*, size_t) = nullptr;
  int (*free)(Pointer) = nullptr;
  int (*to_device)(Pointer, const void*, size_t) = nullptr;
  int (*to_host)(void*, Pointer, size_t) = nullptr;
  int (*set)(Pointer, unsigned char, size_t) = nullptr;
  int (*stream_create)(void**, unsigned) = nullptr;
  int (*stream_destroy)(void*) = nullptr;
  int (*stream_synchronize)(void*) = nullptr;
  int (*begin_capture)(void*, int) = nullptr;
  int (*end_capture)(void*, void**) = nullptr;
  int (*graph_nodes)(void*, void**, size_t*) = nullptr;
  int (*instantiate)(void**, void*, unsigned long long) = nullptr;
  int (*graph_launch)(void*, void*) = nullptr;
  void* context = nullptr;
  std::string problem;

  Driver() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) {
      problem = "no CUDA driver (libcuda.so.1) on this machine";
      return;
    }
    resolve(library, init, "cuInit");
    resolve(library, device_get, "cuDeviceGet");
    resolve(library, primary_retain, "cuDevicePrimaryCtxRetain");
    resolve(library, set_current, "cuCtxSetCurrent");
    resolve(library, allocate, "cuMemAlloc_v2");
    resolve(library, free, "cuMemFree_v2");
    resolve(library, to_device, "cuMemcpyHtoD_v2");
    resolve(library, to_host, "cuMemcpyDtoH_v2");
    resolve(library, set, "cuMemsetD8_v2");
    resolve(library, stream_create, "cuStreamCreate");
    resolve(library, stream_destroy, "cuStreamDestroy_v2");
    resolve(library, stream_synchronize, "cuStreamSynchronize");
    resolve(library, begin_capture, "cuStreamBeginCapture_v2");
    resolve(library, end_capture, "cuStreamEndCapture");
    resolve(library, graph_nodes, "cuGraphGetNodes");
    resolve(library, instantiate, "cuGraphInstantiateWithFlags");
    resolve(library, graph_launch, "cuGraphLaunch");
    int device = 0;
    if (!problem.empty() || init(0) != 0 || device_get(&device, 0) != 0 ||
        primary_retain(&context, device) != 0) {
      if (problem.empty()) problem = "the CUDA driver lists no usable GPU";
    }
  }

  template <class Function>
  void resolve(void* library, Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function == nullptr) problem = std::string("the CUDA driver has no ") + name;
  }
};

const Driver& driver() {
  static const Driver instance;
  return instance;
}

// Device memory with the test's own pointer.
class Memory {
 public:
  explicit Memory(size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    EXPECT_EQ(driver().allocate(&pointer_, bytes), 0);
    EXPECT_EQ(driver().set(pointer_, 0, bytes), 0);
  }
  explicit Memory(const std::vector<uint16_t>& values) : Memory(values.size() * 2) {
    EXPECT_EQ(driver().to_device(pointer_, values.data(), bytes_), 0);
  }
  ~Memory() {
    if (bytes_ > 0) driver().free(pointer_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* data() const { return reinterpret_cast<void*>(pointer_); }
  size_t bytes() const { return bytes_; }
  // The fill runs in the default stream, which a non-blocking one does not wait for.
  void clear() {
    EXPECT_EQ(driver().set(pointer_, 0, bytes_), 0);
    EXPECT_EQ(driver().stream_synchronize(nullptr), 0);
  }
  std::vector<uint16_t> read() const {
    std::vector<uint16_t> values(bytes_ / 2);
    EXPECT_EQ(driver().to_host(values.data(), pointer_, bytes_), 0);
    return values;
  }

 private:
  Driver::Pointer pointer_ = 0;
  size_t bytes_ = 0;
};

constexpr int64_t kBatch = 2, kSeqlen = 1000, kHeadsQ = 8, kHeadsKV = 2, kHeadDim = 128;

fa4::Problem make_problem() {
  fa4::Problem problem;
  problem.dtype = FA4_BF16;
  problem.batch = kBatch;
  problem.seqlen_q = problem.seqlen_k = kSeqlen;
  problem.heads_q = kHeadsQ;
  problem.heads_kv = kHeadsKV;
  problem.head_dim = kHeadDim;
  problem.causal = 1;
  return problem;
}

std::vector<uint16_t> bf16_values(int64_t heads, uint32_t seed) {
  std::vector<uint16_t> values(static_cast<size_t>(kBatch * kSeqlen * heads * kHeadDim));
  for (uint16_t& value : values) {
    seed = seed * 1664525u + 1013904223u;
    const float number = static_cast<float>(seed >> 8) / 8388608.0f - 1.0f;
    uint32_t bits = 0;
    std::memcpy(&bits, &number, 4);
    value = static_cast<uint16_t>(bits >> 16);
  }
  return values;
}

float to_float(uint16_t bf16) {
  const uint32_t bits = static_cast<uint32_t>(bf16) << 16;
  float number = 0;
  std::memcpy(&number, &bits, 4);
  return number;
}

class GpuCapi : public testing::Test {
 protected:
  void SetUp() override {
    if (!driver().problem.empty()) GTEST_SKIP() << driver().problem;
    ASSERT_EQ(driver().set_current(driver().context), 0);
    device_ = std::make_unique<fa4::Device>("cuda:0");
    const std::optional<std::string> reason = fa4::unsupported_reason(*device_, make_problem());
    if (reason.has_value()) GTEST_SKIP() << *reason;
    plan_ = std::make_unique<fa4::Plan>(*device_, make_problem());
    op_ = std::make_unique<fa4::ForwardOp>(*plan_);
  }

  // The outputs and workspace of one caller.
  struct Outputs {
    explicit Outputs(size_t workspace_bytes)
        : out(static_cast<size_t>(kBatch * kSeqlen * kHeadsQ * kHeadDim * 2)),
          lse(static_cast<size_t>(kBatch * kSeqlen * kHeadsQ * 4)),
          workspace(workspace_bytes) {}
    Memory out, lse, workspace;
  };

  fa4::ForwardArgs args_of(const Outputs& outputs, void* stream) const {
    fa4::ForwardArgs args;
    args.q = q_->data();
    args.k = k_->data();
    args.v = v_->data();
    args.out = outputs.out.data();
    args.lse = static_cast<float*>(outputs.lse.data());
    args.workspace = outputs.workspace.data();
    args.workspace_bytes = outputs.workspace.bytes();
    args.stream = stream;
    return args;
  }

  void upload() {
    q_ = std::make_unique<Memory>(bf16_values(kHeadsQ, 1));
    k_ = std::make_unique<Memory>(bf16_values(kHeadsKV, 2));
    v_ = std::make_unique<Memory>(bf16_values(kHeadsKV, 3));
  }

  std::vector<uint16_t> run_once() {
    Outputs outputs(plan_->workspace_bytes());
    op_->execute(args_of(outputs, nullptr));
    EXPECT_EQ(driver().stream_synchronize(nullptr), 0);
    return outputs.out.read();
  }

  std::unique_ptr<fa4::Device> device_;
  std::unique_ptr<fa4::Plan> plan_;
  std::unique_ptr<fa4::ForwardOp> op_;
  std::unique_ptr<Memory> q_, k_, v_;
};

TEST_F(GpuCapi, AgreesWithTheCpu) {
  upload();
  const std::vector<uint16_t> gpu = run_once();
  const std::vector<uint16_t> q = bf16_values(kHeadsQ, 1), k = bf16_values(kHeadsKV, 2),
                              v = bf16_values(kHeadsKV, 3);
  std::vector<uint16_t> cpu(gpu.size());
  fa4::ForwardArgs args;
  args.q = q.data();
  args.k = k.data();
  args.v = v.data();
  args.out = cpu.data();
  fa4::forward(fa4::Device("cpu"), make_problem(), args);
  float worst = 0;
  for (size_t i = 0; i < cpu.size(); ++i) {
    worst = std::max(worst, std::abs(to_float(cpu[i]) - to_float(gpu[i])));
  }
  EXPECT_LT(worst, 0.02f);
  EXPECT_NE(gpu, std::vector<uint16_t>(gpu.size()));
}

TEST_F(GpuCapi, AGraphReplaysTheSameBits) {
  upload();
  const std::vector<uint16_t> direct = run_once();
  Outputs outputs(plan_->workspace_bytes());
  void* stream = nullptr;
  ASSERT_EQ(driver().stream_create(&stream, 1), 0);  // non-blocking
  ASSERT_EQ(driver().begin_capture(stream, 0), 0);   // global: unsafe calls of any thread fail
  const fa4::ForwardArgs args = args_of(outputs, stream);
  EXPECT_EQ(fa4_execute(op_->get(), &args), FA4_OK) << fa4_last_error();
  void* graph = nullptr;
  ASSERT_EQ(driver().end_capture(stream, &graph), 0) << "execute broke the capture";
  size_t nodes = 0;
  ASSERT_EQ(driver().graph_nodes(graph, nullptr, &nodes), 0);
  EXPECT_GE(nodes, 1u);
  EXPECT_EQ(outputs.out.read(), std::vector<uint16_t>(direct.size())) << "ran during the capture";
  void* executable = nullptr;
  ASSERT_EQ(driver().instantiate(&executable, graph, 0), 0);
  for (int replay = 0; replay < 2; ++replay) {
    outputs.out.clear();
    ASSERT_EQ(driver().graph_launch(executable, stream), 0);
    ASSERT_EQ(driver().stream_synchronize(stream), 0);
    EXPECT_EQ(outputs.out.read(), direct) << "replay " << replay;
  }
  driver().stream_destroy(stream);
}

// More problems than a device keeps operations of, in one graph that outlives all of them.
TEST_F(GpuCapi, AGraphOfManyProblemsOutlivesTheirOperationsAndTheDevice) {
  constexpr int kProblems = 70;
  upload();
  const auto problem_of = [](int i) {
    fa4::Problem problem = make_problem();
    problem.seqlen_q = problem.seqlen_k = kSeqlen - i;
    problem.causal = i % 2;
    return problem;
  };
  void* stream = nullptr;
  ASSERT_EQ(driver().stream_create(&stream, 1), 0);  // non-blocking
  std::vector<std::unique_ptr<Outputs>> outputs;
  const auto enqueue = [&](int i) {
    const fa4::Problem problem = problem_of(i);
    const fa4::ForwardArgs args = args_of(*outputs[i], stream);
    ASSERT_EQ(fa4_forward(device_->get(), &problem, &args), FA4_OK) << fa4_last_error();
  };
  std::vector<std::vector<uint16_t>> direct;
  for (int i = 0; i < kProblems; ++i) {
    const fa4::Plan plan(*device_, problem_of(i));
    outputs.push_back(std::make_unique<Outputs>(plan.workspace_bytes()));
    outputs[i]->out.clear();  // rows past a shorter sequence's end are not written
    enqueue(i);
    ASSERT_EQ(driver().stream_synchronize(stream), 0);
    direct.push_back(outputs[i]->out.read());
    outputs[i]->out.clear();
  }
  ASSERT_EQ(driver().begin_capture(stream, 0), 0);  // global: unsafe calls of any thread fail
  for (int i = 0; i < kProblems; ++i) enqueue(i);
  void* graph = nullptr;
  ASSERT_EQ(driver().end_capture(stream, &graph), 0) << "a call broke the capture";
  void* executable = nullptr;
  ASSERT_EQ(driver().instantiate(&executable, graph, 0), 0);
  op_.reset();
  plan_.reset();
  device_.reset();
  for (int replay = 0; replay < 2; ++replay) {
    ASSERT_EQ(driver().graph_launch(executable, stream), 0);
    ASSERT_EQ(driver().stream_synchronize(stream), 0);
    for (int i = 0; i < kProblems; ++i) {
      ASSERT_EQ(outputs[i]->out.read(), direct[i]) << "problem " << i << ", replay " << replay;
      outputs[i]->out.clear();
    }
  }
  driver().stream_destroy(stream);
}

// Kernels without a tile counter start before the last one has ended (programmatic dependent
// launch).
TEST_F(GpuCapi, ACallSeesWhatTheOneBeforeItWrote) {
  upload();
  fa4::Problem problem = make_problem();
  problem.causal = 0;
  const fa4::Plan plan(*device_, problem);
  ASSERT_EQ(plan.workspace_bytes(), 0u);
  const fa4::ForwardOp op(plan);
  const auto chain = [&](bool synchronise) {
    const Memory x(bf16_values(kHeadsQ, 4));
    const Outputs y(0);
    fa4::ForwardArgs args = args_of(y, nullptr);
    args.q = x.data();
    for (int step = 0; step < 3; ++step) {  // later ones hardly differ: all rows near v's mean
      op.execute(args);
      if (synchronise) {
        EXPECT_EQ(driver().stream_synchronize(nullptr), 0);
      }
      const void* read = args.q;
      args.q = args.out;
      args.out = const_cast<void*>(read);
    }
    EXPECT_EQ(driver().stream_synchronize(nullptr), 0);
    return std::pair(x.read(), y.out.read());
  };
  const auto expected = chain(true);
  for (int round = 0; round < 50; ++round) ASSERT_EQ(chain(false), expected) << "round " << round;
}

TEST_F(GpuCapi, ALoadIsRefusedDuringACaptureAndDoesNotBreakIt) {
  fa4::Problem other = make_problem();
  other.softcap = 30;  // a kernel that no other test here loads
  const fa4::Plan unloaded(*device_, other);
  void* stream = nullptr;
  ASSERT_EQ(driver().stream_create(&stream, 0), 0);  // blocking: the legacy stream knows of it
  ASSERT_EQ(driver().begin_capture(stream, 1), 0);   // thread-local
  fa4_op* op = nullptr;
  EXPECT_EQ(fa4_prepare(unloaded.get(), &op), FA4_STREAM_CAPTURE) << fa4_last_error();
  EXPECT_EQ(fa4_prepare(plan_->get(), &op), FA4_OK) << "its kernel is loaded: " << fa4_last_error();
  void* graph = nullptr;
  EXPECT_EQ(driver().end_capture(stream, &graph), 0);
  fa4_destroy_op(op);
  driver().stream_destroy(stream);
}

TEST_F(GpuCapi, EightThreadsShareOneOperation) {
  upload();
  const std::vector<uint16_t> direct = run_once();
  std::vector<std::vector<uint16_t>> results(8);
  std::vector<std::thread> threads;
  for (std::vector<uint16_t>& result : results) {
    threads.emplace_back([&] {
      driver().set_current(driver().context);
      Outputs outputs(plan_->workspace_bytes());
      void* stream = nullptr;
      EXPECT_EQ(driver().stream_create(&stream, 1), 0);
      for (int round = 0; round < 5; ++round) op_->execute(args_of(outputs, stream));
      EXPECT_EQ(driver().stream_synchronize(stream), 0);
      result = outputs.out.read();
      driver().stream_destroy(stream);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<uint16_t>& result : results) EXPECT_EQ(result, direct);
}

}  // namespace
