#include "emulator/machine/mma_math.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace ptxemu {

namespace {

constexpr uint32_t kSignBit = 0x80000000;

// 4- and 6-bit values of a chunk, packed from bit 0, to a byte each.
void unpack_codes(const std::byte* chunk, int bits, uint8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    const int bit = i * bits;
    uint32_t pair = static_cast<uint32_t>(chunk[bit / 8]);
    if (bit / 8 + 1 < 16) pair |= static_cast<uint32_t>(chunk[bit / 8 + 1]) << 8;
    codes[i] = static_cast<uint8_t>((pair >> (bit % 8)) & ((1u << bits) - 1));
  }
}

template <class T>
void scatter(T* to, ptrdiff_t step, const std::byte* chunk) {
  T values[16 / sizeof(T)];
  std::memcpy(values, chunk, 16);
  for (size_t i = 0; i < 16 / sizeof(T); ++i) to[static_cast<ptrdiff_t>(i) * step] = values[i];
}

float addend_of(uint32_t cell, const MmaRules& rules, int scale) {
  float value = rules.accumulator == Accumulator::kF16 ? float_of_half(static_cast<uint16_t>(cell))
                                                       : std::bit_cast<float>(cell);
  return scale == 0 ? value : std::ldexp(value, -scale);
}

uint32_t integer_result(float products, uint32_t addend, bool saturate) {
  const int64_t sum = static_cast<int64_t>(products) + static_cast<int32_t>(addend);
  if (!saturate) return static_cast<uint32_t>(sum);
  return static_cast<uint32_t>(std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX));
}

void run(const MmaPanel& panel, const MmaRules& rules) {
  static const MmaKernels& kernels = mma_kernels(host_isa());
  // Sums of products of 8-bit integers are exact in float.
  if (rules.accumulator == Accumulator::kS32 || rules.math == Math::kFast) {
    kernels.fast(panel);
  } else if (rules.math == Math::kExact) {
    kernels.exact(panel);
  } else {
    kernels.hardware(panel);
  }
}

SumRules sum_rules(const MmaRules& rules) {
  SumRules sums;
  sums.fraction_bits = rules.fraction_bits;
  sums.result_mask = ~0u << (23 - rules.result_bits);
  if (rules.accumulator == Accumulator::kF16) {
    sums.least_addend_exponent = smallest_exponent(ElementType::kF16);
    sums.round_to_odd = true;
    sums.result_mask = ~0u;
  }
  return sums;
}

// Results that are no float, scaled, or not all written: by way of a buffer.
void run_buffered(MmaPanel panel, const MmaTarget& target, const MmaRules& rules) {
  alignas(64) float buffer[kPanelWidth];
  const bool integers = rules.accumulator == Accumulator::kS32;
  const int rows = panel.rows;
  panel.rows = 1;
  panel.stride = kPanelWidth;
  for (int row = 0; row < rows; ++row) {
    for (int half = 0; half < 2; ++half) {
      const uint32_t* c = target.c[half];
      for (int i = 0; i < 16; ++i) {
        buffer[half * 16 + i] = c == nullptr || integers
                                    ? 0.0f
                                    : addend_of(c[row * target.stride + i], rules, target.scale);
      }
      panel.c[half] = panel.d[half] = buffer + half * 16;
    }
    run(panel, rules);
    for (int i = 0; i < kPanelWidth; ++i) {
      if ((target.lanes >> i & 1) == 0) continue;
      const int half = i / 16;
      const ptrdiff_t at = row * target.stride + i % 16;
      uint32_t* d = target.d[half] + at;
      if (integers) {
        *d = integer_result(buffer[i], target.c[half] == nullptr ? 0 : target.c[half][at],
                            rules.saturate);
      } else if (rules.accumulator == Accumulator::kF16) {
        *d = half_of_float(buffer[i]);
      } else {
        *d = std::bit_cast<uint32_t>(buffer[i]);
      }
    }
    panel.b += panel.products;
    panel.b_exponent += panel.products;
  }
}

