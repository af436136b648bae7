#include "attention/backward_params.h"

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

}  // namespace

BwdParams backward_params(const AttentionProblem& p, const BackwardTiling& tiling,
                          const BackwardArgs& args) {
  constexpr double kLog2E = 1.4426950408889634;
  const double scale = p.scale;
  return {.maps = {},
          .sequences = sequence_params(p, args),
          .mask = mask_params(p.mask),
          .scores = {.sink = args.sink,
                     .scale_log2 = finite_float((p.softcap > 0 ? p.softcap : p.scale) * kLog2E),
                     .softcap = p.softcap,
                     .scale_over_softcap = finite_float(p.softcap > 0 ? scale / p.softcap : 0.0),
                     .sink_type = float_type(p.sink_dtype),
                     .negates = 0},
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
          .heads_q = static_cast<int32_t>(p.heads_q),
          .heads_kv = static_cast<int32_t>(p.heads_kv),
          .group = static_cast<int32_t>(p.group()),
          .sections = tiling.sections,
          .last_keys_first = tiling.last_keys_first};
}

}  // namespace fa4::internal
