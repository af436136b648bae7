// One value by the rules of cvt, whatever its types ("Data Movement and Conversion Instructions:
// cvt", integer and floating-point notes; PTX ISA 9.7.9.21).
#include <algorithm>
#include <cmath>

#include "emulator/isa/convert.h"
#include "emulator/isa/rounding.h"

namespace ptxemu {
namespace {

uint64_t low_bits(uint64_t x, int bits) { return bits == 64 ? x : x & ((uint64_t{1} << bits) - 1); }

__int128 load_integer(Type type, uint64_t raw) {
  const int bits = bits_of(type);
  const uint64_t value = low_bits(raw, bits);
  if (!is_signed(type) || (value >> (bits - 1) & 1) == 0) return static_cast<__int128>(value);
  return static_cast<__int128>(value) - (static_cast<__int128>(1) << bits);
}

double load_float(Type type, uint64_t raw, bool ftz) {
  switch (type) {
    case Type::kF16: return half_to_float(static_cast<uint16_t>(raw));
    case Type::kBF16: return bfloat_to_float(static_cast<uint16_t>(raw));
    case Type::kF32: {
      const float x = float_of_bits(static_cast<uint32_t>(raw));
      return ftz ? flush(x) : x;
    }
    default: return std::bit_cast<double>(raw);
  }
}

__int128 least(Type type) {
  return is_signed(type) ? -(static_cast<__int128>(1) << (bits_of(type) - 1)) : 0;
}
__int128 most(Type type) {
  return (static_cast<__int128>(1) << (bits_of(type) - (is_signed(type) ? 1 : 0))) - 1;
}

// To the width of the register: by sign, or zeros.
uint64_t extended(Type type, __int128 value) {
  const uint64_t bits = low_bits(static_cast<uint64_t>(value), bits_of(type));
  return is_signed(type) ? static_cast<uint64_t>(load_integer(type, bits)) : bits;
}

double rounded_to_integer(SmallRound rounding, double x) {
  switch (rounding) {
    case SmallRound::kZero: return std::trunc(x);
    case SmallRound::kDown: return std::floor(x);
    case SmallRound::kUp: return std::ceil(x);
    default: return std::nearbyint(x);
  }
}

uint64_t float_to_integer(const ConvertForm& form, double x) {
  const int bits = bits_of(form.to);
  if (std::isnan(x)) {
    const bool zero = form.from != Type::kF64 && bits != 64;
    return zero ? 0 : extended(form.to, static_cast<__int128>(1) << (bits - 1));
  }
  const double whole = rounded_to_integer(form.rounding, x);
  if (whole <= static_cast<double>(least(form.to))) return extended(form.to, least(form.to));
  if (whole >= static_cast<double>(most(form.to))) return extended(form.to, most(form.to));
  return extended(form.to, static_cast<__int128>(whole));
}

const SmallFormat& format_of(Type type) {
  return type == Type::kF16 ? kF16Format : type == Type::kBF16 ? kBF16Format : kF32Format;
}

Round round_of(SmallRound round) {
  switch (round) {
    case SmallRound::kZero: return Round::kZero;
    case SmallRound::kDown: return Round::kDown;
    case SmallRound::kUp: return Round::kUp;
    default: return Round::kNearest;
  }
}

uint64_t store_float(const ConvertForm& form, double x) {
  if (form.sat) x = std::isnan(x) ? 0.0 : std::clamp(x, 0.0, 1.0) + 0.0;
  if (form.to == Type::kF64) {
    return std::bit_cast<uint64_t>(x) | (std::isnan(x) ? kQuietBit : 0);
  }
  if (form.from == Type::kF64 && std::isnan(x)) {
    return nan_of_double(std::bit_cast<uint64_t>(x), format_of(form.to).mantissa);
  }
  const SmallRounding rounding{form.rounding, form.finite, form.relu, 0};
  const uint32_t code = encode_small(x, format_of(form.to), rounding);
  const bool tiny = form.to == Type::kF32 && form.ftz && flushes(round_of(form.rounding), x, 0);
  return tiny ? code & 0x80000000 : code;
}

// An integer of up to 64 bits, rounded to double as asked, or to odd for what is rounded further.
double integer_to_double(__int128 value, SmallRound rounding, bool final) {
  const double nearest = static_cast<double>(value);
  const auto rest = static_cast<double>(value - static_cast<__int128>(nearest));
  if (rest == 0) return nearest;
  if (!final) return to_odd(nearest, rest);
  const bool down = rounding == SmallRound::kDown || (rounding == SmallRound::kZero && value > 0);
  const bool up = rounding == SmallRound::kUp || (rounding == SmallRound::kZero && value < 0);
  if (down && rest < 0) return std::nextafter(nearest, -HUGE_VAL);
  if (up && rest > 0) return std::nextafter(nearest, HUGE_VAL);
  return nearest;
}

}  // namespace

uint64_t convert_value(const ConvertForm& form, uint64_t raw) {
  if (!is_float(form.from)) {
    const __int128 value = load_integer(form.from, raw);
    if (is_float(form.to)) {
      return store_float(form, integer_to_double(value, form.rounding, form.to == Type::kF64));
    }
    return extended(form.to, form.sat ? std::clamp(value, least(form.to), most(form.to)) : value);
  }
  if (form.from == Type::kBF16 && form.to == Type::kF32 && !form.sat) {
    const uint32_t wide = static_cast<uint32_t>(raw) << 16;  // NaN too, but for .ftz
    return form.ftz ? bits_of_float(canonical(flush(float_of_bits(wide)))) : wide;
  }
  const double x = load_float(form.from, raw, form.ftz);
  if (!is_float(form.to)) return float_to_integer(form, x);
  if (form.integral) {
    ConvertForm exact = form;
    exact.rounding = SmallRound::kNearest;
    return store_float(exact, rounded_to_integer(form.rounding, x));
  }
  return store_float(form, x);
}

}  // namespace ptxemu