// A term of the sum: `value` is exact, its exponent that of the unnormalised product.
struct Term {
  double value;
  int exponent;
};

// From 2^-1022 to 2^1023.
double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

constexpr float kNan = std::bit_cast<float>(0x7FFFFFFFu);

float special_sum(const Term* terms, int count) {
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += terms[i].value;
  return std::isnan(sum) ? kNan : static_cast<float>(sum);
}

}  // namespace

float fused_sum(const float* a, const int16_t* a_exponent, ptrdiff_t a_step, const float* b,
                const int16_t* b_exponent, int products, float c, const SumRules& rules) {
  if (std::isnan(c)) return kNan;
  Term terms[kMaxProducts + 1];
  int top = kLeastExponent;
  bool special = !std::isfinite(c);
  for (int j = 0; j < products; ++j) {
    terms[j] = {static_cast<double>(a[j * a_step]) * b[j], a_exponent[j * a_step] + b_exponent[j]};
    if (std::isnan(terms[j].value)) return kNan;  // as of every key behind a sequence's end
    special |= !std::isfinite(terms[j].value);
    if (terms[j].value != 0) top = std::max(top, terms[j].exponent);
  }
  terms[products] = {c, 0};
  if (special) return special_sum(terms, products + 1);
  if (c != 0) top = std::max({top, std::ilogb(c), rules.least_addend_exponent});
  const int unit = top - rules.fraction_bits;
  const double scale = power_of_two(-unit);
  int64_t sum = 0;
  for (int j = 0; j <= products; ++j) {
    sum += static_cast<int64_t>(terms[j].value * scale);  // towards zero
  }
  if (sum == 0) return 0;
  const bool negative = sum < 0;
  uint64_t magnitude = negative ? 0 - static_cast<uint64_t>(sum) : static_cast<uint64_t>(sum);
  // Bits that the result can hold: 24, fewer where it is subnormal.
  const int exponent = std::bit_width(magnitude) - 1 + unit;
  const int lowest = std::max(exponent, kLeastExponent) - 23 - unit;
  if (lowest > 0) {
    const uint64_t below = (uint64_t{1} << lowest) - 1;
    const bool inexact = lowest < 64 && (magnitude & below) != 0;
    magnitude &= ~below;
    if (inexact && rules.round_to_odd) magnitude |= uint64_t{1} << lowest;
  }
  const float result = static_cast<float>(static_cast<double>(magnitude) * power_of_two(unit));
  const uint32_t bits = std::bit_cast<uint32_t>(result) & rules.result_mask;
  return std::bit_cast<float>(bits | (negative ? kSignBit : 0));
}

HostIsa host_isa() {
#if defined(__x86_64__)
  static const HostIsa isa = [] {
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (avx512) return HostIsa::kAvx512;
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    return avx2 ? HostIsa::kAvx2 : HostIsa::kBaseline;
  }();
  return isa;
#else
  return HostIsa::kBaseline;
#endif
}

const MmaKernels& mma_kernels(HostIsa isa) {
  switch (isa) {
    case HostIsa::kAvx512: return kMmaKernelsAvx512;
    case HostIsa::kAvx2: return kMmaKernelsAvx2;
    case HostIsa::kBaseline: break;
  }
  return kMmaKernelsBaseline;
}

size_t MmaSide::padded() const {
  const int rows = wide_ ? (count_ + kPanelWidth - 1) / kPanelWidth * kPanelWidth : count_;
  return static_cast<size_t>((rows * k_ + 15) / 16 * 16);
}

void MmaSide::reset(ElementType type, int k, int count, bool wide) {
  type_ = type;
  k_ = k;
  count_ = count;
  wide_ = wide;
  bytes_ = container_bytes(type);
  chunk_ = 16 / bytes_;
  packed_bits_ = bits_of(type) < 8 ? bits_of(type) : 0;
  const int rest = wide ? count % kPanelWidth : count * k % 16;
  if (rest != 0) std::memset(raw_, 0, padded() * static_cast<size_t>(bytes_));
}

