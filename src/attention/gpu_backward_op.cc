#include "attention/gpu_backward_op.h"

#include "attention/backward_params.h"
#include "attention/gpu_op.h"
#include "attention/planned_workspace.h"
#include "kernels/backward/traits.h"
#include "problem/tensor_extent.h"

namespace fa4::internal {
namespace {

class GpuBackwardOp final : public BackwardOp {
 public:
  GpuBackwardOp(const BackwardPlan& plan, std::shared_ptr<Device> device, void* stream)
      : BackwardOp(plan),
        tiling_(*backward_tiling(plan)),
        gpu_(std::move(device), plan.steps, plan.workspace, stream) {}

  void execute(const BackwardArgs& given) const override {
    const AttentionProblem& p = plan_.problem;
    const BackwardArgs args = with_planned_workspace(given, plan_.workspace);
    check_pointers(p, args);
    // Threads move 16 bytes at a time.
    GpuOp::check_base("out", args.out);
    GpuOp::check_base("dout", args.dout);
    GpuOp::check_base("dq", args.dq);
    GpuOp::check_base("dk", args.dk);
    GpuOp::check_base("dv", args.dv);
    BwdParams params = backward_params(p, tiling_, args);
    params.workspace = workspace_params(args);
    const TensorExtent q = query_extent(p, rows_of_packed_q(p, args), p.head_dim);
    const TensorExtent k = key_extent(p, rows_of_packed_k(p, args), p.head_dim);
    if (!q.empty() && !k.empty()) encode_maps(args, q, k, &params.maps);
    launch(kPreprocess, params, args.stream);
    if (!k.empty()) launch(kBackward, params, args.stream);
    if (args.dq != nullptr || args.dsink != nullptr) launch(kPostprocess, params, args.stream);
  }

 private:
  void launch(BackwardStep step, const BwdParams& params, void* stream) const {
    if (plan_.steps[step].grid > 0) gpu_.launch(step, params, stream);
  }

  BwdWorkspace workspace_params(const BackwardArgs& args) const {
    const auto floats = [&](std::string_view name) {
      return static_cast<float*>(gpu_.part(name, args.workspace));
    };
    // Without queries nobody takes turns, and nobody clears the ticket.
    const auto words = [&](std::string_view name) {
      const bool taken = plan_.steps[kPreprocess].grid > 0;
      return taken ? static_cast<uint32_t*>(gpu_.part(name, args.workspace)) : nullptr;
    };
    return {
        .neg_lse_log2 = floats(kNegLseLog2),
        .delta = floats(kRowDelta),
        .statistics = static_cast<StatisticTerms*>(gpu_.part(kStatisticTerms, args.workspace)),
        .dq = args.dq == nullptr ? nullptr : floats(kDqSums),
        .dsink = args.dsink == nullptr ? nullptr : floats(kDsinkParts),
        .dq_counts = args.dq == nullptr ? nullptr : words(kDqCounts),
        .cleared = args.dq == nullptr ? nullptr : words(kClearedCounts),
        .ended = args.dq == nullptr ? nullptr : words(kEndedCounts),
        .ticket = words(kTicket),
        .subgroup_sums = args.dk == nullptr ? nullptr : floats(kGroupSums),
        .subgroup_counts = static_cast<SubgroupCounts*>(gpu_.part(kGroupCounts, args.workspace)),
        .subgroup_floats = static_cast<int32_t>(subgroup_floats(tiling_.shape)),
        .key_blocks = static_cast<int32_t>(subgroup_key_blocks(plan_.problem)),
        .dq_columns = tiling_.shape.head_dim,
        .head_blocks = static_cast<int32_t>(head_blocks(plan_.problem))};
  }

  void encode_maps(const BackwardArgs& args, const TensorExtent& q, const TensorExtent& k,
                   BwdTensorMaps* maps) const {
    const AttentionProblem& p = plan_.problem;
    const BackwardShape& shape = tiling_.shape;
    const auto encode = [&](const char* name, const void* data, const Strides& strides,
                            int64_t heads, int64_t columns, int slab, int box_rows,
                            const TensorExtent& rows, TensorMap* map) {
      const TensorAxis axes[] = {{heads, strides.head, 1},
                                 {rows.rows, strides.seqlen, box_rows},
                                 {rows.outer, strides.batch, 1}};
      gpu_.encode({name, data, p.dtype, columns, slab, axes}, map);
    };
    encode("q", args.q, p.q, p.heads_q, p.head_dim, shape.qk_slab, shape.q_rows, q, &maps->q);
    if (args.dout != nullptr) {
      encode("dout", args.dout, p.dout, p.heads_q, p.head_dim_v, shape.v_slab, shape.q_rows, q,
             &maps->dout);
    }
    if (args.dq != nullptr && tiling_.order.finish_behind != 0) {
      encode("dq", args.dq, p.dq, p.heads_q, p.head_dim, kFinishColumns, kFinishRows, q, &maps->dq);
    }
    encode("k", args.k, p.k, p.heads_kv, p.head_dim, shape.qk_slab, shape.k_rows, k, &maps->k);
    encode("v", args.v, p.v, p.heads_kv, p.head_dim_v, shape.v_slab, shape.k_rows, k, &maps->v);
  }

  BackwardTiling tiling_;
  GpuOp gpu_;
};

}  // namespace

std::shared_ptr<const BackwardOp> prepare_gpu(const BackwardPlan& plan,
                                              std::shared_ptr<Device> device, void* stream) {
  return std::make_shared<GpuBackwardOp>(plan, std::move(device), stream);
}

}  // namespace fa4::internal
