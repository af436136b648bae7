#include "emulator/isa/small_float.h"

namespace ptxemu {
namespace {

// Whether what lies `rest` (in units of the last place) beyond `whole` rounds away from zero.
bool rounds_away(const SmallRounding& rounding, bool negative, double whole, double rest) {
  switch (rounding.round) {
    case SmallRound::kNearest: return rest > 0.5 || (rest == 0.5 && std::fmod(whole, 2) != 0);
    case SmallRound::kNearestAway: return rest >= 0.5;
    case SmallRound::kDown: return negative && rest > 0;
    case SmallRound::kUp: return !negative && rest > 0;
    case SmallRound::kStochastic: return rest + rounding.random >= 1;
    case SmallRound::kZero: break;
  }
  return false;
}

uint32_t overflow(const SmallFormat& format, const SmallRounding& rounding, bool negative) {
  if (rounding.finite || rounding.round == SmallRound::kZero) return format.max_code;
  if (rounding.round == SmallRound::kDown && !negative) return format.max_code;
  if (rounding.round == SmallRound::kUp && negative) return format.max_code;
  return format.has_infinity ? format.max_code + 1 : format.nan_code;
}

}  // namespace

uint32_t encode_small(double x, const SmallFormat& format, const SmallRounding& rounding) {
  if (std::isnan(x)) return format.nan_code;
  const bool negative = std::signbit(x);
  if (negative && rounding.relu) return 0;
  const uint32_t sign = negative ? format.sign_bit : 0;
  const double magnitude = std::fabs(x);
  if (std::isinf(x)) {
    const bool infinite = format.has_infinity && !rounding.finite;
    return (infinite ? format.max_code + 1 : format.max_code) | sign;
  }
  if (magnitude == 0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), 1 - format.bias);
  const double scaled = std::ldexp(magnitude, format.mantissa - exponent);
  double whole = std::floor(scaled);
  if (rounds_away(rounding, negative, whole, scaled - whole)) whole += 1;
  const auto hidden = int64_t{1} << format.mantissa;
  const auto digits = static_cast<int64_t>(whole);
  const int64_t code =
      digits < hidden
          ? digits
          : (static_cast<int64_t>(exponent + format.bias) << format.mantissa) + (digits - hidden);
  if (code > static_cast<int64_t>(format.max_code)) {
    return overflow(format, rounding, negative) | sign;
  }
  return static_cast<uint32_t>(code) | sign;
}

}  // namespace ptxemu
