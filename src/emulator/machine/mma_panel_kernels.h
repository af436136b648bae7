// The panel kernels in vectors of 16 floats, which the compiler maps to what the host has. Included
// by one file a host instruction set, which defines PTXEMU_MMA_KERNELS; everything is local to it.
#include <cstring>

#include "emulator/machine/mma_panel.h"
#if defined(__AVX512F__) || defined(__SSE2__)
#include <immintrin.h>
#endif

namespace ptxemu {

namespace {

using Float16 = float __attribute__((vector_size(64)));
using Int16 = int32_t __attribute__((vector_size(64)));
using UInt16 = uint32_t __attribute__((vector_size(64)));
using Short32 = int16_t __attribute__((vector_size(64)));
using Short16 = int16_t __attribute__((vector_size(32)));
using UShort16 = uint16_t __attribute__((vector_size(32)));
using Double16 = double __attribute__((vector_size(128)));

// Small functions on vectors must be part of their callers: constants then stay in registers.
#define PTXEMU_PART inline __attribute__((always_inline))

template <class V, class T>
PTXEMU_PART void load(V& v, const T* p) {
  std::memcpy(&v, p, sizeof(V));
}
template <class V, class T>
PTXEMU_PART void store(T* p, const V& v) {
  std::memcpy(p, &v, sizeof(V));
}

PTXEMU_PART void select(Int16& d, const Int16& mask, const Int16& yes, const Int16& no) {
  d = (mask & yes) | (~mask & no);
}

void repair(const MmaPanel& panel, int row, int half, const Int16& slow, const Float16& c,
            float* d) {
  int32_t mask[16];
  float addend[16];
  store(mask, slow);
  store(addend, c);
  const ptrdiff_t b = static_cast<ptrdiff_t>(row) * panel.products;
  for (int i = 0; i < 16; ++i) {
    if (mask[i] == 0) continue;
    const int column = half * 16 + i;
    d[i] = fused_sum(panel.a + column, panel.a_exponent + column, kPanelWidth, panel.b + b,
                     panel.b_exponent + b, panel.products, addend[i], panel.rules);
  }
}

#ifdef __AVX512F__

// One half of a row of results, before and after its products are added.
struct Half {
  __m512 c, scale;
  __m512i unit;
  __mmask16 no_addend, no_product;  // the addend, all products are 0
  __mmask16 slow;                   // must go through fused_sum

  PTXEMU_PART void start(const MmaPanel& panel, int row, int half, const Short32& tops);
  PTXEMU_PART void finish(const MmaPanel& panel, int row, int half, __m512i sum);
};

void Half::start(const MmaPanel& panel, int row, int half, const Short32& tops) {
  const SumRules& rules = panel.rules;
  c = _mm512_setzero_ps();
  if (panel.c[half] != nullptr) c = _mm512_loadu_ps(panel.c[half] + row * panel.stride);
  const __m256i narrow = half == 0 ? _mm512_castsi512_si256((__m512i)tops)
                                   : _mm512_extracti64x4_epi64((__m512i)tops, 1);
  const __m512i product = _mm512_cvtepi16_epi32(narrow);
  const __m512i field =
      _mm512_and_epi32(_mm512_srli_epi32(_mm512_castps_si512(c), 23), _mm512_set1_epi32(255));
  __m512i addend = _mm512_max_epi32(_mm512_sub_epi32(field, _mm512_set1_epi32(127)),
                                    _mm512_set1_epi32(rules.least_addend_exponent));
  no_addend = _mm512_cmp_ps_mask(c, _mm512_setzero_ps(), _CMP_EQ_OQ);
  addend = _mm512_mask_mov_epi32(addend, no_addend, _mm512_set1_epi32(kLeastExponent));
  no_product = _mm512_cmplt_epi32_mask(product, _mm512_set1_epi32(kNoProductExponent));
  const __m512i low = _mm512_set1_epi32(kLeastFastExponent);
  const __m512i high = _mm512_set1_epi32(kMostFastExponent);
  const __m512i top = _mm512_max_epi32(product, addend);
  slow = static_cast<__mmask16>(
      _mm512_cmpgt_epi32_mask(top, high) |
      _mm512_mask_cmplt_epi32_mask(static_cast<__mmask16>(~no_product), top, low));
  unit = _mm512_sub_epi32(_mm512_min_epi32(_mm512_max_epi32(top, low), high),
                          _mm512_set1_epi32(rules.fraction_bits));
  scale =
      _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_sub_epi32(_mm512_set1_epi32(127), unit), 23));
}

