#include "plan/cpu_kernel_spec.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include <fmt/format.h>

#include "core/config.h"
#include "core/error.h"
#include "core/rounding.h"
#include "plan/cpu_tuning.h"

namespace fa4::internal {
namespace {

struct Name {
  CpuIsa isa;
  std::string_view text;
};
// In the order of FA4_CPU_ISA: a cap allows itself and what stands before it.
constexpr Name kNames[] = {
    {CpuIsa::kScalar, "scalar"},          {CpuIsa::kAvx2, "avx2"},
    {CpuIsa::kAvx512, "avx512"},          {CpuIsa::kAvx512Bf16, "avx512_bf16"},
    {CpuIsa::kAvx512Fp16, "avx512_fp16"}, {CpuIsa::kAmxBf16, "amx"},
    {CpuIsa::kAmxModel, "amx_model"},
};

// Rows of a task: the row of the table, fewer when there are fewer rows or too few tasks.
int choose_tile_m(const AttentionProblem& p, const CpuTuning& tuning, int num_threads) {
  const int64_t rows = std::max<int64_t>(1, p.seqlen_q * p.group());
  const int64_t heads = std::max<int64_t>(1, p.batch * p.heads_kv);
  const int64_t tiles_wanted = ceil_div(4 * num_threads, heads);
  const int64_t fair = round_up(ceil_div(rows, tiles_wanted), tuning.row_step);
  const int64_t least = std::min<int64_t>(tuning.least_tile_m, round_up(rows, tuning.row_step));
  return static_cast<int>(std::clamp<int64_t>(fair, least, tuning.tile_m));
}

// Heads packed at once, so that every thread finds enough tasks between two barriers.
int choose_heads_per_wave(const AttentionProblem& p, int tile_m, int num_threads,
                          size_t bytes_per_head) {
  const int64_t tiles = ceil_div(p.seqlen_q * p.group(), tile_m);
  const int64_t heads = p.batch * p.heads_kv;
  if (tiles <= 1 || heads == 0) return 0;
  const int64_t wanted = ceil_div(kTasksPerThread * num_threads, tiles);
  const int64_t fitting = std::max<int64_t>(1, kSharedBytes / std::max<size_t>(1, bytes_per_head));
  return static_cast<int>(std::min({wanted, fitting, heads}));
}

int64_t rows_of_key_head(const AttentionProblem& p) { return p.seqlen_q * p.group(); }

int64_t choose_split_keys(const AttentionProblem& p) {
  if (p.split_keys > 0) return p.split_keys;
  if (p.num_splits == 1) return 0;
  if (p.num_splits > 1) {
    return std::max(kSplitStep, round_up(ceil_div(p.seqlen_k, p.num_splits), kSplitStep));
  }
  return rows_of_key_head(p) <= kMostDirectRows ? kDecodeSplitKeys : 0;
}

// Several in a key's row: one after the other, each would read a piece of every row.
bool heads_lie_side_by_side(const AttentionProblem& p) {
  // The stride of the keys of a page of one key may be any number, the lowest too.
  const auto magnitude = [](int64_t stride) {
    const auto bits = static_cast<uint64_t>(stride);
    return stride < 0 ? 0 - bits : bits;
  };
  return p.heads_kv > 1 && magnitude(p.k.head) < magnitude(p.k.seqlen);
}

// Whether each part of the keys of heads that are one tile is a task.
bool choose_parts_are_tasks(const AttentionProblem& p, const CpuKernelSpec& spec) {
  if (spec.split_keys == 0 || p.seqlen_k <= spec.split_keys) return false;
  if (rows_of_key_head(p) > spec.tile_m) return false;
  const int64_t heads = p.batch * p.heads_kv;
  if (heads < kHeadsPerThread * spec.num_threads) return true;
  if (!spec.direct || !heads_lie_side_by_side(p)) return false;
  // A part has more than a byte of sums: below, bytes are counted in 64 bits.
  const auto most = static_cast<int64_t>(kSharedBytes);
  if (heads > most / ceil_div(p.seqlen_k, spec.split_keys)) return false;
  CpuKernelSpec tasks = spec;
  tasks.parts_are_tasks = true;
  return cpu_scratch(p, tasks).parts_bytes <= kSharedBytes;
}

// Heads side by side in a key's row, as long as all threads find parts.
int choose_heads_together(const AttentionProblem& p, const CpuKernelSpec& spec) {
  if (!spec.direct || !spec.parts_are_tasks || !heads_lie_side_by_side(p)) return 1;
  const int64_t parts = p.batch * ceil_div(p.seqlen_k, spec.split_keys);
  int heads = static_cast<int>(std::min<int64_t>(p.heads_kv, kMostHeadsTogether));
  while (heads > 1 && parts * ceil_div(p.heads_kv, heads) < kPartsPerThread * spec.num_threads) {
    heads = static_cast<int>(ceil_div(heads, 2));
  }
  return heads;
}

}  // namespace

std::string_view name_of(CpuIsa isa) { return kNames[static_cast<int>(isa)].text; }

std::optional<CpuIsa> parse_cpu_isa(std::string_view text) {
  for (const Name& name : kNames) {
    if (name.text == text) return name.isa;
  }
  return {};
}

bool has_isa(const CpuFeatures& f, CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kScalar:
    case CpuIsa::kAmxModel: return true;
    case CpuIsa::kAvx2: return f.avx2;
    case CpuIsa::kAvx512: return f.avx512;
    case CpuIsa::kAvx512Bf16: return f.avx512 && f.avx512_bf16;
    case CpuIsa::kAvx512Fp16: return f.avx512 && f.avx512_fp16;
    case CpuIsa::kAmxBf16: return f.avx512 && f.avx512_bf16 && f.amx_bf16;
  }
  return false;
}

