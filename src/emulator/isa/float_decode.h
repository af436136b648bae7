// Qualifiers that the floating-point families share.
#pragma once

#include "emulator/isa/decoder.h"
#include "emulator/isa/rounding.h"

namespace ptxemu {

struct FloatForm {
  Round round = Round::kNearest;
  bool has_round = false;
  bool ftz = false, sat = false;
};

inline FloatForm take_float_form(Decoder& decoder, Type type) {
  FloatForm form;
  const int round = decoder.take_one<int>({{"rn", 1}, {"rz", 2}, {"rm", 3}, {"rp", 4}}, 0);
  form.has_round = round != 0;
  form.round = round == 0 ? Round::kNearest : static_cast<Round>(round - 1);
  if (type == Type::kF32 || type == Type::kF32x2 || type == Type::kF16 || type == Type::kF16x2) {
    form.ftz = decoder.take("ftz");
  }
  if (type == Type::kF32 || type == Type::kF16 || type == Type::kF16x2) {
    form.sat = decoder.take("sat");
  }
  return form;
}

// f<kRound>() for the mode that is asked.
template <class F>
auto by_round(Round round, F f) {
  switch (round) {
    case Round::kZero: return f(std::integral_constant<Round, Round::kZero>{});
    case Round::kDown: return f(std::integral_constant<Round, Round::kDown>{});
    case Round::kUp: return f(std::integral_constant<Round, Round::kUp>{});
    default: return f(std::integral_constant<Round, Round::kNearest>{});
  }
}
template <class F>
auto by_bool(bool value, F f) {
  return value ? f(std::true_type{}) : f(std::false_type{});
}

// add, sub, mul, fma of .f16, .bf16 and pairs of them (float_half.cc).
enum class HalfOp : uint8_t { kAdd, kSub, kMul, kFma };
bool is_half(Type type);
void decode_half(Decoder& decoder, Insn& insn, Type type, HalfOp op);
void decode_half_abs(Decoder& decoder, Insn& insn, Type type);
void decode_half_neg(Decoder& decoder, Insn& insn, Type type);
void decode_half_min_max(Decoder& decoder, Insn& insn, Type type, bool is_max);

}  // namespace ptxemu
