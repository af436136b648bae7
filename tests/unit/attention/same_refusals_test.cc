// What a GPU and the CPU refuse: the same, in the same words, but for what TMA adds.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "attention/forward_op.h"
#include "core/error.h"
#include "counting_driver.h"
#include "device/cuda/cuda_device.h"
#include "idle_gpu.h"

namespace fa4::internal {
namespace {

constexpr int64_t kBatch = 2, kSeqlen = 256, kHeads = 2, kHeadDim = 64;
constexpr size_t kElements = kBatch * kSeqlen * kHeads * kHeadDim;

template <class T>
class Aligned {
 public:
  explicit Aligned(size_t count) : memory_((count + 2) * sizeof(T) + 255) {}
  T* data() {
    const auto at = reinterpret_cast<uintptr_t>(memory_.data());
    return reinterpret_cast<T*>((at + 255) / 256 * 256);
  }

 private:
  std::vector<unsigned char> memory_;
};

template <class T>
T* misaligned(T* pointer) {
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(pointer) + 1);
}

// One problem's arguments: host memory, which the GPU that runs nothing takes too.
struct Arguments {
  Aligned<uint16_t> q{kElements}, k{kElements}, v{kElements}, out{kElements};
  Aligned<float> lse{kBatch * kSeqlen * kHeads}, sink{kHeads};
  Aligned<int32_t> cu_seqlens_q{3}, cu_seqlens_k{3}, seqused{kBatch}, pages{4};
  Aligned<unsigned char> workspace{size_t{1} << 24};
  ProblemDesc desc;
  ForwardArgs args;

  Arguments(Layout layout_q, Layout layout_kv) {
    desc.batch = kBatch;
    desc.seqlen_q = desc.seqlen_k = kSeqlen;
    desc.heads_q = desc.heads_kv = kHeads;
    desc.head_dim = kHeadDim;
    desc.layout_q = layout_q;
    desc.layout_kv = layout_kv;
    desc.total_q = desc.total_k = kBatch * kSeqlen;
    args.q = q.data();
    args.k = k.data();
    args.v = v.data();
    args.out = out.data();
    args.lse = lse.data();
    args.workspace = workspace.data();
    for (int32_t* rows : {cu_seqlens_q.data(), cu_seqlens_k.data()}) {
      for (int32_t b = 0; b <= kBatch; ++b) rows[b] = b * static_cast<int32_t>(kSeqlen);
    }
    if (layout_q == Layout::kPacked) args.cu_seqlens_q = cu_seqlens_q.data();
    if (layout_kv == Layout::kPacked) args.cu_seqlens_k = cu_seqlens_k.data();
  }

  void announce_sink() {
    desc.has_sink = true;
    args.sink = sink.data();
  }
  void announce_seqused() {
    desc.has_seqused_k = true;
    args.seqused_k = seqused.data();
  }
};

using Change = std::function<void(Arguments&)>;

class SameRefusals : public testing::Test {
 protected:
  void SetUp() override {
    try {
      outcome(Layout::kDense, Layout::kDense, gpu_->spec(), [](Arguments&) {});
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCompiler) throw;
      GTEST_SKIP() << error.what();
    }
  }

  // What executing says: "accepted", or the error.
  std::string outcome(Layout layout_q, Layout layout_kv, const DeviceSpec& device,
                      const Change& change) const {
    Arguments arguments(layout_q, layout_kv);
    change(arguments);
    const ForwardPlan plan = plan_forward(AttentionProblem::make(arguments.desc), device);
    const auto op = prepare(plan, device.kind == DeviceKind::kCpu ? nullptr : gpu_);
    if (arguments.args.workspace_bytes == 0)
      arguments.args.workspace_bytes = plan.workspace.bytes();
    try {
      op->execute(arguments.args);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
      const std::string text = error.what();  // with addresses, which differ
      const size_t address = text.find("0x");
      if (address == std::string::npos) return text;
      return text.substr(0, address) + text.substr(text.find(' ', address) + 1);
    }
    return "accepted";
  }

  void expect(const std::string& wanted, Layout layout_q, Layout layout_kv, const Change& change) {
    EXPECT_EQ(outcome(layout_q, layout_kv, host_cpu_spec(), change), wanted) << "on the CPU";
    EXPECT_EQ(outcome(layout_q, layout_kv, gpu_->spec(), change), wanted) << "on a GPU";
  }
  void dense(const std::string& wanted, const Change& change) {
    expect(wanted, Layout::kDense, Layout::kDense, change);
  }
  void packed(const std::string& wanted, const Change& change) {
    expect(wanted, Layout::kPacked, Layout::kPacked, change);
  }

