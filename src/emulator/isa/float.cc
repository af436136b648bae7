// add, sub, mul, fma of .f32, .f32x2, .f64 and the mixed forms ("Floating Point Instructions",
// "Mixed Precision Floating Point Instructions"; PTX ISA 9.7.3, 9.7.5).
#include <cmath>
#include <type_traits>
#include <utility>

#include "emulator/isa/alu.h"
#include "emulator/isa/alu_rows.h"
#include "emulator/isa/float_decode.h"
#include "emulator/isa/host_rounding.h"

namespace ptxemu {
namespace {

enum class Op : uint8_t { kAdd, kSub, kMul, kFma };

template <Op kOp, Round kRound>
PTXEMU_INLINE float operate(float a, float b, float c) {
  switch (kOp) {
    case Op::kAdd: return add_rounded<kRound>(a, b);
    case Op::kSub: return add_rounded<kRound>(a, -b);
    case Op::kMul: return mul_rounded<kRound>(a, b);
    case Op::kFma: return fma_rounded<kRound>(a, b, c);
  }
}

template <bool kSat>
PTXEMU_INLINE float finish(float x) {
  return kSat ? saturate_unit(x) : canonical(x);
}

template <Op kOp, Round kRound, bool kFlush, bool kSat>
struct F32 {
  PTXEMU_INLINE static float apply(float a, float b) { return apply(a, b, 0.0f); }
  PTXEMU_INLINE static float apply(float a, float b, float c) {
    const float r =
        operate<kOp, kRound>(flush_if<kFlush>(a), flush_if<kFlush>(b), flush_if<kFlush>(c));
    return finish<kSat>(flush_if<kFlush>(r));
  }
};

// Products with .ftz. Some that come out as the least of the normal numbers become zero all the
// same; that is rare, so lanes are looked at again only where a result is that number.
template <Op kOp, Round kRound, bool kSat, int kPer>
struct FlushedProducts {
  PTXEMU_INLINE static float apply(float a, float b, float c) {
    return operate<kOp, kRound>(flush(a), flush(b), flush(c));
  }
  // Where a result is the least of the normal numbers: was it less when it was rounded?
  __attribute__((noinline, cold)) static void run_slowly(const Exec& exec, const Insn& insn) {
    const float *a = exec.lanes<float, kPer>(insn.a), *b = exec.lanes<float, kPer>(insn.b);
    const float* c = kOp == Op::kFma ? exec.lanes<float, kPer>(insn.c) : a;
    float* d = exec.lanes<float, kPer>(insn.d);
    each_lane<kPer>(exec.mask, d, [=](int i) {
      const float r = flush(apply(a[i], b[i], c[i]));
      const double product = static_cast<double>(flush(a[i])) * static_cast<double>(flush(b[i]));
      double remainder = 0;
      const double value = kOp == Op::kFma ? two_sum(product, flush(c[i]), &remainder) : product;
      const bool tiny = std::fabs(r) == 0x1p-126f && flushes(kRound, value, remainder);
      return finish<kSat>(tiny ? std::copysign(0.0f, r) : r);
    });
  }
  PTXEMU_INLINE static void run(const Exec& exec, const Insn& insn) {
    const float *a = exec.lanes<float, kPer>(insn.a), *b = exec.lanes<float, kPer>(insn.b);
    const float* c = kOp == Op::kFma ? exec.lanes<float, kPer>(insn.c) : a;
    float* d = exec.lanes<float, kPer>(insn.d);
    alignas(64) float aside[32 * kPer];
    float* results = exec.mask == ~0u && d != a && d != b && d != c ? d : aside;
    uint32_t least = 0;
    PTXEMU_INDEPENDENT
    for (int i = 0; i < 32 * kPer; ++i) {
      const float r = finish<kSat>(flush(apply(a[i], b[i], c[i])));
      least |= std::fabs(r) == 0x1p-126f ? ~0u : 0u;
      results[i] = r;
    }
    if (__builtin_expect(least != 0, 0)) return run_slowly(exec, insn);
    if (results == d) return;
    const float* r = aside;
    each_lane<kPer>(exec.mask, d, [=](int i) PTXEMU_LAMBDA { return r[i]; });
  }
};

template <Op kOp, Round kRound, bool kFlush, bool kSat, int kPer>
using Lanes = std::conditional_t<
    kFlush && (kOp == Op::kMul || kOp == Op::kFma), FlushedProducts<kOp, kRound, kSat, kPer>,
    std::conditional_t<kOp == Op::kFma,
                       Map3<F32<kOp, kRound, kFlush, kSat>, float, float, float, float, kPer>,
                       Map2<F32<kOp, kRound, kFlush, kSat>, float, float, float, kPer>>>;

// Directed roundings are rare, but for add.rm, by which exponentials find the integer below.
template <Op kOp, Round kRound, class L>
Handler handler_for() {
  constexpr bool kFrequent =
      kRound == Round::kNearest || (kOp == Op::kAdd && kRound == Round::kDown);
  if constexpr (kFrequent) return handler<L>();
  return plain_handler<L>();
}

template <Op kOp>
Handler f32_handler(const FloatForm& form, bool pair) {
  return by_round(form.round, [&](auto round) {
    return by_bool(form.ftz, [&](auto ftz) {
      constexpr Round kRound = decltype(round)::value;
      constexpr bool kFlush = decltype(ftz)::value;
      if (form.sat) return plain_handler<Lanes<kOp, kRound, kFlush, true, 1>>();
      return pair ? handler_for<kOp, kRound, Lanes<kOp, kRound, kFlush, false, 2>>()
                  : handler_for<kOp, kRound, Lanes<kOp, kRound, kFlush, false, 1>>();
    });
  });
}

// --- .f64
// -----------------------------------------------------------------------------------------
template <Op kOp>
struct F64 {
  PTXEMU_INLINE static double apply(double a, double b) { return apply(a, b, 0.0); }
  PTXEMU_INLINE static double apply(double a, double b, double c) {
    switch (kOp) {
      case Op::kAdd: return first_nan(a + b, b, a);
      case Op::kSub: return first_nan(a - b, b, a);
      case Op::kMul: return first_nan(a * b, b, a);
      case Op::kFma: return first_nan(__builtin_fma(a, b, c), b, c, a);
    }
  }
};

template <Op kOp>
struct F64Directed {
  static void run(const Exec& exec, const Insn& insn) {
    constexpr HostOp kHost = kOp == Op::kMul   ? HostOp::kMul
                             : kOp == Op::kFma ? HostOp::kFma
                                               : HostOp::kAdd;
    const auto *a = exec.lanes<double>(insn.a), *b = exec.lanes<double>(insn.b);
    const auto* c = kOp == Op::kFma ? exec.lanes<double>(insn.c) : nullptr;
    auto* d = exec.lanes<double>(insn.d);
    exec.for_lanes([&](int i) {
      const double third = c != nullptr ? c[i] : 0.0;
      const double r =
          host_rounded(kHost, insn.form<Round>(), a[i], kOp == Op::kSub ? -b[i] : b[i], third);
      d[i] = first_nan(r, b[i], third, a[i]);
    });
  }
};

template <Op kOp>
Handler f64_handler(Decoder& decoder, Insn& insn, const FloatForm& form) {
  decoder.set_form(insn, form.round);
  if (form.round != Round::kNearest) return plain_handler<F64Directed<kOp>>();
  if constexpr (kOp == Op::kFma) return handler<Map3<F64<kOp>, double>>();
  return handler<Map2<F64<kOp>, double>>();
}

// --- .f32 with .f16 or .bf16 operands
// ---------------------------------------------------------------
template <Op kOp, class Format, Round kRound>
struct Mixed {
  PTXEMU_INLINE static float apply(uint16_t a, float c) {
    return canonical(operate<kOp, kRound>(Format::load(a), c, 0.0f));
  }
  PTXEMU_INLINE static float apply(uint16_t a, uint16_t b, float c) {
    return canonical(operate<kOp, kRound>(Format::load(a), Format::load(b), c));
  }
};
// The result of F limited to [0, 1]; NaN to +0.
template <class F>
struct Saturated {
  template <class... A>
  PTXEMU_INLINE static float apply(A... a) {
    return saturate_unit(F::apply(a...));
  }
};

template <Op kOp, class Format>
Handler mixed_handler(const FloatForm& form) {
  return by_round(form.round, [&](auto round) {
    constexpr Round kRound = decltype(round)::value;
    using F = Mixed<kOp, Format, kRound>;
    if constexpr (kOp == Op::kFma) {
      return form.sat ? plain_handler<Map3<Saturated<F>, float, uint16_t, uint16_t, float>>()
                      : handler_for<kOp, kRound, Map3<F, float, uint16_t, uint16_t, float>>();
    } else {
      return form.sat ? plain_handler<Map2<Saturated<F>, float, uint16_t, float>>()
                      : handler_for<kOp, kRound, Map2<F, float, uint16_t, float>>();
    }
  });
}

template <Op kOp>
void decode_mixed(Decoder& decoder, Insn& insn, const FloatForm& form, Type type) {
  constexpr size_t kSources = kOp == Op::kFma ? 3 : 2;
  decoder.need_operands(kSources + 1, kSources + 1);
  insn.a = decoder.source(1, type);
  if (kOp == Op::kFma) {
    insn.b = decoder.source(2, type);
    insn.c = decoder.source(3, Type::kF32);
  } else {
    insn.b = decoder.source(2, Type::kF32);
  }
  insn.d = decoder.dest(0, Type::kF32);
  insn.run = type == Type::kF16 ? mixed_handler<kOp, HalfFormat>(form)
                                : mixed_handler<kOp, BfloatFormat>(form);
}

bool is_literal(const Operand& operand) {
  return operand.kind == Operand::Kind::kFloat || operand.kind == Operand::Kind::kInteger;
}

template <Op kOp>
void decode(Decoder& decoder, Insn& insn, Type type) {
  if (is_half(type)) return decode_half(decoder, insn, type, static_cast<HalfOp>(kOp));
  FloatForm form = take_float_form(decoder, type);
  if (kOp == Op::kFma && !form.has_round)
    decoder.fail("fma without a rounding; accepted: .rn, .rz, .rm, .rp");
  const Type second = type == Type::kF32 && kOp != Op::kMul ? decoder.take_type() : Type::kNone;
  if (second == Type::kF16 || second == Type::kBF16) {
    if (form.ftz) decoder.fail(".ftz of operands of two types; accepted: none");
    return decode_mixed<kOp>(decoder, insn, form, second);
  }
  if (second != Type::kNone) decoder.fail_type(second, ".f16, .bf16");
  if (kOp == Op::kFma) {
    operands_3(decoder, insn, type);
  } else {
    operands_2(decoder, insn, type);
  }
  // ptxas has a constant come second, which decides the NaN of a result of .f64.
  const bool swap = type == Type::kF64 && kOp != Op::kSub && is_literal(decoder.operand(1)) &&
                    !is_literal(decoder.operand(2));
  if (swap) std::swap(insn.a, insn.b);
  switch (type) {
    case Type::kF32: insn.run = f32_handler<kOp>(form, false); break;
    case Type::kF32x2: insn.run = f32_handler<kOp>(form, true); break;
    case Type::kF64: insn.run = f64_handler<kOp>(decoder, insn, form); break;
    default:
      decoder.fail_type(
          type, kOp == Op::kFma ? ".f32, .f32x2, .f64, .f16, .f16x2, .bf16, .bf16x2"
                                : ".f32, .f32x2, .f64, .f16, .f16x2, .bf16, .bf16x2, and integers");
  }
}

void decode_fma(Decoder& decoder, Insn& insn) {
  decode_float_fma(decoder, insn, decoder.need_type());
}

constexpr InstructionRow kRows[] = {
    {"fma", decode_fma,
     "Floating Point Instructions: fma; Half Precision Floating Point Instructions: fma; Mixed "
     "Precision Floating Point Instructions: fma",
     ValueFlow::kComputes},
};

}  // namespace

void decode_float_add(Decoder& decoder, Insn& insn, Type type) {
  decode<Op::kAdd>(decoder, insn, type);
}
void decode_float_sub(Decoder& decoder, Insn& insn, Type type) {
  decode<Op::kSub>(decoder, insn, type);
}
void decode_float_mul(Decoder& decoder, Insn& insn, Type type) {
  decode<Op::kMul>(decoder, insn, type);
}
// mad of floating-point numbers is fma ("Floating Point Instructions: mad").
void decode_float_fma(Decoder& decoder, Insn& insn, Type type) {
  decode<Op::kFma>(decoder, insn, type);
}

std::span<const InstructionRow> float_rows() { return kRows; }

}  // namespace ptxemu
