// The path that was asked for is the one that ran: each path of the CPU, each CUDA device.
#include <gtest/gtest.h>

#include <map>

#include "attention/forward_op.h"
#include "backends.h"
#include "execution.h"

namespace fa4::internal {
namespace {

Case causal_case() {
  Case c;
  c.desc.dtype = DType::kBF16;
  c.desc.batch = 1;
  c.desc.heads_q = c.desc.heads_kv = 2;
  c.desc.seqlen_q = c.desc.seqlen_k = 700;
  c.desc.head_dim = 64;
  c.desc.causal = true;
  c.seed = 9;
  return c;
}

// Every path rounds in its own way: bits tell which one ran, and prepare() runs the planned one.
TEST(Paths, ThePathThatWasAskedForIsTheOneThatRan) {
  const CaseTensors tensors(causal_case());
  const AttentionProblem& p = tensors.problem();
  std::map<std::string, Result> results;
  for (const Backend& backend : all_backends()) {
    if (!backend.isa || !unsupported(backend, p).empty()) continue;
    Result result = run_on(backend, p, tensors.args());
    EXPECT_EQ(result.kernel, "cpu_" + std::string(name_of(*backend.isa)));
    for (const auto& [name, other] : results) {
      // The model of AMX is AMX, bit by bit; AVX2 and AVX-512 may agree where both sum in f32.
      if (name == "cpu_scalar") {
        EXPECT_NE(result.lse, other.lse) << backend.name;
      }
    }
    const std::string kernel = result.kernel;
    results.emplace(kernel, std::move(result));
  }
  ASSERT_TRUE(results.contains("cpu_scalar"));
  const cli::DeviceChoice cpu{host_cpu_spec(), nullptr};
  cli::Execution execution(p, cpu, 2);
  std::vector<unsigned char> out(results.at("cpu_scalar").out.size());
  std::vector<float> lse(results.at("cpu_scalar").lse.size());
  ForwardArgs args = tensors.args();
  args.out = out.data();
  args.lse = lse.data();
  execution.bind(args);
  execution.run();
  const Result& planned = results.at(execution.kernel_name());
  EXPECT_EQ(out, planned.out);
  EXPECT_EQ(lse, planned.lse);
}

// A GPU result comes out of the device's memory, by a launch of the planned kernel there.
TEST(Paths, TheGpuThatWasAskedForIsTheOneThatRan) {
  bool any = false;
  for (const Backend& backend : all_backends()) {
    if (!backend.is_gpu()) continue;
    any = true;
    const CaseTensors tensors(causal_case());
    const Result gpu = run_on(backend, tensors.problem(), tensors.args());
    EXPECT_TRUE(gpu.kernel.starts_with("fwd_sm")) << gpu.kernel;
    // Pointers that only the device can read.
    Device& device = *backend.device.device;
    const auto upload = [&](const void* data, size_t bytes) {
      Buffer buffer(device, bytes);
      device.copy_to_device(buffer.data(), data, bytes);
      return buffer;
    };
    const size_t bytes = gpu.out.size();
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