PTXEMU_PART __mmask16 overflowed(__m512i x, __m512i y, __m512i sum) {
  return _mm512_movepi32_mask(_mm512_and_epi32(_mm512_xor_epi32(x, sum), _mm512_xor_epi32(y, sum)));
}

void Half::finish(const MmaPanel& panel, int row, int half, __m512i sum) {
  const SumRules& rules = panel.rules;
  const __m512i addend = _mm512_cvttps_epi32(_mm512_mul_ps(c, scale));
  const __m512i total = _mm512_add_epi32(sum, addend);
  slow |= overflowed(sum, addend, total);
  slow |= _mm512_cmpeq_epi32_mask(total, _mm512_set1_epi32(INT32_MIN));
  __m512 cut = _mm512_cvt_roundepi32_ps(total, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
  if (rules.round_to_odd) {
    const __mmask16 inexact = _mm512_cmpneq_epi32_mask(_mm512_cvttps_epi32(cut), total);
    const __m512i bits = _mm512_castps_si512(cut);
    cut = _mm512_castsi512_ps(_mm512_mask_or_epi32(bits, inexact, bits, _mm512_set1_epi32(1)));
  }
  const __m512 power =
      _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(unit, _mm512_set1_epi32(127)), 23));
  __m512i bits = _mm512_castps_si512(_mm512_mul_ps(cut, power));
  // Nothing to add: the addend itself, without the sign of zero.
  const auto alone = static_cast<__mmask16>(no_product & ~slow);
  bits = _mm512_mask_mov_epi32(
      bits, alone,
      _mm512_maskz_mov_epi32(static_cast<__mmask16>(~no_addend), _mm512_castps_si512(c)));
  bits = _mm512_and_epi32(bits, _mm512_set1_epi32(static_cast<int>(rules.result_mask)));
  float* d = panel.d[half] + row * panel.stride;
  _mm512_storeu_si512(d, bits);
  if (slow != 0) repair(panel, row, half, (Int16)_mm512_movm_epi32(slow), (Float16)c, d);
}

// The products [begin, end) of a row, both halves.
PTXEMU_PART void add_products(const MmaPanel& panel, const float* b, int begin, int end,
                              const Half (&halves)[2], __m512i (&sums)[2]) {
  sums[0] = sums[1] = _mm512_setzero_si512();
#pragma GCC unroll 16
  for (int j = begin; j < end; ++j) {
    const float* a = panel.a + j * kPanelWidth;
    const __m512 factor = _mm512_set1_ps(b[j]);
    for (int half = 0; half < 2; ++half) {
      const __m512 product =
          _mm512_mul_ps(_mm512_mul_ps(_mm512_load_ps(a + half * 16), factor), halves[half].scale);
      sums[half] = _mm512_add_epi32(sums[half], _mm512_cvttps_epi32(product));
    }
  }
}

template <int kProducts>
PTXEMU_PART void hardware_row(const MmaPanel& panel, int row, const Short32& tops) {
  Half halves[2];
  for (int half = 0; half < 2; ++half) halves[half].start(panel, row, half, tops);
  const int products = kProducts == 0 ? panel.products : kProducts;
  const float* b = panel.b + static_cast<ptrdiff_t>(row) * products;
  __m512i sums[2];
  const int first = products < 16 ? products : 16;
  add_products(panel, b, 0, first, halves, sums);
  if (products > first) {
    __m512i rest[2];
    add_products(panel, b, first, products, halves, rest);
    for (int half = 0; half < 2; ++half) {
      const __m512i both = _mm512_add_epi32(sums[half], rest[half]);
      halves[half].slow |= overflowed(sums[half], rest[half], both);
      sums[half] = both;
    }
  }
  for (int half = 0; half < 2; ++half) halves[half].finish(panel, row, half, sums[half]);
}

#else

PTXEMU_PART bool any(const Int16& mask) {
  uint64_t words[8];
  std::memcpy(words, &mask, sizeof(words));
  return (words[0] | words[1] | words[2] | words[3] | words[4] | words[5] | words[6] | words[7]) !=
         0;
}

// Scales of sixteen results: the largest exponent of each, as far as vectors can serve.
struct Alignment {
  Int16 exponent;    // in [kLeastFastExponent, kMostFastExponent]
  Int16 no_product;  // all products are 0
  Int16 slow;        // must go through fused_sum
};

