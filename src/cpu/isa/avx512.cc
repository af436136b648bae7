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
  store_elements(dtype, sums, factor, dim, data, offset);
}

float peak_loop_avx512(int64_t rounds) { return run_peak_loop<Avx512Path, 24>(rounds); }

}  // namespace fa4::internal
