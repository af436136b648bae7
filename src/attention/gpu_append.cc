#include "attention/gpu_append.h"

#include <fmt/format.h>

#include "attention/forward_params.h"
#include "core/error.h"
#include "core/rounding.h"
#include "kernels/append/params.h"
#include "kernels/append/traits.h"
#include "plan/gpu_append_plan.h"

namespace fa4::internal {
namespace {

std::vector<KernelStep> steps_of(Element element, bool is_quantised) {
  return {{.source = append_source(element, is_quantised),
           .params = KernelParams::kAppend,
           .threads = kAppendThreads}};
}

AppendTensor tensor_of(const AttentionProblem& p, const AppendArgs& a, Quantised which) {
  const bool of_keys = which == Quantised::kKeys;
  const Strides& rows = of_keys ? a.new_k : a.new_v;
  const Strides& cache = of_keys ? p.k : p.v;
  const Strides& descale = of_keys ? p.k_descale : p.v_descale;
  return {.from = of_keys ? a.k : a.v,
          .from_batch = rows.batch,
          .from_seqlen = rows.seqlen,
          .from_head = rows.head,
          .to = of_keys ? a.k_cache : a.v_cache,
          .to_outer = cache.batch,
          .to_seqlen = cache.seqlen,
          .to_head = cache.head,
          .pieces = static_cast<int32_t>((of_keys ? p.head_dim : p.head_dim_v) / kAppendPiece),
          .descale = of_keys ? a.k_descale : a.v_descale,
          .descale_batch = p.has_page_descales() ? 0 : descale.batch,
          .descale_block = descale.seqlen,
          .descale_head = descale.head};
}

RotaryParams rotary_of(const AppendArgs& a) {
  if (a.cos == nullptr) return {};
  return {.cos = a.cos,
          .sin = a.sin,
          .half = static_cast<int32_t>(a.rotary_dim / 2),
          .rows = static_cast<int32_t>(a.rotary_rows),
          .type = float_type(a.rotary_dtype),
          .interleaved = a.rotary_pairs == RotaryPairs::kInterleaved};
}

}  // namespace

GpuAppend::GpuAppend(std::shared_ptr<Device> device, Element element, bool is_quantised,
                     void* stream)
    : gpu_(std::move(device), steps_of(element, is_quantised), {}, stream) {}

void GpuAppend::execute(const AttentionProblem& p, const AppendArgs& a) const {
  GpuOp::check_base("k", a.k);
  GpuOp::check_base("v", a.v);
  GpuOp::check_base("k_cache", a.k_cache);
  GpuOp::check_base("v_cache", a.v_cache);
  const bool packed = p.layout_q == Layout::kPacked;
  const int64_t rows = packed ? rows_of_packed_q(p, a) : p.rows_q();
  const bool no_room = p.seqlen_k == 0 || (p.layout_kv == Layout::kPaged && p.num_pages == 0);
  if (p.batch == 0 || rows == 0 || no_room) return;
  const AppendTiling tiling = append_tiling(p);
  const AppendParams params{.k = tensor_of(p, a, Quantised::kKeys),
                            .v = tensor_of(p, a, Quantised::kValues),
                            .sequences = sequence_params(p, a),
                            .pages = page_table_params(p, a),
                            .rotary = rotary_of(a),
                            .positions = a.positions,
                            .heads_kv = static_cast<int32_t>(p.heads_kv),
                            .page_descales = p.has_page_descales(),
                            .descale_shift = descale_shift(p),
                            .rows = static_cast<int32_t>(rows),
                            .pieces = tiling.pieces,
                            .rows_per_cta = tiling.rows_per_cta,
                            .ctas_per_row = tiling.ctas_per_row};
  const int64_t grid = ceil_div(rows, tiling.rows_per_cta) * tiling.ctas_per_row;
  gpu_.launch(0, static_cast<int>(grid), params, a.stream);
}

}  // namespace fa4::internal
