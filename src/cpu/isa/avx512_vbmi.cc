// AVX-512 VBMI: e4m3 where it lies, by tables of 128 bytes that one instruction looks up.
#include "cpu/isa/direct_loop.h"
#include "cpu/isa/rows_avx512.h"

namespace fa4::internal {
namespace {

// The low (kByte 0) or high byte of the bf16 that is e4m3 `code`, which has no sign.
constexpr uint8_t byte_of_bf16(int code, int byte) {
  int bits = 0x7fc0;
  if (code < 8) {  // mantissa 2^-9, its leading one away
    const int leading = code < 2 ? 0 : code < 4 ? 1 : 2;
    bits = code == 0 ? 0 : (118 + leading) << 7 | (code << (7 - leading) & 0x7f);
  } else if (code < 127) {
    bits = (code << 4) + (120 << 7);
  }
  return static_cast<uint8_t>(bits >> 8 * byte);
}

struct Table {
  alignas(64) uint8_t bytes[128];
  constexpr explicit Table(int byte) : bytes() {
    for (int code = 0; code < 128; ++code) bytes[code] = byte_of_bf16(code, byte);
  }
};
constexpr Table kLow(0), kHigh(1);

// Every byte `kTimes` times.
template <int kTimes>
struct Repeat {
  alignas(64) uint8_t bytes[64];
  constexpr Repeat() : bytes() {
    for (int i = 0; i < 64; ++i) bytes[i] = static_cast<uint8_t>(i / kTimes);
  }
};
constexpr Repeat<2> kTwice;
constexpr Repeat<4> kFourTimes;

struct Avx512VbmiRows : Avx512Rows {
  template <KeyType kType, bool kHalf>
  static F load_elements(const void* row, int at) {
    static_assert(kType == KeyType::kE4M3);
    const auto* from = reinterpret_cast<const __m128i*>(static_cast<const uint8_t*>(row) + at);
    const __m128i bytes = kHalf ? _mm_loadl_epi64(from) : _mm_loadu_si128(from);
    const __m512i codes =
        _mm512_permutexvar_epi8(load_table(kFourTimes.bytes), _mm512_zextsi128_si512(bytes));
    return _mm512_castsi512_ps(
        _mm512_and_si512(bf16_of(codes), _mm512_set1_epi32(static_cast<int>(0xffff0000))));
  }
  template <KeyType kType>
  static void load_pair(const void* row, int at, F& first, F& second) {
    const __m256i bytes =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(static_cast<const uint8_t*>(row) + at));
    const __m512i bits =
        bf16_of(_mm512_permutexvar_epi8(load_table(kTwice.bytes), _mm512_zextsi256_si512(bytes)));
    first = _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
    second = _mm512_castsi512_ps(
        _mm512_and_si512(bits, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
  }

 private:
  static __m512i load_table(const uint8_t* bytes) { return _mm512_load_si512(bytes); }

  // Of halves that hold a code twice.
  static __m512i bf16_of(__m512i codes) {
    const __m512i low = _mm512_maskz_permutex2var_epi8(0x5555555555555555u, load_table(kLow.bytes),
                                                       codes, load_table(kLow.bytes + 64));
    const __m512i high =
        _mm512_permutex2var_epi8(load_table(kHigh.bytes), codes, load_table(kHigh.bytes + 64));
    constexpr int kOrAnd = 0xf8;  // a | (b & c)
    const __m512i magnitude =
        _mm512_ternarylogic_epi32(low, high, _mm512_set1_epi16(0x7f00), kOrAnd);
    return _mm512_ternarylogic_epi32(magnitude, codes, _mm512_set1_epi16(-0x8000), kOrAnd);
  }
};

}  // namespace

void run_e4m3_rows_avx512_vbmi(TileJob& job) {
  switch (job.exp2_degree) {
    case 3: return DirectLoop<Avx512VbmiRows, 3, KeyType::kE4M3>(job).run();
    case 4: return DirectLoop<Avx512VbmiRows, 4, KeyType::kE4M3>(job).run();
    default: return DirectLoop<Avx512VbmiRows, 6, KeyType::kE4M3>(job).run();
  }
}

}  // namespace fa4::internal
