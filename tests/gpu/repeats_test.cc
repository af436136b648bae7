// Deterministic backwards on a real GPU, over and over: every repeat has the bits of the first,
// alone and beside a second stream whose operations take SMs away and give them back. A kernel
// compares each repeat on the GPU, which therefore never waits for the host.
//
// FA4_TEST_REPEATS, 1 to 1000000, is the number of repeats of each test; 30 when it is not set.
// Before a release, and after a change of a backward's order of work: 10000.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attention/backward_op.h"
#include "attention/forward_op.h"
#include "device/cuda/driver_api.h"
#include "jit/nvrtc_compiler.h"
#include "verify/cases.h"

namespace fa4::internal {
namespace {

// `first` keeps the lowest word that differs, and what was found there: one minimum for both.
constexpr const char* kSource = R"(#pragma once
struct Params {
  const unsigned* expected;
  const unsigned* found;
  unsigned long long* first;
  unsigned words;
};
extern "C" __global__ void first_difference(const __grid_constant__ Params p) {
  const unsigned threads = gridDim.x * blockDim.x;
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < p.words; i += threads) {
    if (p.expected[i] != p.found[i]) {
      atomicMin(p.first, static_cast<unsigned long long>(i) << 32 | p.found[i]);
    }
  }
}
)";
struct Params {
  const void* expected;
  const void* found;
  uint64_t* first;
  uint32_t words;
};
const EmbeddedFile kFiles[] = {{"kernels/test/differences.cuh", kSource, std::strlen(kSource)}};
constexpr uint64_t kNone = ~uint64_t{0};

int repeats() {
  constexpr long kDefault = 30, kMost = 1000000;
  const char* text = std::getenv("FA4_TEST_REPEATS");
  if (text == nullptr) return kDefault;
  char* end = nullptr;
  const long count = std::strtol(text, &end, 10);
  if (end != text && *end == '\0' && count >= 1 && count <= kMost) return static_cast<int>(count);
  ADD_FAILURE() << "FA4_TEST_REPEATS: " << text << "; accepted: 1 to " << kMost;
  return kDefault;
}