PTXEMU_PART void align(Alignment& to, const int16_t* products, const Float16& c,
                       const SumRules& rules) {
  Short16 narrow;
  load(narrow, products);
  const Int16 product = __builtin_convertvector(narrow, Int16);
  Int16 addend = (((Int16)c >> 23) & 255) - 127;
  const Int16 least = rules.least_addend_exponent - Int16{};
  addend = addend < least ? least : addend;
  select(addend, c == 0.0f, kLeastExponent - Int16{}, addend);
  to.no_product = product < kNoProductExponent;
  Int16 top = product > addend ? product : addend;
  to.slow = (top > kMostFastExponent) | ((top < kLeastFastExponent) & ~to.no_product);
  const Int16 low = kLeastFastExponent - Int16{}, high = kMostFastExponent - Int16{};
  top = top < low ? low : top;
  to.exponent = top > high ? high : top;
}

// The integer sum to a float: sum * 2^unit, cut to 24 bits towards zero, or to odd.
PTXEMU_PART void finish(Float16& d, const UInt16& sum, const Int16& unit, const SumRules& rules) {
  const Int16 sign = (Int16)sum >> 31;
  const UInt16 magnitude = (sum ^ (UInt16)sign) - (UInt16)sign;
  const Float16 nearest = __builtin_convertvector((Int16)magnitude, Float16);
  const UInt16 back = (UInt16) __builtin_convertvector(nearest, Int16);
  Int16 bits = (Int16)nearest + (Int16)(back > magnitude);  // a mask is -1
  if (rules.round_to_odd) {
    const UInt16 cut = (UInt16) __builtin_convertvector((Float16)bits, Int16);
    bits |= (Int16)(cut != magnitude) & 1;
  }
  const Float16 scaled = (Float16)bits * (Float16)((unit + 127) << 23);
  d = (Float16)(((Int16)scaled | (sign & (int32_t)0x80000000)) & (int32_t)rules.result_mask);
}

// So many products of one row. Two sums, so that neither waits for the other.
template <int kCount>
PTXEMU_PART void add_products(UInt16& sum, const float* a, const float* b, const Float16& scale,
                              int count) {
  UInt16 sums[2] = {};
  const int end = kCount == 0 ? count : kCount;
#pragma GCC unroll 16
  for (int j = 0; j < end; ++j) {
    Float16 factor;
    load(factor, a + j * kPanelWidth);
    const Float16 product = (factor * b[j]) * scale;
    sums[j % 2] += (UInt16) __builtin_convertvector(product, Int16);
  }
  sum = sums[0] + sums[1];
}

PTXEMU_PART void note_overflow(Int16& slow, const UInt16& x, const UInt16& y, const UInt16& sum) {
  slow |= (Int16)((x ^ sum) & (y ^ sum)) >> 31;
}

template <int kProducts>
PTXEMU_PART void hardware_half(const MmaPanel& panel, int row, int half, const int16_t* top) {
  const SumRules& rules = panel.rules;
  Float16 c = {};
  if (panel.c[half] != nullptr) load(c, panel.c[half] + row * panel.stride);
  Alignment at;
  align(at, top, c, rules);
  const Int16 unit = at.exponent - rules.fraction_bits;
  const Float16 scale = (Float16)((127 - unit) << 23);
  const int products = kProducts == 0 ? panel.products : kProducts;
  const float* a = panel.a + half * 16;
  const float* b = panel.b + static_cast<ptrdiff_t>(row) * products;
  UInt16 sum;
  if constexpr (kProducts == 0) {
    const int first = products < 16 ? products : 16;
    add_products<0>(sum, a, b, scale, first);
    if (products > first) {
      UInt16 rest;
      add_products<0>(rest, a + first * kPanelWidth, b + first, scale, products - first);
      const UInt16 both = sum + rest;
      note_overflow(at.slow, sum, rest, both);
      sum = both;
    }
  } else {
    add_products<kProducts>(sum, a, b, scale, 0);
  }
  const UInt16 addend = (UInt16) __builtin_convertvector(c * scale, Int16);
  const UInt16 total = sum + addend;
  note_overflow(at.slow, sum, addend, total);
  at.slow |= (Int16)(total == 0x80000000u);
  Float16 result;
  finish(result, total, unit, rules);
  // Nothing to add: the addend itself, without the sign of zero.
  Int16 alone;
  select(alone, c == 0.0f, Int16{}, (Int16)c & (int32_t)rules.result_mask);
  Int16 bits;
  select(bits, at.no_product & ~at.slow, alone, (Int16)result);
  float* d = panel.d[half] + row * panel.stride;
  store(d, bits);
  if (any(at.slow)) repair(panel, row, half, at.slow, c, d);
}

template <int kProducts>
PTXEMU_PART void hardware_row(const MmaPanel& panel, int row, const Short32& top) {
  alignas(64) int16_t tops[kPanelWidth];
  store(tops, top);
  hardware_half<kProducts>(panel, row, 0, tops);
  hardware_half<kProducts>(panel, row, 1, tops + 16);
}

