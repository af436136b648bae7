// AVX-512: products of floats; bf16 and f16 become floats when packed.
#include "cpu/isa/backward_loop.h"
#include "cpu/isa/direct_loop.h"
#include "cpu/isa/peak_loop.h"
#include "cpu/isa/peak_loops.h"
#include "cpu/isa/rows_avx512.h"
#include "cpu/isa/store_avx512.h"
#include "cpu/isa/tile_loop.h"
#include "cpu/store_row.h"

namespace fa4::internal {

void run_rows_avx512(TileJob& job) { run_rows<Avx512Rows>(job); }

void run_tile_avx512(TileJob& job) { run_tile<Avx512Path>(job); }

void run_backward_block_avx512(BackwardJob& job) { run_backward_block<Avx512Path>(job); }

void store_row_avx512(DType dtype, const float* sums, float factor, int64_t dim, void* data,
                      int64_t offset) {
  char* to = static_cast<char*>(data) + offset * (dtype == DType::kF32 ? 4 : 2);
  if (dtype == DType::kF32) return store_elements<DType::kF32>(sums, factor, dim, to);
  if (dtype == DType::kF16) return store_elements<DType::kF16>(sums, factor, dim, to);
  store_elements<DType::kBF16>(sums, factor, dim, to);
}

float peak_loop_avx512(int64_t rounds) { return run_peak_loop<Avx512Path, 24>(rounds); }

}  // namespace fa4::internal
