// AVX-512 BF16: vdpbf16ps multiplies pairs of bf16 and adds both products to a float.
#include "cpu/isa/backward_loop.h"
#include "cpu/isa/peak_loop.h"
#include "cpu/isa/peak_loops.h"
#include "cpu/isa/tile_loop.h"
#include "cpu/isa/vec_avx512_bf16.h"

namespace fa4::internal {
namespace {

struct Avx512Bf16Path : Avx512Bf16Vec {
  static constexpr int kPair = 2;
  static constexpr int kPanels = 4;

  static F broadcast_unit(const uint32_t* p) {
    const int unit = static_cast<int>(*p);
#ifdef __clang__  // Version 16 crashes when it optimises the other line.
    return _mm512_castsi512_ps(_mm512_broadcast_i32x4(_mm_set1_epi32(unit)));
#else
    return _mm512_castsi512_ps(_mm512_set1_epi32(unit));
#endif
  }
  static F load_units(const uint32_t* p) { return _mm512_castsi512_ps(_mm512_loadu_si512(p)); }
  static F multiply_add(F sum, F a, F b) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
};

}  // namespace

void run_tile_avx512_bf16(TileJob& job) { run_tile<Avx512Bf16Path>(job); }

void run_backward_block_avx512_bf16(BackwardJob& job) { run_backward_block<Avx512Bf16Path>(job); }

float peak_loop_avx512_bf16(int64_t rounds) { return run_peak_loop<Avx512Bf16Path, 24>(rounds); }

}  // namespace fa4::internal