class Stream {
 public:
  explicit Stream(Device& device) : device_(device), stream_(device.create_stream()) {}
  ~Stream() { device_.destroy_stream(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  void* get() const { return stream_; }
  void synchronize() const { device_.synchronize(stream_); }

 private:
  Device& device_;
  void* stream_;
};

// Copies of host memory on the device.
class Uploads {
 public:
  explicit Uploads(Device& device) : device_(device) {}
  template <class T>
  T* copy(T* host, int64_t count, int element_bytes) {
    if (host == nullptr) return nullptr;
    const size_t bytes = static_cast<size_t>(count * element_bytes);
    buffers_.emplace_back(device_, bytes);
    device_.copy_to_device(buffers_.back().data(), host, bytes);
    return static_cast<T*>(buffers_.back().data());
  }

 private:
  Device& device_;
  std::vector<Buffer> buffers_;
};

// A forward whose values nobody reads.
class OtherForward {
 public:
  OtherForward(const std::shared_ptr<Device>& device, const ProblemDesc& desc)
      : problem_(AttentionProblem::make(desc)),
        op_(prepare(plan_forward(problem_, device->spec()), device)) {
    const TensorExtents extents = extents_of(problem_);
    const auto memory = [&](size_t bytes) {
      buffers_.emplace_back(*device, bytes);
      device->fill(buffers_.back().data(), 0x3c, bytes);  // every bf16 is 0.0115
      return buffers_.back().data();
    };
    args_.q = memory(static_cast<size_t>(extents.q) * 2);
    args_.k = memory(static_cast<size_t>(extents.k) * 2);
    args_.v = memory(static_cast<size_t>(extents.v) * 2);
    args_.out = memory(static_cast<size_t>(extents.out) * 2);
    args_.workspace_bytes = op_->plan().workspace.bytes();
    if (args_.workspace_bytes > 0) args_.workspace = memory(args_.workspace_bytes);
  }
  void enqueue(void* stream) {
    args_.stream = stream;
    op_->execute(args_);
  }

 private:
  AttentionProblem problem_;
  std::shared_ptr<const ForwardOp> op_;
  std::vector<Buffer> buffers_;
  ForwardArgs args_;
};

// Forwards in a stream of their own, in turn one on about half of an H200's SMs and one on all of
// them: each takes longer than a backward of these tests, so that the stream never runs dry.
class BusyStream {
 public:
  explicit BusyStream(const std::shared_ptr<Device>& device)
      : stream_(*device), half_(device, half()), whole_(device, whole()) {
    for (int i = 0; i < 4; ++i) enqueue();
  }
  ~BusyStream() { stream_.synchronize(); }
  // Waits when the driver's queue is full.
  void enqueue() { (++count_ % 2 == 0 ? half_ : whole_).enqueue(stream_.get()); }

 private:
  static ProblemDesc half() {
    ProblemDesc desc;
    desc.batch = desc.heads_q = desc.heads_kv = 1;
    desc.seqlen_q = 8192;
    desc.seqlen_k = 65536;
    desc.head_dim = 128;
    return desc;
  }
  static ProblemDesc whole() {
    ProblemDesc desc;
    desc.batch = 8;
    desc.heads_q = desc.heads_kv = 16;
    desc.seqlen_q = desc.seqlen_k = 4096;
    desc.head_dim = 128;
    desc.causal = true;
    return desc;
  }

  Stream stream_;
  OtherForward half_, whole_;
  int count_ = 0;
};

// A backward with everything that it reads on the device, its gradients in one block.
class RepeatedBackward {
 public:
  RepeatedBackward(const std::shared_ptr<Device>& device, const Case& c)
      : device_(device),
        stream_(*device),
        tensors_(c, 4),
        problem_(tensors_.problem()),
        op_(prepare(plan_backward(problem_, device->spec()), device)),
        uploads_(*device) {
    upload();
    run_forward();
    const TensorExtents extents = extents_of(problem_);
    const int64_t elements[] = {extents.dq, extents.dk, extents.dv};
    for (const int64_t count : elements) {
      const size_t bytes = static_cast<size_t>(count) * size_of(problem_.grad_dtype);
      starts_.push_back(starts_.back() + (bytes + 255) / 256 * 256);
    }
    gradients_ = Buffer(*device_, starts_.back());
    expected_ = Buffer(*device_, starts_.back());
    auto* base = static_cast<unsigned char*>(gradients_.data());
    args_.dq = base + starts_[0];
    args_.dk = base + starts_[1];
    args_.dv = base + starts_[2];
    args_.workspace_bytes = op_->plan().workspace.bytes();
    workspace_ = Buffer(*device_, args_.workspace_bytes);
    device_->fill(workspace_.data(), 0xff, workspace_.bytes());
    args_.workspace = workspace_.data();
    args_.stream = stream_.get();
    const NvrtcCompiler compiler(open_nvrtc(nvrtc_candidates()), kFiles);
    compare_ = device_->load(
        compiler.compile({"test/differences.cuh", "first_difference", "first_difference"},
                         device_->spec().architecture, device_->image_kind()),
        0);
  }

  // The first run, alone: what the others must be.
  void expect_this() {
    run();
    host_.resize(expected_.bytes());
    stream_.synchronize();
    device_->copy_to_host(host_.data(), gradients_.data(), host_.size());
    device_->copy_to_device(expected_.data(), host_.data(), host_.size());
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(std::any_of(host_.begin() + static_cast<ptrdiff_t>(starts_[i]),
                              host_.begin() + static_cast<ptrdiff_t>(starts_[i + 1]),
                              [](unsigned char byte) { return byte != 0; }))
          << kNames[i] << " is all 0";
    }
  }

  // Of `count` runs, the first in which a word is not as expected, in words; empty when none is.
  // `beside` enqueues what else the GPU does meanwhile.
  std::string repeat(int count, const std::function<void()>& beside) {
    const Buffer first(*device_, static_cast<size_t>(count) * sizeof(uint64_t));
    device_->fill(first.data(), 0xff, first.bytes());
    for (int i = 0; i < count; ++i) {
      beside();
      run();
      compare(static_cast<uint64_t*>(first.data()) + i);
    }
    stream_.synchronize();
    std::vector<uint64_t> differences(static_cast<size_t>(count));
    device_->copy_to_host(differences.data(), first.data(), first.bytes());
    const auto same = [](uint64_t difference) { return difference == kNone; };
    const auto wrong = std::find_if_not(differences.begin(), differences.end(), same);
    if (wrong == differences.end()) return {};
    const auto others = std::count_if(wrong + 1, differences.end(), std::not_fn(same));
    return fmt::format("repeat {}: {}; and {} later repeats differ", wrong - differences.begin(),
                       describe(*wrong), others);
  }

  // Makes a word of what is expected another, so that every run differs there.
  void expect_another_word(size_t byte) {
    device_->fill(static_cast<unsigned char*>(expected_.data()) + byte, 0x55, 4);
    std::memset(&host_[byte], 0x55, 4);
  }
  size_t start_of_dk() const { return starts_[1]; }

 private:
  static constexpr const char* kNames[] = {"dq", "dk", "dv"};

  void upload() {
    const AttentionProblem& p = problem_;
    const TensorExtents extents = extents_of(p);
    const int bytes = size_of(p.dtype);
    args_ = tensors_.backward_args();
    args_.q = uploads_.copy(args_.q, extents.q, bytes);
    args_.k = uploads_.copy(args_.k, extents.k, bytes);
    args_.v = uploads_.copy(args_.v, extents.v, bytes);
    args_.dout = uploads_.copy(args_.dout, extents.dout, bytes);
    args_.cu_seqlens_q = uploads_.copy(args_.cu_seqlens_q, p.batch + 1, 4);
    args_.cu_seqlens_k = uploads_.copy(args_.cu_seqlens_k, p.batch + 1, 4);
  }

  // out and lse, which the backward reads.
  void run_forward() {
    const auto forward = prepare(plan_forward(problem_, device_->spec()), device_);
    const size_t elements = static_cast<size_t>(extents_of(problem_).out);
    out_ = Buffer(*device_, elements * size_of(problem_.dtype));
    lse_ = Buffer(*device_, static_cast<size_t>(problem_.lse_elements()) * 4);
    ForwardArgs args;
    static_cast<SequenceArgs&>(args) = args_;
    args.q = args_.q;
    args.k = args_.k;
    args.v = args_.v;
    args_.out = args.out = out_.data();
    args_.lse = args.lse = static_cast<float*>(lse_.data());
    args.workspace_bytes = forward->plan().workspace.bytes();
    Buffer workspace;
    if (args.workspace_bytes > 0) workspace = Buffer(*device_, args.workspace_bytes);
    args.workspace = workspace.data();
    args.stream = stream_.get();
    forward->execute(args);
    stream_.synchronize();
  }

  // The gradients are cleared first: a run that writes nothing is none that has the same bits.
  void run() {
    device_->enqueue_zero(gradients_.data(), gradients_.bytes(), stream_.get());
    op_->execute(args_);
  }

  void compare(uint64_t* first) const {
    const Params params{expected_.data(), gradients_.data(), first,
                        static_cast<uint32_t>(gradients_.bytes() / 4)};
    LaunchConfig config;
    config.grid[0] = 264;
    config.block[0] = 256;
    compare_->launch(config, &params, sizeof params, stream_.get());
  }

  std::string describe(uint64_t difference) const {
    const size_t byte = static_cast<size_t>(difference >> 32) * 4;
    size_t tensor = 0;
    while (byte >= starts_[tensor + 1]) ++tensor;
    uint32_t expected = 0;
    std::memcpy(&expected, &host_[byte], 4);
    const int64_t heads = tensor == 0 ? problem_.heads_q : problem_.heads_kv;
    const int64_t dim = tensor == 2 ? problem_.head_dim_v : problem_.head_dim;
    const auto element =
        static_cast<int64_t>((byte - starts_[tensor]) / size_of(problem_.grad_dtype));
    return fmt::format(
        "{} element {} (row {}, head {}, column {}) and the next are {:#010x}, expected {:#010x}",
        kNames[tensor], element, element / dim / heads, element / dim % heads, element % dim,
        static_cast<uint32_t>(difference), expected);
  }

  std::shared_ptr<Device> device_;
  Stream stream_;
  CaseTensors tensors_;
  AttentionProblem problem_;
  std::shared_ptr<const BackwardOp> op_;
  Uploads uploads_;
  BackwardArgs args_;
  Buffer out_, lse_, gradients_, expected_, workspace_;
  std::vector<size_t> starts_ = {0};  // of dq, dk and dv, and the end of all
  std::vector<unsigned char> host_;   // what is expected
  std::unique_ptr<Kernel> compare_;
};

struct Named {
  const char* name;
  Case (*make)();
};
void PrintTo(const Named& named, std::ostream* stream) { *stream << named.name; }

// More CTAs than an H200 has SMs, and several blocks of keys for each block of queries.
Case dense(int64_t seqlen, int64_t heads_q, int64_t heads_kv, int64_t head_dim) {
  Case c;
  c.desc.batch = 2;
  c.desc.seqlen_q = c.desc.seqlen_k = seqlen;
  c.desc.heads_q = heads_q;
  c.desc.heads_kv = heads_kv;
  c.desc.head_dim = head_dim;
  c.desc.deterministic = true;
  c.seed = 23;
  return c;
}

Case full() { return dense(2048, 8, 8, 128); }

Case causal_grouped() {
  Case c = dense(1999, 32, 8, 64);
  c.desc.dtype = DType::kF16;
  c.desc.causal = true;
  return c;
}

Case packed_window() {
  Case c = dense(2048, 8, 4, 192);
  c.desc.head_dim_v = 128;
  c.desc.window = {700, 40};
  c.lengths_q = c.lengths_k = {1500, 77, 0, 2048, 1, 900};
  c.desc.layout_q = c.desc.layout_kv = Layout::kPacked;
  c.desc.batch = static_cast<int64_t>(c.lengths_q.size());
  c.desc.total_q = c.desc.total_k = 1500 + 77 + 2048 + 1 + 900;
  return c;
}

class GpuRepeats : public testing::TestWithParam<Named> {
 protected:
  void SetUp() override {
    if (Device::enumerate().empty()) {
      GTEST_SKIP() << (driver_api() == nullptr ? driver_problem() : "the driver lists no GPU");
    }
    if (!NvrtcCompiler::available()) GTEST_SKIP() << "NVRTC is not on this machine";
    device_ = Device::open("cuda:0");
    const Case c = GetParam().make();
    const AttentionProblem problem = AttentionProblem::make(c.desc);
    for (const Support& support : {query_support(problem, device_->spec()),
                                   query_backward_support(problem, device_->spec())}) {
      if (!support.supported) GTEST_SKIP() << support.reason;
    }
    backward_ = std::make_unique<RepeatedBackward>(device_, c);
    backward_->expect_this();
  }

  std::shared_ptr<Device> device_;
  std::unique_ptr<RepeatedBackward> backward_;
};

TEST_P(GpuRepeats, HaveTheSameBits) {
  EXPECT_EQ(backward_->repeat(repeats(), [] {}), "");
}

TEST_P(GpuRepeats, HaveTheSameBitsBesideABusyStream) {
  BusyStream other(device_);
  EXPECT_EQ(backward_->repeat(repeats(), [&] { other.enqueue(); }), "");
}

TEST_P(GpuRepeats, AreSeenToDiffer) {
  backward_->expect_another_word(backward_->start_of_dk() + 40);
  const std::string difference = backward_->repeat(2, [] {});
  EXPECT_EQ(difference.find("repeat 0: dk element 20 (row 0, head 0, column 20)"), 0u)
      << difference;
  EXPECT_NE(difference.find("; and 1 later repeats differ"), std::string::npos) << difference;
}

INSTANTIATE_TEST_SUITE_P(Backward, GpuRepeats,
                         testing::Values(Named{"Full", full},
                                         Named{"CausalGrouped", causal_grouped},
                                         Named{"PackedWindow", packed_window}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace fa4::internal
