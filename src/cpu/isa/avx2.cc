// AVX2 and FMA: products of floats, eight at a time; bf16 and f16 become floats when packed.
#include <immintrin.h>

#include "cpu/isa/backward_loop.h"
#include "cpu/isa/direct_loop.h"
#include "cpu/isa/peak_loop.h"
#include "cpu/isa/peak_loops.h"
#include "cpu/isa/tile_loop.h"

namespace fa4::internal {
namespace {

// Four doubles; of floats exactly, and stored as floats they are rounded.
struct Avx2Doubles {
  using F = __m256d;
  using Number = double;
  static constexpr int kLanes = 4;

  static F zero() { return _mm256_setzero_pd(); }
  static F set1(double x) { return _mm256_set1_pd(x); }
  static F load(const float* p) { return _mm256_cvtps_pd(_mm_loadu_ps(p)); }
  static F load(const double* p) { return _mm256_loadu_pd(p); }
  static void store(float* p, F x) { _mm_storeu_ps(p, _mm256_cvtpd_ps(x)); }
  // As floats, and what those lack; NaN and infinities lack nothing.
  static void store_split(float* high, float* low, F x) {
    const __m128 rounded = _mm256_cvtpd_ps(x);
    const __m128 rest = _mm256_cvtpd_ps(_mm256_sub_pd(x, _mm256_cvtps_pd(rounded)));
    _mm_storeu_ps(high, rounded);
    _mm_storeu_ps(low, _mm_and_ps(rest, _mm_cmpord_ps(rest, rest)));
  }
  static F add(F a, F b) { return _mm256_add_pd(a, b); }
  static F sub(F a, F b) { return _mm256_sub_pd(a, b); }
  static F mul(F a, F b) { return _mm256_mul_pd(a, b); }
  static F div(F a, F b) { return _mm256_div_pd(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_pd(a, b, c); }
  static F max(F a, F b) { return _mm256_max_pd(a, b); }
  static F min(F a, F b) { return _mm256_min_pd(a, b); }
  static double reduce_add(F x) {
    const __m128d sum = _mm_add_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd(x, 1));
    return _mm_cvtsd_f64(_mm_add_sd(sum, _mm_unpackhi_pd(sum, sum)));
  }
  static F to_exponent(F x) {
    return _mm256_castsi256_pd(_mm256_slli_epi64(_mm256_castpd_si256(x), 52));
  }
};

struct Avx2Path {
  using F = __m256;
  using Unaligned = __m256_u;
  using Number = float;
  using Doubles = Avx2Doubles;
  using P = float;
  static constexpr int kLanes = 8;
  static constexpr int kPair = 1;
  static constexpr int kPanels = 2;
  // Twelve sums of compensated scores leave no registers for their totals.
  static constexpr int kScoreRows = 6, kScorePart = 3;
  static constexpr bool kTotalsInRegisters = false;

  static F zero() { return _mm256_setzero_ps(); }
  static F set1(float x) { return _mm256_set1_ps(x); }
  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F div(F a, F b) { return _mm256_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm256_max_ps(a, b); }
  static F min(F a, F b) { return _mm256_min_ps(a, b); }
  static F to_exponent(F x) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(x), 23));
  }
  static bool any_nan(F x) { return _mm256_movemask_ps(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)) != 0; }
  static float reduce_max(F x) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
  }
  static F lanes_of(int begin, int end) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i from = _mm256_cmpgt_epi32(lane, _mm256_set1_epi32(begin - 1));
    const __m256i until = _mm256_cmpgt_epi32(_mm256_set1_epi32(end), lane);
    return _mm256_castsi256_ps(_mm256_and_si256(from, until));
  }
  static F keep_range(F x, int begin, int end) {
    return _mm256_blendv_ps(_mm256_set1_ps(-__builtin_inff()), x, lanes_of(begin, end));
  }
  static F keep_or_zero(F x, int begin, int end) { return _mm256_and_ps(x, lanes_of(begin, end)); }

  // Products of Doubles.
  static constexpr int kDoubleRows = 3;    // of sums in registers
  static constexpr int kDoublePanels = 2;  // of kLanes columns

  static F broadcast_unit(const uint32_t* p) {
    return _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(*p)));
  }
  static F load_units(const uint32_t* p) {
    return _mm256_castsi256_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static F multiply_add(F sum, F a, F b) { return _mm256_fmadd_ps(a, b, sum); }
  static void store_probabilities(P* p, F first, F second) {
    store(p, first);
    store(p + kLanes, second);
  }
};

// Keys and values where they lie, eight elements at a time: head_dim has no other remainder.
struct Avx2Rows : Avx2Path {
  template <KeyType kType, bool kHalf>
  static F load_elements(const void* row, int at) {
    if constexpr (kType == KeyType::kF32) return load(static_cast<const float*>(row) + at);
    if constexpr (kType == KeyType::kE4M3) {
      const __m128i bytes =
          _mm_loadl_epi64(reinterpret_cast<const __m128i*>(static_cast<const uint8_t*>(row) + at));
      return floats_of_e4m3(_mm_slli_epi16(_mm_cvtepu8_epi16(bytes), 8));
    }
    const __m128i bits =
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(static_cast<const uint16_t*>(row) + at));
    if constexpr (kType == KeyType::kF16) return _mm256_cvtph_ps(bits);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  // bf16 and e4m3: those of even places, then those of odd ones.
  template <KeyType kType>
  static void load_pair(const void* row, int at, F& first, F& second) {
    if constexpr (kType == KeyType::kBF16) {
      const __m256i bits = _mm256_loadu_si256(
          reinterpret_cast<const __m256i*>(static_cast<const uint16_t*>(row) + at));
      first = _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
      second = _mm256_castsi256_ps(_mm256_and_si256(bits, _mm256_set1_epi32(~0xffff)));
    } else if constexpr (kType == KeyType::kE4M3) {
      const __m128i bytes =
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(static_cast<const uint8_t*>(row) + at));
      first = floats_of_e4m3(_mm_slli_epi16(bytes, 8));
      second = floats_of_e4m3(bytes);
    } else {
      first = load_elements<kType, false>(row, at);
      second = load_elements<kType, false>(row, at + kLanes);
    }
  }
  static float reduce_add(F x) {
    __m128 sum = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
    return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
  }
  static void widen(double* to, F x) {
    _mm256_storeu_pd(to, _mm256_cvtps_pd(_mm256_castps256_ps128(x)));
    _mm256_storeu_pd(to + 4, _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)));
  }

 private:
  // Of the high byte of each half: moved right by a bit it is the f16 2^-8 times as large.
  static F floats_of_e4m3(__m128i halves) {
    const __m128i magnitude = _mm_set1_epi16(0x3f80);
    const __m128i f16 =
        _mm_and_si128(_mm_srai_epi16(halves, 1), _mm_set1_epi16(-0x4080));  // 0xbf80
    const __m128i is_nan = _mm_cmpeq_epi16(_mm_and_si128(f16, magnitude), magnitude);
    // A NaN's f16 has all exponent bits.
    return _mm256_mul_ps(_mm256_cvtph_ps(_mm_or_si128(f16, is_nan)), _mm256_set1_ps(256.0f));
  }
};

}  // namespace

void run_rows_avx2(TileJob& job) { run_rows<Avx2Rows>(job); }

void run_tile_avx2(TileJob& job) { run_tile<Avx2Path>(job); }

void run_backward_block_avx2(BackwardJob& job) { run_backward_block<Avx2Path>(job); }

float peak_loop_avx2(int64_t rounds) { return run_peak_loop<Avx2Path, 12>(rounds); }

}  // namespace fa4::internal
