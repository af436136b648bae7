#include "attention/forward_params.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <string_view>
#include <utility>

#include "kernels/backward/params.h"
#include "plan/gpu_plan.h"

namespace fa4::internal {
namespace {

constexpr double kLog2E = 1.4426950408889634;
constexpr int64_t kUnboundedWindow = (int64_t{1} << 30) - 1;
// A scale of 0 would make a hidden score's -inf NaN; this one makes every finite score 0.
constexpr float kSmallestScale = 1e-30f;

OutputParams output_params(const AttentionProblem& p, const ForwardArgs& args) {
  return {.data = args.out,
          .lse = args.lse,
          .stride_batch = p.out.batch,
          .stride_seqlen = p.out.seqlen,
          .stride_head = p.out.head,
          .head_dim_v = static_cast<int32_t>(p.head_dim_v)};
}

HeadParams head_params(const AttentionProblem& p, int group) {
  const int64_t tile_heads = p.heads_q / group;
  return {.heads_q = static_cast<int32_t>(p.heads_q),
          .group = group,
          .group_log2 = std::countr_zero(static_cast<unsigned>(packed_rows(group))),
          .tile_heads = static_cast<int32_t>(tile_heads),
          .tile_heads_per_kv = static_cast<int32_t>(tile_heads / p.heads_kv)};
}

ScheduleParams schedule_params(const TileSchedule& schedule, void* tile_counter) {
  return {.tile_counter = static_cast<uint32_t*>(tile_counter),
          .sections = schedule.sections,
          .longest_first = schedule.longest_first,
          .launch_control = schedule.source == TileSource::kLaunchControl};
}

ScoreParams score_params(const AttentionProblem& p, const ForwardArgs& args) {
  const double score_scale = p.softcap > 0 ? 1.0 : std::max(p.scale, kSmallestScale);
  const double of_cap = p.softcap > 0 ? static_cast<double>(p.scale) / p.softcap : 0.0;
  return {.sink = args.sink,
          .scale_log2 = finite_float(score_scale * kLog2E),
          .softcap = p.softcap,
          .scale_over_softcap = finite_float(of_cap)};
}

const char* type_of(const TensorMap&) { return "tensor_map"; }
const char* type_of(const void*) { return "ptr"; }
const char* type_of(int64_t) { return "i64"; }
const char* type_of(int32_t) { return "i32"; }
const char* type_of(float) { return "f32"; }

// Members of one struct by their addresses, so that the compiler knows where each lies.
class Fields {
 public:
  explicit Fields(const void* base) : base_(static_cast<const char*>(base)) {}

  // `names`: "a, b, c", one for each member.
  template <class... Members>
  void add(std::string_view names, const Members&... members) {
    (add_one(take_name(names), type_of(members), &members), ...);
  }
  std::vector<ParamsField> take() { return std::move(fields_); }

 private:
  static std::string take_name(std::string_view& names) {
    const std::string name(names.substr(0, names.find(',')));
    names.remove_prefix(std::min(names.size(), name.size() + 2));
    return name;
  }
  void add_one(std::string name, const char* type, const void* member) {
    const auto offset = static_cast<const char*>(member) - base_;
    fields_.push_back({std::move(name), type, static_cast<size_t>(offset)});
  }
  const char* base_;
  std::vector<ParamsField> fields_;
};

// Every member of a struct: the compiler counts them.
#define FA4_ADD_FIELDS(fields, of, ...) \
  const auto& [__VA_ARGS__] = of;       \
  fields.add(#__VA_ARGS__, __VA_ARGS__)

}  // namespace

float finite_float(double factor) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(factor, -kLargest, kLargest));
}

SequenceParams sequence_params(const AttentionProblem& p, const SequenceArgs& args) {
  return {.cu_seqlens_q = args.cu_seqlens_q,
          .cu_seqlens_k = args.cu_seqlens_k,
          .seqused_k = args.seqused_k,
          .batch = static_cast<int32_t>(p.batch),
          .seqlen_q = static_cast<int32_t>(p.seqlen_q),
          .seqlen_k = static_cast<int32_t>(p.seqlen_k),
          .total_q = static_cast<int32_t>(rows_of_packed_q(p, args)),
          .total_k = static_cast<int32_t>(rows_of_packed_k(p, args))};
}

MaskParams mask_params(const MaskSpec& mask) {
  const auto window = [](int64_t w) {
    return static_cast<int32_t>(w < 0 ? kUnboundedWindow : std::min(w, kUnboundedWindow));
  };
  return {.window_left = window(mask.window_left), .window_right = window(mask.window_right)};
}

FwdParams forward_params(const AttentionProblem& problem, const TileSchedule& schedule,
                         const ForwardArgs& args, void* tile_counter) {
  return {.maps = {},
          .output = output_params(problem, args),
          .sequences = sequence_params(problem, args),
          .heads = head_params(problem, schedule.group),
          .mask = mask_params(problem.mask),
          .schedule = schedule_params(schedule, tile_counter),
          .scores = score_params(problem, args)};
}

// The parts' members under names that are one namespace to whoever reads the layout.
ParamsLayout params_layout(KernelParams params) {
  if (params == KernelParams::kBackward) return {"BwdParams", sizeof(BwdParams), {}};
  static const FwdParams kParams{};
  const auto& [maps, output, sequences, heads, mask, schedule, scores] = kParams;
  Fields fields(&kParams);
  FA4_ADD_FIELDS(fields, maps, q, k, v, out);
  FA4_ADD_FIELDS(fields, output, out_data, lse, out_stride_batch, out_stride_seqlen,
                 out_stride_head, head_dim_v);
  FA4_ADD_FIELDS(fields, sequences, cu_seqlens_q, cu_seqlens_k, seqused_k, batch, seqlen_q,
                 seqlen_k, total_q, total_k);
  FA4_ADD_FIELDS(fields, heads, heads_q, group, group_log2, tile_heads, tile_heads_per_kv);
  FA4_ADD_FIELDS(fields, mask, window_left, window_right);
  FA4_ADD_FIELDS(fields, schedule, tile_counter, sections, longest_first, launch_control);
  FA4_ADD_FIELDS(fields, scores, sink, scale_log2, softcap, scale_over_softcap);
  return {"FwdParams", sizeof(FwdParams), fields.take()};
}

}  // namespace fa4::internal
