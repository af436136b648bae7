#include "cpu/exponential.h"

#include <bit>

#include "kernels/softmax/exp2_math.h"

namespace fa4::internal {
namespace {

template <int kDegree, int kPower = 0>
double horner(double f) {
  if constexpr (kPower == kDegree) {
    return kExp2Coefficient<kDegree, kPower>;
  } else {
    return kExp2Coefficient<kDegree, kPower> + f * horner<kDegree, kPower + 1>(f);
  }
}

double polynomial(int degree, double f) {
  switch (degree) {
    case 3: return horner<3>(f);
    case 4: return horner<4>(f);
    case 5: return horner<5>(f);
    default: return horner<6>(f);
  }
}

}  // namespace

float exp2_polynomial(int degree, float x) {
  if (x < kExp2Lowest) x = kExp2Lowest;
  // 1.5 * 2^23 rounds to an integer; the 127 on top makes the low bits the exponent field of 2^n.
  constexpr float kRound = 12582912.0f + 127.0f;
  const float shifted = x + kRound;
  const float fraction = x - (shifted - kRound);
  const float power = std::bit_cast<float>(std::bit_cast<uint32_t>(shifted) << 23);
  return static_cast<float>(polynomial(degree, fraction)) * power;
}

double exp2_max_relative_error(DType dtype) {
  switch (exp2_degree(dtype)) {
    case 3: return kExp2MaxRelativeError<3>;
    case 4: return kExp2MaxRelativeError<4>;
    case 5: return kExp2MaxRelativeError<5>;
    default: return kExp2MaxRelativeError<6>;
  }
}

}  // namespace fa4::internal
