#include "plan/cpu_backward_spec.h"

#include <algorithm>

#include "core/rounding.h"
#include "plan/cpu_tuning.h"

namespace fa4::internal {
namespace {

struct Tuning {
  CpuIsa isa;
  int tile_m;  // a multiple of 6, the rows of the products' inner loop, and even; AMX: of 32
  int tile_n;  // a multiple of the path's column panel
  const char* why;
};
constexpr Tuning kRows[] = {
    {CpuIsa::kScalar, 16, 16, "rows and keys one at a time"},
    {CpuIsa::kAvx2, 96, 256,
     "Zen 2, one thread, d 128 and d 64, GFLOP/s: bf16, 8192 keys, 96 x 128 76, 77; 96 x 256 82, "
     "80; "
     "2048 keys, 96 x 128 73, 76; 96 x 256 78, 76; 192 x 128 74, 75; 48 x 128 67, 68; f32, 8192 "
     "keys, 96 x 128 52, 50; 96 x 256 56, 52"},
    {CpuIsa::kAvx512, 96, 256,
     "f32, Zen 4, one thread, time of the process, d 128 and d 64, GFLOP/s: 2048 keys, 96 x 128 "
     "68, 68; 96 x 256 68, 67; 96 x 384 70, 68; 192 x 128 65, 64; 192 x 256 68, 65; 384 x 128 65, "
     "64; "
     "8192 keys, 96 x 256 69, 65; 96 x 384 67, 63; 96 x 512 67, 65"},
    {CpuIsa::kAvx512Bf16, 96, 256,
     "the same, bf16: 2048 keys, 96 x 128 185, 176; 96 x 256 182, 177; 96 x 384 185, 176; 192 x "
     "128 185, 177; 192 x 256 179, 176; 384 x 128 181, 173; 8192 keys, 96 x 128 169, 168; 96 x 256 "
     "182, 176; 96 x 384 180, 177; 96 x 512 179, 175"},
    {CpuIsa::kAmxBf16, 192, 512,
     "Xeon with AMX, two threads, d 128, not causal and causal, GFLOP/s: 8192 keys, 192 x 512 "
     "1288, 1148; 256 x 256 1249, 1135; 192 x 256 1160, 1052; 512 x 128 1133, 1012; 256 x 512 "
     "1104, 1091; 1024 x 256 1091, 987; 384 x 384 1088, 1124; 512 x 256 1044, 921"},
    {CpuIsa::kAmxModel, 64, 64, "small: every edge in a small test"},
};

const Tuning& tuning_of(CpuIsa isa) {
  for (const Tuning& row : kRows) {
    if (row.isa == isa) return row;
  }
  return kRows[0];
}

// Threads work on heads of their own where there are enough, and find enough tasks between two
// barriers.
int choose_heads_per_wave(const AttentionProblem& p, const CpuBackwardSpec& spec) {
  const int64_t heads = p.batch * p.heads_kv;
  const int64_t blocks = std::max<int64_t>(1, ceil_div(p.seqlen_k, spec.tile_n));
  const int64_t wanted =
      std::max<int64_t>(spec.num_threads, ceil_div(kTasksPerThread * spec.num_threads, blocks));
  const size_t bytes = std::max<size_t>(1, cpu_backward_scratch(p, spec).bytes_per_head);
  const int64_t fitting = std::max<int64_t>(1, static_cast<int64_t>(kSharedBytes / bytes));
  return static_cast<int>(
      std::clamp<int64_t>(std::min(wanted, fitting), 1, std::max<int64_t>(1, heads)));
}

// Elements of rows, and how many blocks there are.
CpuBackwardScratch row_sizes(const AttentionProblem& p, const CpuBackwardSpec& spec,
                             const CpuPacking& packing) {
  CpuBackwardScratch s;
  s.row_bytes = p.dtype == DType::kF32 ? 8 : 4 / packing.pair;
  s.head_dim_padded = round_up(p.head_dim, packing.head_dim_step);
  s.head_dim_v_padded = round_up(p.head_dim_v, packing.head_dim_step);
  s.dq_columns = round_up(p.head_dim, packing.head_dim_v_step);
  s.dv_columns = round_up(p.head_dim_v, packing.head_dim_v_step);
  s.s_stride = packing.tile_rows > 0 ? packing.tile_rows : spec.tile_n + 16;
  s.num_m_blocks = ceil_div(p.seqlen_q * p.group(), spec.tile_m);
  return s;
}

// A block of keys, and scores of a block of rows.
void lay_out_thread(const AttentionProblem& p, const CpuBackwardSpec& spec,
                    const CpuPacking& packing, CpuBackwardScratch& s) {
  const int64_t tile_m = spec.tile_m, tile_n = spec.tile_n, bytes = 4 / packing.pair;
  const bool tiled = packing.tile_rows > 0;
  Parts thread;
  s.k = thread.add(tile_n * s.head_dim_padded * s.row_bytes);
  s.v = thread.add(tile_n * s.head_dim_v_padded * s.row_bytes);
  s.k_panels = thread.add(tile_n * s.dq_columns * bytes);
  s.dk = thread.add(tile_n * s.dq_columns * 4);
  s.dv = thread.add(tile_n * s.dv_columns * 4);
  // In tiles: two items, one that the tile unit makes and one that the vector unit uses.
  const int64_t score_rows = tiled ? 2 * packing.tile_rows : tile_m;
  s.s = thread.add(score_rows * s.s_stride * 4);
  s.dp = thread.add(score_rows * s.s_stride * 4);
  if (p.dtype == DType::kF32) {
    s.s_low = thread.add(tile_m * s.s_stride * 4);
    s.dp_low = thread.add(tile_m * s.s_stride * 4);
    s.dk_totals = thread.add(tile_n * s.dq_columns * 8);
    s.dv_totals = thread.add(tile_n * s.dv_columns * 8);
  }
  if (packing.pair == 2) {
    const int64_t pairs_stride = tiled ? tile_n : s.s_stride;
    s.p_pairs = thread.add(tile_m / 2 * pairs_stride * 4);
    s.ds_pairs = thread.add(tile_m / 2 * pairs_stride * 4);
    s.ds = thread.add(tile_m * tile_n * bytes);
  }
  s.bytes_per_thread = thread.end();
}

void lay_out_block(const AttentionProblem& p, const CpuBackwardSpec& spec,
                   const CpuPacking& packing, CpuBackwardScratch& s) {
  const int64_t tile_m = spec.tile_m, bytes = 4 / packing.pair;
  Parts block;
  s.q = block.add(tile_m * s.head_dim_padded * s.row_bytes);
  s.dout = block.add(tile_m * s.head_dim_v_padded * s.row_bytes);
  s.q_panels = block.add(tile_m * s.dq_columns * bytes);
  s.dout_panels = block.add(tile_m * s.dv_columns * bytes);
  s.lse = block.add(tile_m * 4);
  s.lse_low = block.add(tile_m * 4);
  s.row_delta = block.add(tile_m * 4);
  s.delta_low = block.add(tile_m * 4);
  s.ranges = block.add(tile_m * 16);
  s.dq = block.add(tile_m * s.dq_columns * 4);
  if (p.dtype == DType::kF32) s.dq_totals = block.add(tile_m * s.dq_columns * 8);
  s.bytes_per_block = block.end();
}

// Its blocks of rows, and their words.
void lay_out_head(CpuBackwardScratch& s) {
  Parts head;
  head.add(s.num_m_blocks * static_cast<int64_t>(s.bytes_per_block));
  s.turn = head.add(s.num_m_blocks * 4);
  s.nonfinite = head.add(s.num_m_blocks * 4);
  s.bytes_per_head = head.end();
}

}  // namespace

bool isa_supports_backward(CpuIsa isa, DType dtype) {
  switch (isa) {
    case CpuIsa::kScalar:
    case CpuIsa::kAvx2:
    case CpuIsa::kAvx512: return true;
    case CpuIsa::kAvx512Bf16:
    case CpuIsa::kAmxBf16:
    case CpuIsa::kAmxModel: return dtype == DType::kBF16;
    case CpuIsa::kAvx512Fp16: return false;
  }
  return false;
}

CpuBackwardSpec plan_cpu_backward(const AttentionProblem& problem, const DeviceSpec& device,
                                  int num_threads, std::optional<CpuIsa> forced) {
  CpuBackwardSpec spec;
  spec.isa = forced.value_or(best_isa(device, problem.dtype, isa_supports_backward));
  check_isa(spec.isa, device, problem.dtype, isa_supports_backward);
  spec.num_threads = std::max(1, num_threads > 0 ? num_threads : device.num_threads);
  const Tuning& tuning = tuning_of(spec.isa);
  spec.tile_m = tuning.tile_m;
  spec.tile_n = tuning.tile_n;
  if (spec.isa != CpuIsa::kScalar) spec.heads_per_wave = choose_heads_per_wave(problem, spec);
  return spec;
}

CpuBackwardScratch cpu_backward_scratch(const AttentionProblem& p, const CpuBackwardSpec& spec) {
  if (spec.isa == CpuIsa::kScalar) return {};
  const CpuPacking packing = cpu_packing(spec.isa);
  CpuBackwardScratch s = row_sizes(p, spec, packing);
  lay_out_thread(p, spec, packing, s);
  lay_out_block(p, spec, packing, s);
  lay_out_head(s);
  s.threads_bytes = static_cast<size_t>(spec.num_threads) * s.bytes_per_thread;
  s.heads_bytes = static_cast<size_t>(spec.heads_per_wave) * s.bytes_per_head;
  return s;
}

WorkspaceLayout cpu_backward_workspace(const AttentionProblem& problem,
                                       const CpuBackwardSpec& spec) {
  const CpuBackwardScratch scratch = cpu_backward_scratch(problem, spec);
  WorkspaceLayout layout;
  layout.add(kDelta, problem.lse_elements() * 8);
  layout.add(kThreads, static_cast<int64_t>(scratch.threads_bytes));
  layout.add(kHeads, static_cast<int64_t>(scratch.heads_bytes));
  return layout;
}

}  // namespace fa4::internal
