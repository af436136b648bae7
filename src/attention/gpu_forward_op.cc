#include "attention/gpu_forward_op.h"

#include <algorithm>
#include <optional>

#include "attention/forward_params.h"
#include "attention/gpu_op.h"
#include "attention/planned_workspace.h"
#include "plan/gpu_plan.h"
#include "problem/tensor_extent.h"

namespace fa4::internal {
namespace {

class GpuForwardOp final : public ForwardOp {
 public:
  GpuForwardOp(const ForwardPlan& plan, std::shared_ptr<Device> device, void* stream)
      : ForwardOp(plan),
        main_(tiling_of(plan.main)),
        few_(few_tiling(plan)),
        gpu_(std::move(device), plan.steps, plan.workspace, stream) {}

  void execute(const ForwardArgs& given) const override {
    const AttentionProblem& p = plan_.problem;
    const ForwardArgs args = with_planned_workspace(given, plan_.workspace);
    check_pointers(p, args);
    const TensorExtent q = query_extent(p, rows_of_packed_q(p, args), p.head_dim);
    const TensorExtent k = key_extent(p, rows_of_packed_k(p, args), p.head_dim);
    // Packed rows that no sequence may have stay as they are: kernels divide by the longest query.
    if (p.batch == 0 || p.seqlen_q == 0 || q.rows == 0) return;
    FwdParams main = params_of(main_, args, q, k);
    std::optional<FwdParams> few;
    if (few_) few = params_of(*few_, args, q, k);
    main.schedule.tile_counter = counter(main_, 0, args.workspace);
    gpu_.zero_workspace(args.workspace, args.stream);
    size_t step = 0;
    if (few) {
      few->schedule.tile_counter = counter(*few_, 1, args.workspace);
      few->schedule.launch_pair = LaunchPair::kFirst;
      main.schedule.launch_pair = LaunchPair::kSecond;
      const auto most = static_cast<int32_t>(plan_.few->most);
      few->sequences.seqlen_q = few->sequences.most_q = few->parts.queries = most;
      main.sequences.least_q = most + 1;
      gpu_.launch(step++, *few, args.stream);
    }
    gpu_.launch(step++, main, args.stream);
    if (step < plan_.steps.size()) gpu_.launch(step, few ? *few : main, args.stream);
  }

 private:
  // A launch's parameter, but for what two launches of a call share.
  FwdParams params_of(const GpuTiling& tiling, const ForwardArgs& args, const TensorExtent& q,
                      const TensorExtent& k) const {
    const AttentionProblem& p = plan_.problem;
    const LaunchShape& shape = tiling.shape;
    const int group = tiling.schedule.group;
    FwdParams params = forward_params(p, tiling, args);
    if (tiling.parts.are_cut()) {
      params.parts.sums = static_cast<float*>(gpu_.part(kPartSums, args.workspace));
      params.parts.stats = static_cast<PartStats*>(gpu_.part(kPartStats, args.workspace));
    }
    const QueryBox box{group, shape.q_rows, shape.q_columns};
    encode_query_map("q", args.q, p.q, p.head_dim, box, q, &params.maps.q);
    if (tiling.parts.are_cut() || shape.out_columns == 0) {
      GpuOp::check_base("out", args.out);
    } else {
      encode_query_map("out", args.out, p.out, p.head_dim_v,
                       {group, shape.q_rows, shape.out_columns}, q, &params.maps.out);
    }
    if (k.empty()) return params;  // no tile loads a key
    const int box_rows = params.pages.box_rows;
    if (shape.pages == Pages::kRows) {  // threads copy, 16 bytes at a time
      GpuOp::check_base("k", args.k);
      GpuOp::check_base("v", args.v);
    } else if (shape.pages == Pages::kGroups) {
      encode_group_map("k", args.k, p.k, p.head_dim, shape.k_columns, box_rows, &params.maps.k);
      encode_group_map("v", args.v, p.v, p.head_dim_v, shape.v_columns, box_rows, &params.maps.v);
    } else if (shape.pages == Pages::kGathers) {
      encode_gather_map("k", args.k, p.k, p.head_dim, shape.k_columns, &params.maps.k,
                        &params.pages.k);
      encode_gather_map("v", args.v, p.v, p.head_dim_v, shape.v_columns, &params.maps.v,
                        &params.pages.v);
    } else {
      const bool in_boxes = shape.pages == Pages::kBoxes;
      encode_key_map("k", args.k, p.k, p.head_dim, shape.k_columns,
                     in_boxes ? box_rows : shape.k_rows, k, &params.maps.k);
      encode_key_map("v", args.v, p.v, p.head_dim_v, shape.v_columns,
                     in_boxes ? box_rows : shape.v_rows, k, &params.maps.v);
    }
    return params;
  }

