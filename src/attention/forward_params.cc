#include "attention/forward_params.h"

#include <algorithm>
#include <bit>
#include <limits>

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

OutputParams output_params(const AttentionProblem& p, const ForwardArgs& args) {
  return {.data = args.out,
          .lse = args.lse,
          .stride_batch = p.out.batch,
          .stride_seqlen = p.out.seqlen,
          .stride_head = p.out.head,
          .head_dim_v = static_cast<int32_t>(p.head_dim_v)};
}

SequenceParams sequence_params(const AttentionProblem& p, const ForwardArgs& args) {
  return {.cu_seqlens_q = args.cu_seqlens_q,
          .cu_seqlens_k = args.cu_seqlens_k,
          .seqused_k = args.seqused_k,
          .batch = static_cast<int32_t>(p.batch),
          .seqlen_q = static_cast<int32_t>(p.seqlen_q),
          .seqlen_k = static_cast<int32_t>(p.seqlen_k),
          .total_q = static_cast<int32_t>(rows_of_packed_q(p, args)),
          .total_k = static_cast<int32_t>(rows_of_packed_k(p, args))};
}

HeadParams head_params(const AttentionProblem& p, int group) {
  const int64_t tile_heads = p.heads_q / group;
  return {.heads_q = static_cast<int32_t>(p.heads_q),
          .group = group,
          .group_log2 = std::countr_zero(static_cast<unsigned>(packed_rows(group))),
          .tile_heads = static_cast<int32_t>(tile_heads),
          .tile_heads_per_kv = static_cast<int32_t>(tile_heads / p.heads_kv)};
}

MaskParams mask_params(const MaskSpec& mask) {
  const auto window = [](int64_t w) {
    return static_cast<int32_t>(w < 0 ? kUnboundedWindow : std::min(w, kUnboundedWindow));
  };
  return {.window_left = window(mask.window_left), .window_right = window(mask.window_right)};
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

// Members of one struct by their addresses, so that the compiler knows each one's type.
class Fields {
 public:
  explicit Fields(const void* base) : base_(static_cast<const char*>(base)) {}
  void add(const char* name, const TensorMap& member) { add(name, "tensor_map", &member); }
  template <class T>
  void add(const char* name, T* const& member) {
    add(name, "ptr", &member);
  }
  void add(const char* name, const int64_t& member) { add(name, "i64", &member); }
  void add(const char* name, const int32_t& member) { add(name, "i32", &member); }
  void add(const char* name, const float& member) { add(name, "f32", &member); }
  std::vector<ParamsField> take() { return std::move(fields_); }

 private:
  void add(const char* name, const char* type, const void* member) {
    fields_.push_back({name, type, static_cast<size_t>(static_cast<const char*>(member) - base_)});
  }
  const char* base_;
  std::vector<ParamsField> fields_;
};

}  // namespace

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

// Every member of every part: the compiler counts them.
ParamsLayout params_layout(KernelParams) {
  static const FwdParams kParams{};
  Fields fields(&kParams);
#define FA4_FIELD(member) fields.add(#member, member)
  const auto& [maps, output, sequences, heads, mask, schedule, scores] = kParams;
  {
    const auto& [q, k, v, out] = maps;
    FA4_FIELD(q);
    FA4_FIELD(k);
    FA4_FIELD(v);
    FA4_FIELD(out);
  }
  {
    const auto& [data, lse, stride_batch, stride_seqlen, stride_head, head_dim_v] = output;
    fields.add("out_data", data);
    FA4_FIELD(lse);
    fields.add("out_stride_batch", stride_batch);
    fields.add("out_stride_seqlen", stride_seqlen);
    fields.add("out_stride_head", stride_head);
    FA4_FIELD(head_dim_v);
  }
  {
    const auto& [cu_seqlens_q, cu_seqlens_k, seqused_k, batch, seqlen_q, seqlen_k, total_q,
                 total_k] = sequences;
    FA4_FIELD(cu_seqlens_q);
    FA4_FIELD(cu_seqlens_k);
    FA4_FIELD(seqused_k);
    FA4_FIELD(batch);
    FA4_FIELD(seqlen_q);
    FA4_FIELD(seqlen_k);
    FA4_FIELD(total_q);
    FA4_FIELD(total_k);
  }
  {
    const auto& [heads_q, group, group_log2, tile_heads, tile_heads_per_kv] = heads;
    FA4_FIELD(heads_q);
    FA4_FIELD(group);
    FA4_FIELD(group_log2);
    FA4_FIELD(tile_heads);
    FA4_FIELD(tile_heads_per_kv);
  }
  {
    const auto& [window_left, window_right] = mask;
    FA4_FIELD(window_left);
    FA4_FIELD(window_right);
  }
  {
    const auto& [tile_counter, sections, longest_first, launch_control] = schedule;
    FA4_FIELD(tile_counter);
    FA4_FIELD(sections);
    FA4_FIELD(longest_first);
    FA4_FIELD(launch_control);
  }
  {
    const auto& [sink, scale_log2, softcap, scale_over_softcap] = scores;
    FA4_FIELD(sink);
    FA4_FIELD(scale_log2);
    FA4_FIELD(softcap);
    FA4_FIELD(scale_over_softcap);
  }
#undef FA4_FIELD
  return {"FwdParams", sizeof(FwdParams), fields.take()};
}

}  // namespace fa4::internal
