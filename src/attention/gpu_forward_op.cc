#include "attention/gpu_forward_op.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "jit/kernel_cache.h"
#include "kernels/attention/fwd_params.h"
#include "plan/gpu_plan.h"

namespace fa4::internal {
namespace {

constexpr double kLog2E = 1.4426950408889634;
constexpr int64_t kUnboundedWindow = (int64_t{1} << 30) - 1;
// A scale of 0 would make a hidden score's -inf NaN; this one makes every finite score 0.
constexpr float kSmallestScale = 1e-30f;

// The factor of a score: finite, since 0 times infinity is NaN.
float finite_float(double factor) {
  return static_cast<float>(
      std::min(factor, static_cast<double>(std::numeric_limits<float>::max())));
}

// A tensor as the kernel sees it: (head_dim, head, position, batch), and where `group` is not 0
// (head_dim, head of the group, group, position, batch).
struct KernelTensor {
  const void* data;
  Strides strides;
  int64_t head_dim, heads, positions, batch;
  int64_t group = 0;
};

// TMA reads and writes whole units of 16 bytes.
void check_base(const char* name, const void* data) {
  if (reinterpret_cast<uintptr_t>(data) % 16 != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} {}; accepted on a GPU: multiples of 16 bytes", name, data));
  }
}

// Whether `stream` is being captured, or one of the two that every thread has, by the driver's
// handles: the legacy one (whose query also fails while any blocking stream is captured) and the
// thread's own.
bool is_any_capturing(const Device& device, void* stream) {
  void* const kLegacyStream = nullptr;
  void* const kPerThreadStream = reinterpret_cast<void*>(uintptr_t{2});
  return device.is_capturing(kLegacyStream) || device.is_capturing(kPerThreadStream) ||
         (stream != nullptr && device.is_capturing(stream));
}

// The kernel as `device` has it, or compiled and loaded now: not during a capture, which a load
// would break.
const Kernel& find_kernel(const GpuLaunch& launch, Device& device, void* stream) {
  KernelCache& cache = KernelCache::get();
  const std::string& architecture = device.spec().architecture;
  const auto smem_bytes = static_cast<uint32_t>(launch.shape.smem_bytes);
  const auto known = cache.find_in_memory(launch.source, architecture, device.image_kind());
  if (known != nullptr) {
    if (const Kernel* kernel = device.find_loaded(known, smem_bytes)) return *kernel;
  }
  if (is_any_capturing(device, stream)) {
    throw Error(ErrorCode::kStreamCapture,
                fmt::format("kernel {} is not loaded and a stream is being captured; accepted: "
                            "prepare before the capture begins, then execute inside it",
                            launch.source.display_name));
  }
  return device.find_or_load(
      cache.find_or_compile(launch.source, architecture, device.image_kind()), smem_bytes);
}

class GpuForwardOp final : public ForwardOp {
 public:
  GpuForwardOp(const ForwardPlan& plan, std::shared_ptr<Device> device, void* stream)
      : ForwardOp(plan),
        launch_(*gpu_launch(plan)),
        device_(std::move(device)),
        kernel_(find_kernel(launch_, *device_, stream)) {}

  void execute(const ForwardArgs& given) const override {
    const ForwardArgs args = with_planned_workspace(given);
    check_pointers(plan_.problem, args);
    const int64_t total_q = rows_of_packed_q(plan_.problem, args);
    const int64_t total_k = rows_of_packed_k(plan_.problem, args);
    if ((packed_q() ? total_q : plan_.problem.seqlen_q) == 0 || plan_.problem.batch == 0) return;
    check_base("q", args.q);
    check_base("out", args.out);
    if ((packed_k() ? total_k : plan_.problem.seqlen_k) > 0) {
      check_base("k", args.k);
      check_base("v", args.v);
    }

    FwdParams params{};
    encode_maps(args, total_q, total_k, &params);
    fill_params(args, total_q, total_k, &params);
    if (launch_.schedule.source == TileSource::kCounter) {
      params.tile_counter = static_cast<uint32_t*>(args.workspace);
      device_->enqueue_zero(args.workspace, sizeof(uint32_t), args.stream);
    }
    LaunchConfig config;
    config.grid[0] = static_cast<uint32_t>(launch_.schedule.grid);
    config.block[0] = static_cast<uint32_t>(launch_.shape.threads);
    config.cluster[0] = static_cast<uint32_t>(launch_.shape.cluster);
    config.dynamic_smem_bytes = static_cast<uint32_t>(launch_.shape.smem_bytes);
    // Behind the counter's fill there is no kernel to overlap with.
    config.waits_itself = launch_.schedule.source != TileSource::kCounter;
    kernel_.launch(config, &params, sizeof(params), args.stream);
  }

 private:
  bool packed_q() const { return plan_.problem.layout_q == Layout::kPacked; }
  bool packed_k() const { return plan_.problem.layout_kv == Layout::kPacked; }

