// What every backend promises beside accuracy: the same bits, nothing hidden leaks, NaN is not
// lost, and the path that was asked for is the one that ran.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "attention/forward_op.h"
#include "backends.h"
#include "execution.h"

namespace fa4::internal {
namespace {

constexpr int64_t kSeqlen = 700, kHeads = 2, kDim = 64;

Case causal_case(DType dtype) {
  Case c;
  c.desc.dtype = dtype;
  c.desc.batch = 1;
  c.desc.heads_q = c.desc.heads_kv = kHeads;
  c.desc.seqlen_q = c.desc.seqlen_k = kSeqlen;
  c.desc.head_dim = kDim;
  c.desc.causal = true;
  c.seed = 9;
  return c;
}

// k and v of a case, to change.
struct Changed {
  std::vector<unsigned char> k, v;
  ForwardArgs args;
  explicit Changed(const CaseTensors& tensors) : args(tensors.args()) {
    const TensorExtents extents = extents_of(tensors.problem());
    const size_t element = static_cast<size_t>(size_of(tensors.problem().dtype));
    const auto copy = [&](const void* data, int64_t count) {
      const auto* bytes = static_cast<const unsigned char*>(data);
      return std::vector<unsigned char>(bytes, bytes + static_cast<size_t>(count) * element);
    };
    k = copy(args.k, extents.k);
    v = copy(args.v, extents.v);
    args.k = k.data();
    args.v = v.data();
  }
};

size_t row_bytes(DType dtype) { return static_cast<size_t>(kHeads * kDim * size_of(dtype)); }

template <class Body>
void for_each_backend(DType dtype, const Body& body) {
  const CaseTensors tensors(causal_case(dtype));
  for (const Backend& backend : all_backends()) {
    if (!unsupported(backend, tensors.problem()).empty()) continue;
    SCOPED_TRACE(backend.name + ", " + std::string(name_of(dtype)));
    body(backend, tensors);
  }
}

TEST(Guarantees, SameInputSameBits) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    for_each_backend(dtype, [](const Backend& backend, const CaseTensors& tensors) {
      const Result first = run_on(backend, tensors.problem(), tensors.args(), 1);
      for (const int threads : {1, 2, 3, 7}) {
        const Result again = run_on(backend, tensors.problem(), tensors.args(), threads);
        EXPECT_EQ(first.out, again.out) << threads;
        EXPECT_EQ(first.lse, again.lse) << threads;
      }
    });
  }
}

TEST(Guarantees, HiddenFiniteValuesChangeNoBit) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    for_each_backend(dtype, [&](const Backend& backend, const CaseTensors& tensors) {
      const Result before = run_on(backend, tensors.problem(), tensors.args());
      for (const int64_t first_hidden : {1, 129, 300, 699}) {
        Changed changed(tensors);
        for (int64_t i = first_hidden * kHeads * kDim; i < kSeqlen * kHeads * kDim; ++i) {
          store_from_float(dtype, changed.k.data(), i, i % 2 == 0 ? 300.0f : -300.0f);
          store_from_float(dtype, changed.v.data(), i, 1000.0f);
        }
        const Result after = run_on(backend, tensors.problem(), changed.args);
        EXPECT_EQ(std::memcmp(before.out.data(), after.out.data(),
                              static_cast<size_t>(first_hidden) * row_bytes(dtype)),
                  0)
            << first_hidden;
        for (int64_t h = 0; h < kHeads; ++h) {
          EXPECT_EQ(std::memcmp(before.lse.data() + h * kSeqlen, after.lse.data() + h * kSeqlen,
                                static_cast<size_t>(first_hidden) * sizeof(float)),
                    0)
              << first_hidden;
        }
      }
    });
  }
}

// On the CPU exactly the rows that see a NaN have it; on a GPU also hidden rows of the same tile
// may.
TEST(Guarantees, NanReachesTheRowsThatSeeIt) {
  constexpr int64_t kAt = 333;
  for (const bool in_v : {false, true}) {
    for_each_backend(DType::kBF16, [&](const Backend& backend, const CaseTensors& tensors) {
      Changed changed(tensors);
      std::vector<unsigned char>& data = in_v ? changed.v : changed.k;
      store_from_float(DType::kBF16, data.data(), kAt * kHeads * kDim, std::nanf(""));
      const Result result = run_on(backend, tensors.problem(), changed.args);
      const int64_t tolerated = backend.is_gpu() ? result.tile_m : 0;
      for (int64_t m = 0; m < kSeqlen; ++m) {
        const float value = load_as_float(DType::kBF16, result.out.data(), m * kHeads * kDim);
        if (m >= kAt) {
          EXPECT_TRUE(std::isnan(value)) << m;
        } else if (m < kAt - tolerated) {
          EXPECT_FALSE(std::isnan(value)) << m;
        }
        const float other_head =
            load_as_float(DType::kBF16, result.out.data(), (m * kHeads + 1) * kDim);
        EXPECT_FALSE(std::isnan(other_head)) << m;
      }
    });
  }
}

