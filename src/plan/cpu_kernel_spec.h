// Which CPU path runs a problem, with which tiles and how many threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/device_spec.h"
#include "problem/attention_problem.h"

namespace fa4::internal {

// kAmxModel is the AMX path over the scalar model of the tile unit: for tests, on every machine.
enum class CpuIsa { kScalar, kAvx2, kAvx512, kAvx512Bf16, kAvx512Fp16, kAmxBf16, kAmxModel };

std::string_view name_of(
    CpuIsa isa);  // "scalar", "avx2", "avx512", "avx512_bf16", "avx512_fp16", "amx", "amx_model"
std::optional<CpuIsa> parse_cpu_isa(std::string_view text);

struct CpuKernelSpec {
  CpuIsa isa = CpuIsa::kScalar;
  int tile_m = 0;  // rows of a task: queries of one key head, all query heads of its group
  int tile_n = 0;  // keys of a block
  int num_threads = 1;
  int heads_per_wave = 0;  // key heads packed at once for all threads; 0: each task packs its own
  // A row's keys are cut at multiples of this, and the parts' sums put together in their order; 0:
  // they are not cut. It depends on neither the batch nor the number of threads: bits depend on it.
  int64_t split_keys = 0;
  bool parts_are_tasks = false;  // of a head's only tile, for threads that find too few tiles
  // Key heads of a task of parts, whose blocks it reads in turns: heads that lie side by side in a
  // key's row are read in the order of memory. No bit depends on it.
  int heads_together = 1;
  bool direct = false;          // keys and values are not packed, but read where they lie
  bool looks_up_bytes = false;  // of e4m3, by AVX-512 VBMI; no number's bits depend on it
};

// Whether `device` has what `isa` needs.
bool has_isa(const CpuFeatures& features, CpuIsa isa);
// Whether a path is built with AVX-512.
bool has_avx512(CpuIsa isa);
// Whether `isa` has a kernel for `dtype`.
bool isa_supports(CpuIsa isa, DType dtype);

// Of a direction: isa_supports, or isa_supports_backward.
using IsaSupports = bool(CpuIsa isa, DType dtype);
// The best path of `device` that `supports` has for `dtype`, no better than config().cpu_isa.
CpuIsa best_isa(const DeviceSpec& device, DType dtype, IsaSupports& supports);
// Throws Error{kNotSupported}, with the paths that are accepted, unless `isa` is one.
void check_isa(CpuIsa isa, const DeviceSpec& device, DType dtype, IsaSupports& supports);

// The best path that `device` has for `problem`, no better than config().cpu_isa; or `forced`,
// which the device and the dtype must allow: Error{kNotSupported}. `num_threads` 0: as many as the
// device has.
CpuKernelSpec plan_cpu(const AttentionProblem& problem, const DeviceSpec& device, int num_threads,
                       std::optional<CpuIsa> forced = {});

// Where a path keeps its data, in bytes; every part begins at a multiple of 256.
//
// Per thread: q (tile_m rows), s (scores, f32), p (probabilities as the matrix unit wants them),
// o (sums, f32; of f32 inputs what they lack, and those not yet in them), stats, and keys and
// values of one block. Shared: keys and values of heads_per_wave heads, block by block; then the
// sums of parts that are tasks: for each head and part tile_m rows of head_dim_v + 2 floats: the
// maximum, the sum of the weights, those of values.
struct CpuScratch {
  int64_t head_dim_padded = 0;    // elements of a packed row of q and k
  int64_t head_dim_v_padded = 0;  // elements of a row of o
  int64_t element_bytes = 0;      // of packed q, k, v and p: 2 (bf16 pairs) or 4 (f32)
  int64_t num_n_blocks = 0;       // of the longest key sequence
  size_t k_block_bytes = 0, v_block_bytes = 0;
  size_t descale_bytes = 0;  // of a block: those of its keys, then those of its values; 0: none
  size_t q_offset = 0, s_offset = 0, p_offset = 0, o_offset = 0, o_low_offset = 0,
         o_plain_offset = 0, stats_offset = 0;
  size_t kv_offset = 0;         // of a thread that packs its own: a block; direct: its v
  size_t whole_offset = 0;      // of rows whose keys are cut: what they see of all parts,
  size_t sums_offset = 0;       // and their sums so far: those of parts that are tasks, in double
  size_t bytes_per_thread = 0;  // 0: this path needs none
  size_t bytes_per_head = 0;    // shared: all blocks, then a flag a block
  // The bytes of a packed block: k, v, descales.
  size_t block_bytes() const { return k_block_bytes + v_block_bytes + descale_bytes; }
  int64_t num_parts = 0;    // of the longest key sequence
  int64_t sums_stride = 0;  // numbers of a row of sums
  size_t threads_bytes = 0, heads_bytes = 0, parts_bytes = 0;
  size_t total_bytes = 0;  // threads first, then shared heads, then parts
};
CpuScratch cpu_scratch(const AttentionProblem& problem, const CpuKernelSpec& spec);

// Scratch of all threads together, 256-byte aligned: cpu_scratch().total_bytes.
size_t cpu_workspace_bytes(const AttentionProblem& problem, const CpuKernelSpec& spec);

}  // namespace fa4::internal