void MmaSide::set_chunk(Major major, int mn, int k, const std::byte* chunk) {
  const size_t at = index(mn, k);
  std::byte codes[16];
  if (packed_bits_ != 0) {
    unpack_codes(chunk, packed_bits_, reinterpret_cast<uint8_t*>(codes));
    chunk = codes;
  }
  const ptrdiff_t along_k = wide_ ? kPanelWidth : 1, along_mn = wide_ ? 1 : k_;
  const ptrdiff_t step = major == Major::kK ? along_k : along_mn;
  if (step == 1) {
    std::memcpy(raw_ + at * static_cast<size_t>(bytes_), chunk, 16);
    return;
  }
  if (bytes_ == 2) {
    scatter(reinterpret_cast<uint16_t*>(raw_) + at, step, chunk);
  } else if (bytes_ == 4) {
    scatter(reinterpret_cast<uint32_t*>(raw_) + at, step, chunk);
  } else {
    scatter(reinterpret_cast<uint8_t*>(raw_) + at, step, chunk);
  }
}

void MmaSide::set(int mn, int k, uint32_t bits) {
  std::memcpy(raw_ + index(mn, k) * static_cast<size_t>(bytes_), &bits,
              static_cast<size_t>(bytes_));
}

namespace {

template <class T>
void copy_run(T* to, const uint32_t* words, int shift) {
  for (int i = 0; i < 16; ++i) to[i] = static_cast<T>(words[i] >> shift);
}

}  // namespace

void MmaSide::set_run(int mn, int k, const uint32_t* words, int shift) {
  const size_t at = index(mn, k);
  switch (bytes_) {
    case 1: copy_run(reinterpret_cast<uint8_t*>(raw_) + at, words, shift); break;
    case 2: copy_run(reinterpret_cast<uint16_t*>(raw_) + at, words, shift); break;
    default: copy_run(reinterpret_cast<uint32_t*>(raw_) + at, words, shift);
  }
}

void MmaSide::finish(bool negate) {
  static const MmaKernels& kernels = mma_kernels(host_isa());
  const size_t count = padded();
  const uint32_t flip = negate ? kSignBit : 0;
  switch (bytes_) {
    case 1: {
      const float* table = value_table(type_);
      const auto* codes = reinterpret_cast<const uint8_t*>(raw_);
      for (size_t i = 0; i < count; ++i) {
        value_[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(table[codes[i]]) ^ flip);
      }
      break;
    }
    case 2: {
      const auto unpack = type_ == ElementType::kF16 ? kernels.unpack_f16 : kernels.unpack_bf16;
      unpack(reinterpret_cast<const uint16_t*>(raw_), count, flip, value_);
      break;
    }
    default: {
      const auto* words = reinterpret_cast<const uint32_t*>(raw_);
      for (size_t i = 0; i < count; ++i) {  // tf32: the low 13 bits are not looked at
        value_[i] = std::bit_cast<float>((words[i] & 0xFFFFE000u) ^ flip);
      }
    }
  }
  kernels.exponents(value_, count, smallest_exponent(type_), exponent_);
}

void multiply_panel(const MmaSide& wide, int panel, const MmaSide& narrow, int begin, int end,
                    const MmaTarget& target, const MmaRules& rules) {
  MmaPanel work;
  work.products = wide.products();
  work.rows = end - begin;
  work.a = wide.values(panel);
  work.a_exponent = wide.exponents(panel);
  work.b = narrow.values(begin);
  work.b_exponent = narrow.exponents(begin);
  work.stride = target.stride;
  work.rules = sum_rules(rules);
  if (rules.accumulator != Accumulator::kF32 || target.scale != 0 || target.lanes != ~0u) {
    run_buffered(work, target, rules);
    return;
  }
  for (int half = 0; half < 2; ++half) {
    work.c[half] = reinterpret_cast<const float*>(target.c[half]);
    work.d[half] = reinterpret_cast<float*>(target.d[half]);
  }
  run(work, rules);
}

}  // namespace ptxemu