#endif

template <int kProducts>
void hardware_rows(const MmaPanel& panel) {
  const int products = kProducts == 0 ? panel.products : kProducts;
  for (int row = 0; row < panel.rows; ++row) {
    const int16_t* b = panel.b_exponent + static_cast<ptrdiff_t>(row) * products;
    Short32 top = (int16_t)(2 * kZeroExponent) - Short32{};
#pragma GCC unroll 16
    for (int j = 0; j < products; ++j) {
      Short32 a;
      load(a, panel.a_exponent + j * kPanelWidth);
      a += b[j];
      top = a > top ? a : top;
    }
    hardware_row<kProducts>(panel, row, top);
  }
}

void hardware(const MmaPanel& panel) {
  switch (panel.products) {
    case 8: return hardware_rows<8>(panel);
    case 16: return hardware_rows<16>(panel);
    default: return hardware_rows<0>(panel);
  }
}

void exact(const MmaPanel& panel) {
  for (int row = 0; row < panel.rows; ++row) {
    const float* b = panel.b + static_cast<ptrdiff_t>(row) * panel.products;
    for (int half = 0; half < 2; ++half) {
      Float16 c = {};
      if (panel.c[half] != nullptr) load(c, panel.c[half] + row * panel.stride);
      Double16 sum = __builtin_convertvector(c, Double16);
      for (int j = 0; j < panel.products; ++j) {
        Float16 a;
        load(a, panel.a + j * kPanelWidth + half * 16);
        sum += __builtin_convertvector(a, Double16) * static_cast<double>(b[j]);
      }
      store(panel.d[half] + row * panel.stride, __builtin_convertvector(sum, Float16));
    }
  }
}

// Subnormal numbers are slow on some hosts: in here they count as 0.
class FlushSubnormals {
 public:
#ifdef __SSE2__
  FlushSubnormals() : old_(_mm_getcsr()) { _mm_setcsr(old_ | 0x8040); }
  ~FlushSubnormals() { _mm_setcsr(old_); }

 private:
  unsigned old_;
#endif
};

void fast(const MmaPanel& panel) {
  const FlushSubnormals flush;
  for (int row = 0; row < panel.rows; ++row) {
    const float* b = panel.b + static_cast<ptrdiff_t>(row) * panel.products;
    Float16 sum[2] = {};
    for (int half = 0; half < 2; ++half) {
      if (panel.c[half] != nullptr) load(sum[half], panel.c[half] + row * panel.stride);
    }
    for (int j = 0; j < panel.products; ++j) {
      Float16 low, high;
      load(low, panel.a + j * kPanelWidth);
      load(high, panel.a + j * kPanelWidth + 16);
      sum[0] += low * b[j];
      sum[1] += high * b[j];
    }
    for (int half = 0; half < 2; ++half) store(panel.d[half] + row * panel.stride, sum[half]);
  }
}

void unpack_bf16(const uint16_t* raw, size_t count, uint32_t flip, float* value) {
  for (size_t i = 0; i < count; i += 16) {
    UShort16 bits;
    load(bits, raw + i);
    store(value + i, (__builtin_convertvector(bits, UInt16) << 16) ^ flip);
  }
}

void unpack_f16(const uint16_t* raw, size_t count, uint32_t flip, float* value) {
  for (size_t i = 0; i < count; i += 16) {
    UShort16 narrow;
    load(narrow, raw + i);
    const Int16 bits = __builtin_convertvector(narrow, Int16);
    const Int16 special = (Int16)((bits & 0x7C00) == 0x7C00);
    const Float16 scaled = (Float16)((bits & 0x7FFF) << 13) * 0x1p112f;
    const Int16 magnitude = (Int16)scaled | (special & 0x7F800000);
    store(value + i, (UInt16)(magnitude | (bits & 0x8000) << 16) ^ flip);
  }
}

void exponents(const float* value, size_t count, int least, int16_t* exponent) {
  for (size_t i = 0; i < count; i += 16) {
    Float16 v;
    load(v, value + i);
    const Int16 field = ((Int16)v >> 23) & 255;
    Int16 e = field - 127;
    select(e, e < least, least - Int16{}, e);
    select(e, field == 255, kSpecialExponent - Int16{}, e);
    select(e, v == 0.0f, kZeroExponent - Int16{}, e);
    store(exponent + i, __builtin_convertvector(e, Short16));
  }
}

#undef PTXEMU_PART

}  // namespace

const MmaKernels PTXEMU_MMA_KERNELS = {hardware, exact, fast, unpack_bf16, unpack_f16, exponents};

}  // namespace ptxemu
