#include "attention/backward_params.h"

#include <cmath>
#include <numbers>

#include "attention/forward_params.h"

namespace fa4::internal {
namespace {

RowTensor row_tensor(const void* data, const Strides& strides, int64_t columns) {
  return {.data = const_cast<void*>(data),  // inputs are only read
          .stride_batch = strides.batch,
          .stride_seqlen = strides.seqlen,
          .stride_head = strides.head,
          .columns = static_cast<int32_t>(columns)};
}

// Of scores, and never so near to 0 that it has no inverse: scores up to 2^90 times it are 0 to an
// exponential.
double scale_log2(const AttentionProblem& p) {
  constexpr double kLeast = 0x1p-120;
  const double scale = (p.softcap > 0 ? p.softcap : p.scale) * std::numbers::log2e;
  return std::abs(scale) < kLeast ? std::copysign(kLeast, scale) : scale;
}

NearCap near_tanh(double scale_over_softcap) {
  NearCap near = near_cap(scale_over_softcap, 1.0);
  near.limit *= std::abs(near.limit);  // squares are compared
  return near;
}

}  // namespace

BwdParams backward_params(const AttentionProblem& p, const BackwardTiling& tiling,
                          const BackwardArgs& args) {
  const double scale = p.scale, scores_scale = scale_log2(p);
  const double scale_over_softcap = p.softcap > 0 ? scale / p.softcap : 0.0;
  const int subgroups = tiling.shape.subgroups;
  return {.maps = {},
          .sequences = sequence_params(p, args),
          .mask = mask_params(p.mask),
          .scores = {.sink = args.sink,
                     .scale_log2 = finite_float(scores_scale),
                     .sink_type = float_type(p.sink_dtype)},
          .inputs = {.out = row_tensor(args.out, p.out, p.head_dim_v),
                     .dout = row_tensor(args.dout, p.dout, p.head_dim_v),
                     .lse = args.lse,
                     .dlse = args.dlse},
          .gradients = {.dq = row_tensor(args.dq, p.dq, p.head_dim),
                        .dk = row_tensor(args.dk, p.dk, p.head_dim),
                        .dv = row_tensor(args.dv, p.dv, p.head_dim_v),
                        .dsink = args.dsink,
                        .is_f32 = p.grad_dtype == DType::kF32},
          .workspace = {},
          .scale = p.scale,
          .neg_lse_log2_to_score = finite_float(-1.0 / scores_scale),
          .scale_over_softcap = finite_float(scale_over_softcap),
          .near = near_tanh(scale_over_softcap),
          .heads_q = static_cast<int32_t>(p.heads_q),
          .heads_kv = static_cast<int32_t>(p.heads_kv * subgroups),
          .group = static_cast<int32_t>(p.group() / subgroups),
          .subgroups = subgroups,
          .deterministic = p.deterministic,
          .order = tiling.order};
}

}  // namespace fa4::internal
