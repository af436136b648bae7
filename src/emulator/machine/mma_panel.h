// The inner product of tensor cores for a panel of 32 results a row. Internal to mma_math; compiled
// once for each instruction set of the host.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ptxemu {

// Exponents of operands, as arrays beside the values. Sums of two must fit 16 bits.
inline constexpr int16_t kZeroExponent = -8192;       // the value is 0
inline constexpr int16_t kSpecialExponent = 12288;    // infinity or NaN
inline constexpr int16_t kNoProductExponent = -4000;  // the sum of two is below: a factor is 0
// Between these the vector code is exact; beyond them fused_sum() is called.
inline constexpr int kLeastFastExponent = -99, kMostFastExponent = 125;
// A sum is aligned to this exponent at least: it is that of the smallest normal float.
inline constexpr int kLeastExponent = -126;

inline constexpr int kPanelWidth = 32;
inline constexpr int kMaxProducts = 32;

// What a sum's bits become.
struct SumRules {
  int fraction_bits = 25;            // kept below the largest exponent
  int least_addend_exponent = -126;  // subnormal addends count with it (f16: -14)
  uint32_t result_mask = ~0u;        // bits of the float result that are kept
  bool round_to_odd = false;         // else truncated
};

// d[row][i] = c[row][i] + sum over j of a[j][i] * b[row][j]. The 32 results of a row lie in two
// runs of 16; c may be d; a null c is 0.
struct MmaPanel {
  int products = 0;  // at most kMaxProducts
  int rows = 0;
  const float* a = nullptr;             // [products][32], 64-byte aligned
  const int16_t* a_exponent = nullptr;  // the same, 64-byte aligned
  const float* b = nullptr;             // [rows][products]
  const int16_t* b_exponent = nullptr;
  const float* c[2] = {nullptr, nullptr};
  float* d[2] = {nullptr, nullptr};
  ptrdiff_t stride = 0;  // floats from one row of c and d to the next
  SumRules rules;        // of `hardware`
};

struct MmaKernels {
  // Exact products, summed in integers aligned to the largest exponent.
  void (*hardware)(const MmaPanel& panel);
  // In double, rounded once.
  void (*exact)(const MmaPanel& panel);
  // In float, fused multiply-adds.
  void (*fast)(const MmaPanel& panel);
  // Bit patterns of `count` values to floats and exponents; flip is xored into the values first.
  void (*unpack_bf16)(const uint16_t* raw, size_t count, uint32_t flip, float* value);
  void (*unpack_f16)(const uint16_t* raw, size_t count, uint32_t flip, float* value);
  void (*exponents)(const float* value, size_t count, int least, int16_t* exponent);
};

enum class HostIsa : uint8_t { kBaseline, kAvx2, kAvx512 };
// The best that this host runs, found once.
HostIsa host_isa();
const MmaKernels& mma_kernels(HostIsa isa);

extern const MmaKernels kMmaKernelsBaseline, kMmaKernelsAvx2, kMmaKernelsAvx512;

// One result, in plain integers: the model that `hardware` follows, and what it calls where its
// vectors are not exact. a[j * a_step] * b[j], exponents likewise.
float fused_sum(const float* a, const int16_t* a_exponent, ptrdiff_t a_step, const float* b,
                const int16_t* b_exponent, int products, float c, const SumRules& rules);

}  // namespace ptxemu
