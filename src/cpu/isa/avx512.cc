// AVX-512: products of floats; bf16 and f16 become floats when packed.
#include "cpu/isa/backward_loop.h"
#include "cpu/isa/peak_loop.h"
#include "cpu/isa/peak_loops.h"
#include "cpu/isa/tile_loop.h"
#include "cpu/isa/vec_avx512.h"

namespace fa4::internal {
namespace {

struct Avx512Path : Avx512Vec {
  using P = float;
  static constexpr int kPair = 1;
  static constexpr int kPanels = 4;

  static F broadcast_unit(const uint32_t* p) {
    return _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(*p)));
  }
  static F load_units(const uint32_t* p) { return _mm512_castsi512_ps(_mm512_loadu_si512(p)); }
  static F multiply_add(F sum, F a, F b) { return _mm512_fmadd_ps(a, b, sum); }
  static void store_probabilities(P* p, F first, F second) {
    store(p, first);
    store(p + kLanes, second);
  }
};

}  // namespace

void run_tile_avx512(TileJob& job) { run_tile<Avx512Path>(job); }

void run_backward_block_avx512(BackwardJob& job) { run_backward_block<Avx512Path>(job); }

float peak_loop_avx512(int64_t rounds) { return run_peak_loop<Avx512Path, 24>(rounds); }

}  // namespace fa4::internal
