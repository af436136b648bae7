#include "plan/gpu_append_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/rounding.h"
#include "kernels/append/traits.h"
#include "plan/gpu_plan.h"

namespace fa4::internal {
namespace {

constexpr int64_t kMostRows = int64_t{1} << 30;
constexpr int64_t kMostCtas = int64_t{1} << 31;

std::string check_strides(const AttentionProblem& p, const AppendArgs& a) {
  const bool packed = p.layout_q == Layout::kPacked, paged = p.layout_kv == Layout::kPaged;
  const int64_t rows = packed ? p.total_q : p.seqlen_q;
  const int bytes = size_of(p.kv_dtype);
  const int64_t outer = paged ? p.num_pages : p.batch, room = paged ? p.page_size : p.seqlen_k;
  for (const std::string& problem :
       {check_gpu_strides("k", a.new_k, 2, p.batch, rows, p.heads_kv, packed),
        check_gpu_strides("v", a.new_v, 2, p.batch, rows, p.heads_kv, packed),
        check_gpu_strides("k_cache", p.k, bytes, outer, room, p.heads_kv, false),
        check_gpu_strides("v_cache", p.v, bytes, outer, room, p.heads_kv, false)}) {
    if (!problem.empty()) return problem;
  }
  return "";
}

}  // namespace

Support query_append_support(const AttentionProblem& p, const AppendArgs& a,
                             const DeviceSpec& device) {
  const auto no = [](std::string reason) { return Support{false, std::move(reason)}; };
  const std::vector<std::string> known = prebuilt_architectures();
  if (std::find(known.begin(), known.end(), device.architecture) == known.end()) {
    return no(fmt::format(
        "architecture {} of device {}; accepted for fa4_append: a CPU, sm_90a, sm_100a, sm_103a",
        device.architecture, device.name));
  }
  if (p.dtype == DType::kF32) return no("dtype f32; accepted on a GPU: bf16, f16");
  if (a.cos != nullptr && a.rotary_rows < 1) {
    return no(fmt::format("rotary_rows {}; accepted on a GPU: 1 or more", a.rotary_rows));
  }
  const AppendTiling tiling = append_tiling(p);
  const int64_t rows = p.rows_q();
  if (rows >= kMostRows || rows * tiling.ctas_per_row >= kMostCtas) {
    return no(fmt::format(
        "{} new rows of {} key heads; accepted on a GPU: below 2^30 rows and 2^31 parts of 4096 "
        "bytes",
        rows, p.heads_kv));
  }
  const std::string strides = check_strides(p, a);
  return strides.empty() ? Support{} : no(strides);
}

KernelSource append_source(Element element, bool is_quantised) {
  return {
      .main_file = "append/append.cuh",
      .name_expression = fmt::format("fa4::append_rows<{}, {}>", enumerator(element), is_quantised),
      .display_name = fmt::format("append_{}{}", name_of(element), is_quantised ? "_e4m3" : "")};
}

AppendTiling append_tiling(const AttentionProblem& p) {
  AppendTiling tiling;
  tiling.pieces = static_cast<int>(p.heads_kv * (p.head_dim + p.head_dim_v) / kAppendPiece);
  tiling.rows_per_cta = std::max(1, kAppendThreads / tiling.pieces);
  tiling.ctas_per_row = static_cast<int>(ceil_div(tiling.pieces, kAppendThreads));
  return tiling;
}

}  // namespace fa4::internal