  static inline const DriverApi api_ = counting_driver(idle_gpu<9>());
  std::shared_ptr<Device> gpu_ = std::make_shared<CudaDevice>(api_, 0);
};

// Threads copy the rows of small pages, 16 bytes at a time; TMA those of larger ones.
TEST_F(SameRefusals, PagesOfAGpuBeginAtMultiplesOf16Bytes) {
  for (const int64_t page_size : {4, 16}) {
    const auto refusal = [&](const Change& change) {
      return outcome(Layout::kDense, Layout::kPaged, gpu_->spec(), [&](Arguments& a) {
        a.desc.page_size = page_size;
        a.desc.pages_per_seq = kSeqlen / page_size;
        a.desc.num_pages = kBatch * kSeqlen / page_size;
        a.announce_seqused();
        a.args.page_table = a.pages.data();
        change(a);
      });
    };
    EXPECT_EQ(refusal([](Arguments&) {}), "accepted");
    EXPECT_EQ(refusal([](Arguments& a) { a.args.k = a.k.data() + 4; }),
              "k accepted on a GPU: multiples of 16 bytes");
    EXPECT_EQ(refusal([](Arguments& a) { a.args.v = a.v.data() + 4; }),
              "v accepted on a GPU: multiples of 16 bytes");
  }
}

TEST_F(SameRefusals, TensorsOfFourBytesAreAligned) {
  dense("lse is misaligned; accepted: multiples of 4",
        [](Arguments& a) { a.args.lse = misaligned(a.args.lse); });
  dense("sink is misaligned; accepted: multiples of 4", [](Arguments& a) {
    a.announce_sink();
    a.args.sink = misaligned(a.args.sink);
  });
  dense("seqused_k is misaligned; accepted: multiples of 4", [](Arguments& a) {
    a.announce_seqused();
    a.args.seqused_k = misaligned(a.args.seqused_k);
  });
  packed("cu_seqlens_q is misaligned; accepted: multiples of 4",
         [](Arguments& a) { a.args.cu_seqlens_q = misaligned(a.args.cu_seqlens_q); });
  packed("cu_seqlens_k is misaligned; accepted: multiples of 4",
         [](Arguments& a) { a.args.cu_seqlens_k = misaligned(a.args.cu_seqlens_k); });
}

TEST_F(SameRefusals, WhatTheProblemDidNotAnnounceIsNotGiven) {
  dense("sink is given, but the problem has no sink; accepted: NULL",
        [](Arguments& a) { a.args.sink = a.sink.data(); });
  dense("seqused_k is given, but the problem has no seqused_k; accepted: NULL",
        [](Arguments& a) { a.args.seqused_k = a.seqused.data(); });
  dense("page_table is given, but the problem has no paged k; accepted: NULL",
        [](Arguments& a) { a.args.page_table = a.pages.data(); });
  dense("cu_seqlens_q is given, but the problem has no packed q; accepted: NULL",
        [](Arguments& a) { a.args.cu_seqlens_q = a.cu_seqlens_q.data(); });
}

TEST_F(SameRefusals, WhatIsReadIsGiven) {
  dense("q is NULL; accepted: a pointer to 2 x 256 x 2 x 64 elements",
        [](Arguments& a) { a.args.q = nullptr; });
  dense("v is NULL; accepted: a pointer to 2 x 256 x 2 x 64 elements",
        [](Arguments& a) { a.args.v = nullptr; });
  packed("cu_seqlens_k is NULL; accepted: a pointer, as the problem has packed k",
         [](Arguments& a) { a.args.cu_seqlens_k = nullptr; });
}

TEST_F(SameRefusals, TotalsConcernTheSidesThatArePacked) {
  const Change both = [](Arguments& a) { a.args.total_q = a.args.total_k = kBatch * kSeqlen; };
  expect("accepted", Layout::kDense, Layout::kPacked, both);
  expect("accepted", Layout::kPacked, Layout::kDense, both);
  packed("total_q 513; accepted: 0 to 512",
         [](Arguments& a) { a.args.total_q = kBatch * kSeqlen + 1; });
  packed("total_k 513; accepted: 0 to 512",
         [](Arguments& a) { a.args.total_k = kBatch * kSeqlen + 1; });
}

TEST_F(SameRefusals, WhatLiesBehindThePlannedWorkspaceIsNotItsOwn) {
  const Change arena = [](Arguments& a) {  // out lies at the end of the announced workspace
    a.args.workspace_bytes = size_t{1} << 24;
    a.args.out = a.workspace.data() + a.args.workspace_bytes - kElements * 2;
  };
  dense("accepted", arena);
  const auto causal = [&](Arguments& a) {
    a.desc.causal = true;
    arena(a);
  };
  dense("accepted", causal);
}

}  // namespace
}  // namespace fa4::internal