bool has_avx512(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kScalar:
    case CpuIsa::kAvx2:
    case CpuIsa::kAmxModel: return false;
    case CpuIsa::kAvx512:
    case CpuIsa::kAvx512Bf16:
    case CpuIsa::kAvx512Fp16:
    case CpuIsa::kAmxBf16: return true;
  }
  return false;
}

bool isa_supports(CpuIsa isa, DType dtype) {
  switch (isa) {
    case CpuIsa::kScalar:
    case CpuIsa::kAvx2:
    case CpuIsa::kAvx512: return true;
    case CpuIsa::kAvx512Fp16: return false;  // sums in halves break the contract: docs/cpu.md
    case CpuIsa::kAvx512Bf16:
    case CpuIsa::kAmxBf16:
    case CpuIsa::kAmxModel: return dtype == DType::kBF16;
  }
  return false;
}

CpuIsa best_isa(const DeviceSpec& device, DType dtype, IsaSupports& supports) {
  const CpuIsa cap = parse_cpu_isa(config().cpu_isa).value_or(CpuIsa::kAmxBf16);
  for (CpuIsa isa : {CpuIsa::kAmxBf16, CpuIsa::kAvx512Bf16, CpuIsa::kAvx512, CpuIsa::kAvx2}) {
    if (isa <= cap && has_isa(device.cpu, isa) && supports(isa, dtype)) return isa;
  }
  return CpuIsa::kScalar;
}

void check_isa(CpuIsa isa, const DeviceSpec& device, DType dtype, IsaSupports& supports) {
  if (has_isa(device.cpu, isa) && supports(isa, dtype)) return;
  std::string accepted;
  for (const Name& name : kNames) {
    if (!has_isa(device.cpu, name.isa) || !supports(name.isa, dtype)) continue;
    accepted += fmt::format("{}{}", accepted.empty() ? "" : ", ", name.text);
  }
  throw Error(
      ErrorCode::kNotSupported,
      fmt::format("cpu_isa {} for dtype {} on {}; accepted{}: {}", name_of(isa), name_of(dtype),
                  device.model, &supports == &isa_supports ? "" : " for the backward", accepted));
}

CpuKernelSpec plan_cpu(const AttentionProblem& problem, const DeviceSpec& device, int num_threads,
                       std::optional<CpuIsa> forced) {
  CpuIsa isa = forced.value_or(best_isa(device, problem.dtype, isa_supports));
  const std::optional<CpuIsa> direct = direct_path(isa);
  const bool is_direct = rows_of_key_head(problem) <= kMostDirectRows && direct.has_value() &&
                         (!forced.has_value() || *direct == isa);
  if (is_direct) isa = *direct;
  check_isa(isa, device, problem.dtype, isa_supports);
  CpuKernelSpec spec;
  spec.isa = isa;
  spec.num_threads = std::max(1, num_threads > 0 ? num_threads : device.num_threads);
  const CpuTuning& tuning = cpu_tuning(isa, problem.head_dim);
  spec.tile_m = choose_tile_m(problem, tuning, spec.num_threads);
  spec.tile_n = is_direct ? kDirectKeys : tuning.tile_n;
  spec.direct = is_direct;
  spec.looks_up_bytes =
      is_direct && isa == CpuIsa::kAvx512 && problem.is_quantised() && device.cpu.avx512_vbmi;
  spec.split_keys = choose_split_keys(problem);
  if (isa != CpuIsa::kScalar) {
    spec.heads_per_wave = 1;
    const size_t bytes = cpu_scratch(problem, spec).bytes_per_head;
    spec.heads_per_wave = choose_heads_per_wave(problem, spec.tile_m, spec.num_threads, bytes);
    spec.parts_are_tasks = choose_parts_are_tasks(problem, spec);
    spec.heads_together = choose_heads_together(problem, spec);
  }
  return spec;
}

}  // namespace fa4::internal