  // Null: the launch counts no tiles.
  uint32_t* counter(const GpuTiling& tiling, int launch, void* workspace) const {
    if (tiling.schedule.source != TileSource::kCounter) return nullptr;
    return static_cast<uint32_t*>(gpu_.part(kTileCounter, workspace)) + launch;
  }

  // What TMA moves at once of q or out.
  struct QueryBox {
    int group, q_rows, slab;
  };
  // Of q or out: the heads of a group are an axis of their own, past whose end a box may reach.
  void encode_query_map(const char* name, const void* data, const Strides& strides, int64_t columns,
                        const QueryBox& box, const TensorExtent& rows, TensorMap* map) const {
    const AttentionProblem& p = plan_.problem;
    const auto [group, q_rows, slab] = box;
    const int heads = std::min(packed_rows(group), q_rows);
    const TensorAxis axes[] = {{group, strides.head, heads},
                               {p.heads_q / group, strides.head * group, 1},
                               {rows.rows, strides.seqlen, q_rows / heads},
                               {rows.outer, strides.batch, 1}};
    gpu_.encode({name, data, p.dtype, columns, slab, axes}, map);
  }

  void encode_key_map(const char* name, const void* data, const Strides& strides, int64_t columns,
                      int slab, int box_rows, const TensorExtent& rows, TensorMap* map) const {
    const AttentionProblem& p = plan_.problem;
    const int64_t per_element = elements_per_16_bits(p);
    const TensorAxis axes[] = {{p.heads_kv, strides.head / per_element, 1},
                               {rows.rows, strides.seqlen / per_element, box_rows},
                               {rows.outer, strides.batch / per_element, 1}};
    gpu_.encode({name, data, p.dtype, columns / per_element, slab, axes}, map);
  }

  // Of pages in groups of 8 rows (Pages::kGroups): TMA writes a box as a tile lies, group by group,
  // all slabs of each.
  void encode_group_map(const char* name, const void* data, const Strides& strides, int64_t columns,
                        int slab, int box_rows, TensorMap* map) const {
    const AttentionProblem& p = plan_.problem;
    const int slabs = static_cast<int>(columns) / slab;
    const int64_t group = kGroupRows * strides.seqlen;
    const int64_t groups = (p.num_pages - 1) * (strides.batch / group) + p.page_size / kGroupRows;
    const TensorAxis axes[] = {{kGroupRows, strides.seqlen, kGroupRows},
                               {slabs, slab, slabs},
                               {p.heads_kv, strides.head, 1},
                               {groups, group, box_rows / kGroupRows}};
    gpu_.encode({name, data, p.dtype, slab, slab, axes}, map);
  }

  // Of rows that TMA gathers (Pages::kGathers): a box is one of them. `rows` is told where they
  // are.
  void encode_gather_map(const char* name, const void* data, const Strides& strides,
                         int64_t columns, int slab, TensorMap* map, PageRows* rows) const {
    const AttentionProblem& p = plan_.problem;
    const GatheredRows matrix = gathered_rows(p, strides, columns).value();
    rows->page_rows = static_cast<int32_t>(strides.batch / matrix.unit);
    rows->row_rows = static_cast<int32_t>(strides.seqlen / matrix.unit);
    rows->head_rows = static_cast<int32_t>(strides.head / matrix.unit);
    const TensorAxis axes[] = {{matrix.count, matrix.unit, 1}};
    gpu_.encode({name, data, p.dtype, columns, slab, axes}, map);
  }

  GpuTiling main_;
  std::optional<GpuTiling> few_;  // of the launch before the main one
  GpuOp gpu_;
};

}  // namespace

std::shared_ptr<const ForwardOp> prepare_gpu(const ForwardPlan& plan,
                                             std::shared_ptr<Device> device, void* stream) {
  return std::make_shared<GpuForwardOp>(plan, std::move(device), stream);
}

}  // namespace fa4::internal