  // `slab`: columns of a box, 64 or 32.
  void encode(const KernelTensor& t, int slab, int box_heads, int box_positions,
              TensorMap* map) const {
    TensorMapDesc desc{
        .base = t.data,
        .dtype = plan_.problem.dtype,
        .rank = 1,
        .dims = {static_cast<uint64_t>(t.head_dim)},
        .box = {static_cast<uint32_t>(slab)},
        .swizzle = slab == 64 ? TensorMapDesc::Swizzle::k128B : TensorMapDesc::Swizzle::k64B};
    const auto add = [&](int64_t extent, int64_t stride, int box) {
      // A dimension of one element has no stride that matters; TMA wants a valid one.
      desc.strides_bytes[desc.rank - 1] =
          static_cast<uint64_t>(extent > 1 ? stride * size_of(plan_.problem.dtype) : 16);
      desc.dims[desc.rank] = static_cast<uint64_t>(extent);
      desc.box[desc.rank++] = static_cast<uint32_t>(box);
    };
    if (t.group > 0) {
      add(t.group, t.strides.head, box_heads);
      add(t.heads / t.group, t.strides.head * t.group, 1);
    } else {
      add(t.heads, t.strides.head, box_heads);
    }
    add(t.positions, t.strides.seqlen, box_positions);
    add(t.batch, t.strides.batch, 1);
    device_->encode_tensor_map(desc, map);
  }

  void encode_maps(const ForwardArgs& args, int64_t total_q, int64_t total_k,
                   FwdParams* params) const {
    const AttentionProblem& p = plan_.problem;
    const LaunchShape& shape = launch_.shape;
    const int64_t rows_q = packed_q() ? total_q : p.seqlen_q, batch_q = packed_q() ? 1 : p.batch;
    const int64_t rows_k = packed_k() ? total_k : p.seqlen_k, batch_k = packed_k() ? 1 : p.batch;
    const int group = launch_.schedule.group;
    const int heads = std::min(packed_rows(group), shape.q_rows), positions = shape.q_rows / heads;
    encode({args.q, p.q, p.head_dim, p.heads_q, rows_q, batch_q, group}, shape.qk_columns, heads,
           positions, &params->q);
    encode({args.out, p.out, p.head_dim_v, p.heads_q, rows_q, batch_q, group}, shape.out_columns,
           heads, positions, &params->out);
    if (rows_k == 0) return;  // no tile loads a key
    encode({args.k, p.k, p.head_dim, p.heads_kv, rows_k, batch_k}, shape.qk_columns, 1,
           shape.k_rows, &params->k);
    encode({args.v, p.v, p.head_dim_v, p.heads_kv, rows_k, batch_k}, shape.v_columns, 1,
           shape.v_rows, &params->v);
  }

  void fill_params(const ForwardArgs& args, int64_t total_q, int64_t total_k,
                   FwdParams* params) const {
    const AttentionProblem& p = plan_.problem;
    const auto window = [](int64_t w) {
      return static_cast<int32_t>(w < 0 ? kUnboundedWindow : std::min(w, kUnboundedWindow));
    };
    params->out_data = args.out;
    params->lse = args.lse;
    params->sink = p.has_sink ? args.sink : nullptr;
    params->cu_seqlens_q = packed_q() ? args.cu_seqlens_q : nullptr;
    params->cu_seqlens_k = packed_k() ? args.cu_seqlens_k : nullptr;
    params->seqused_k = p.has_seqused_k ? args.seqused_k : nullptr;
    params->out_stride_seqlen = p.out.seqlen;
    params->out_stride_head = p.out.head;
    params->out_stride_batch = p.out.batch;
    params->batch = static_cast<int32_t>(p.batch);
    params->heads_q = static_cast<int32_t>(p.heads_q);
    params->seqlen_q = static_cast<int32_t>(p.seqlen_q);
    params->seqlen_k = static_cast<int32_t>(p.seqlen_k);
    params->total_q = static_cast<int32_t>(total_q);
    params->total_k = static_cast<int32_t>(total_k);
    params->head_dim_v = static_cast<int32_t>(p.head_dim_v);
    params->group = launch_.schedule.group;
    params->group_log2 = std::countr_zero(static_cast<unsigned>(packed_rows(params->group)));
    params->tile_heads = static_cast<int32_t>(p.heads_q / launch_.schedule.group);
    params->tile_heads_per_kv = static_cast<int32_t>(params->tile_heads / p.heads_kv);
    params->window_left = window(p.mask.window_left);
    params->window_right = window(p.mask.window_right);
    params->sections = launch_.schedule.sections;
    params->longest_first = launch_.schedule.longest_first;
    params->launch_control = launch_.schedule.source == TileSource::kLaunchControl;
    const double score_scale = p.softcap > 0 ? 1.0 : std::max(p.scale, kSmallestScale);
    params->scale_log2 = finite_float(score_scale * kLog2E);
    params->softcap = p.softcap;
    params->scale_over_softcap =
        p.softcap > 0 ? finite_float(static_cast<double>(p.scale) / p.softcap) : 0.0f;
  }

  GpuLaunch launch_;
  std::shared_ptr<Device> device_;
  const Kernel& kernel_;  // the device's
};

}  // namespace

std::shared_ptr<const ForwardOp> prepare_gpu(const ForwardPlan& plan,
                                             std::shared_ptr<Device> device, void* stream) {
  return std::make_shared<GpuForwardOp>(plan, std::move(device), stream);
}

}  // namespace fa4::internal