TEST(Guarantees, InfinityInVReachesTheRowsThatSeeIt) {
  constexpr int64_t kAt = 333;
  for_each_backend(DType::kBF16, [&](const Backend& backend, const CaseTensors& tensors) {
    Changed changed(tensors);
    store_from_float(DType::kBF16, changed.v.data(), kAt * kHeads * kDim,
                     std::numeric_limits<float>::infinity());
    const Result result = run_on(backend, tensors.problem(), changed.args);
    for (int64_t m = kAt; m < kSeqlen; ++m) {
      const float value = load_as_float(DType::kBF16, result.out.data(), m * kHeads * kDim);
      EXPECT_FALSE(std::isfinite(value)) << m;
    }
  });
}

// Every path rounds in its own way: bits tell which one ran, and prepare() runs the planned one.
TEST(Guarantees, ThePathThatWasAskedForIsTheOneThatRan) {
  const CaseTensors tensors(causal_case(DType::kBF16));
  const AttentionProblem& p = tensors.problem();
  std::map<std::string, Result> results;
  for (const Backend& backend : all_backends()) {
    if (!backend.isa || !unsupported(backend, p).empty()) continue;
    Result result = run_on(backend, p, tensors.args());
    EXPECT_EQ("cpu " + result.kernel, backend.name);
    for (const auto& [name, other] : results) {
      // The model of AMX is AMX, bit by bit; AVX2 and AVX-512 may agree where both sum in f32.
      if (name == "cpu scalar") {
        EXPECT_NE(result.lse, other.lse) << backend.name;
      }
    }
    results.emplace(backend.name, std::move(result));
  }
  ASSERT_TRUE(results.contains("cpu scalar"));
  const cli::DeviceChoice cpu{host_cpu_spec(), nullptr};
  cli::Execution execution(p, cpu, 2);
  std::vector<unsigned char> out(results.at("cpu scalar").out.size());
  std::vector<float> lse(results.at("cpu scalar").lse.size());
  ForwardArgs args = tensors.args();
  args.out = out.data();
  args.lse = lse.data();
  execution.bind(args);
  execution.run();
  const Result& planned = results.at("cpu " + execution.kernel_name());
  EXPECT_EQ(out, planned.out);
  EXPECT_EQ(lse, planned.lse);
}

// A GPU result comes out of the device's memory, by a launch of the planned kernel there.
TEST(Guarantees, TheGpuThatWasAskedForIsTheOneThatRan) {
  bool any = false;
  for (const Backend& backend : all_backends()) {
    if (!backend.is_gpu()) continue;
    any = true;
    const CaseTensors tensors(causal_case(DType::kBF16));
    const Result gpu = run_on(backend, tensors.problem(), tensors.args());
    EXPECT_TRUE(gpu.kernel.starts_with("fwd_sm90")) << gpu.kernel;
    // Pointers that only the device can read.
    Device& device = *backend.device.device;
    const auto upload = [&](const void* data, size_t bytes) {
      Buffer buffer(device, bytes);
      device.copy_to_device(buffer.data(), data, bytes);
      return buffer;
    };
    const size_t bytes = kSeqlen * row_bytes(DType::kBF16);
    const Buffer q = upload(tensors.args().q, bytes), k = upload(tensors.args().k, bytes),
                 v = upload(tensors.args().v, bytes), out(device, bytes);
    ForwardArgs args = tensors.args();
    args.q = q.data();
    args.k = k.data();
    args.v = v.data();
    args.out = out.data();
    cli::Execution execution(tensors.problem(), backend.device, 0);
    execution.bind_in_place(args);
    execution.run();
    std::vector<unsigned char> fetched(bytes);
    device.copy_to_host(fetched.data(), out.data(), bytes);
    EXPECT_EQ(fetched, gpu.out);
  }
  if (!any) GTEST_SKIP() << "no CUDA device here";
}

}  // namespace
}  // namespace fa4::internal
