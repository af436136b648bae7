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

void fill_outputs(const AttentionProblem& p, const ForwardArgs& args, FwdParams* params) {
  params->out_data = args.out;
  params->lse = args.lse;
  params->out_stride_seqlen = p.out.seqlen;
  params->out_stride_head = p.out.head;
  params->out_stride_batch = p.out.batch;
  params->head_dim_v = static_cast<int32_t>(p.head_dim_v);
}

void fill_sequences(const AttentionProblem& p, const ForwardArgs& args, FwdParams* params) {
  params->cu_seqlens_q = args.cu_seqlens_q;
  params->cu_seqlens_k = args.cu_seqlens_k;
  params->seqused_k = args.seqused_k;
  params->batch = static_cast<int32_t>(p.batch);
  params->seqlen_q = static_cast<int32_t>(p.seqlen_q);
  params->seqlen_k = static_cast<int32_t>(p.seqlen_k);
  params->total_q = static_cast<int32_t>(rows_of_packed_q(p, args));
  params->total_k = static_cast<int32_t>(rows_of_packed_k(p, args));
}

void fill_heads(const AttentionProblem& p, int group, FwdParams* params) {
  params->heads_q = static_cast<int32_t>(p.heads_q);
  params->group = group;
  params->group_log2 = std::countr_zero(static_cast<unsigned>(packed_rows(group)));
  params->tile_heads = static_cast<int32_t>(p.heads_q / group);
  params->tile_heads_per_kv = static_cast<int32_t>(params->tile_heads / p.heads_kv);
}

void fill_mask(const MaskSpec& mask, FwdParams* params) {
  const auto window = [](int64_t w) {
    return static_cast<int32_t>(w < 0 ? kUnboundedWindow : std::min(w, kUnboundedWindow));
  };
  params->window_left = window(mask.window_left);
  params->window_right = window(mask.window_right);
}

void fill_schedule(const TileSchedule& schedule, void* tile_counter, FwdParams* params) {
  params->tile_counter = static_cast<uint32_t*>(tile_counter);
  params->sections = schedule.sections;
  params->longest_first = schedule.longest_first;
  params->launch_control = schedule.source == TileSource::kLaunchControl;
}

void fill_scores(const AttentionProblem& p, const ForwardArgs& args, FwdParams* params) {
  params->sink = args.sink;
  const double score_scale = p.softcap > 0 ? 1.0 : std::max(p.scale, kSmallestScale);
  params->scale_log2 = finite_float(score_scale * kLog2E);
  params->softcap = p.softcap;
  params->scale_over_softcap =
      p.softcap > 0 ? finite_float(static_cast<double>(p.scale) / p.softcap) : 0.0f;
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
  FwdParams params{};
  fill_outputs(problem, args, &params);
  fill_sequences(problem, args, &params);
  fill_heads(problem, schedule.group, &params);
  fill_mask(problem.mask, &params);
  fill_schedule(schedule, tile_counter, &params);
  fill_scores(problem, args, &params);
  return params;
}

// Every member: the compiler counts them.
ParamsLayout params_layout(KernelParams) {
  static const FwdParams kParams{};
  const auto& [q, k, v, out, out_data, lse, sink, cu_seqlens_q, cu_seqlens_k, seqused_k,
               tile_counter, out_stride_seqlen, out_stride_head, batch, heads_q, seqlen_q, seqlen_k,
               total_q, total_k, head_dim_v, group_log2, group, tile_heads, tile_heads_per_kv,
               window_left, window_right, sections, longest_first, scale_log2, softcap,
               scale_over_softcap, launch_control, out_stride_batch] = kParams;
  Fields fields(&kParams);
#define FA4_FIELD(member) fields.add(#member, member)
  FA4_FIELD(q);
  FA4_FIELD(k);
  FA4_FIELD(v);
  FA4_FIELD(out);
  FA4_FIELD(out_data);
  FA4_FIELD(lse);
  FA4_FIELD(sink);
  FA4_FIELD(cu_seqlens_q);
  FA4_FIELD(cu_seqlens_k);
  FA4_FIELD(seqused_k);
  FA4_FIELD(tile_counter);
  FA4_FIELD(out_stride_seqlen);
  FA4_FIELD(out_stride_head);
  FA4_FIELD(batch);
  FA4_FIELD(heads_q);
  FA4_FIELD(seqlen_q);
  FA4_FIELD(seqlen_k);
  FA4_FIELD(total_q);
  FA4_FIELD(total_k);
  FA4_FIELD(head_dim_v);
  FA4_FIELD(group_log2);
  FA4_FIELD(group);
  FA4_FIELD(tile_heads);
  FA4_FIELD(tile_heads_per_kv);
  FA4_FIELD(window_left);
  FA4_FIELD(window_right);
  FA4_FIELD(sections);
  FA4_FIELD(longest_first);
  FA4_FIELD(scale_log2);
  FA4_FIELD(softcap);
  FA4_FIELD(scale_over_softcap);
  FA4_FIELD(launch_control);
  FA4_FIELD(out_stride_batch);
#undef FA4_FIELD
  return {"FwdParams", sizeof(FwdParams), fields.take()};
}

}  // namespace fa4::internal
