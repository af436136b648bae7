// div, rcp, sqrt, rsqrt, sin, cos, lg2, ex2, tanh ("Floating Point Instructions", PTX ISA 9.7.3.8
// and 9.7.3.13 to 9.7.3.22; "Half Precision Floating Point Instructions": tanh, ex2).
#include <cmath>

#include "emulator/isa/alu.h"
#include "emulator/isa/alu_rows.h"
#include "emulator/isa/approx.h"
#include "emulator/isa/float_decode.h"
#include "emulator/isa/host_rounding.h"

namespace ptxemu {
namespace {

template <class F, bool kFlush>
struct Approx {
  PTXEMU_INLINE static float apply(float a) { return F::template of<kFlush>(a); }
};
// Of the halves, the unit's own result is truncated; .ftz makes no difference, as it flushes.
template <class F, class Format>
struct ApproxHalf {
  PTXEMU_INLINE static uint16_t apply(uint16_t a) {
    return Format::store(F::template of<true>(Format::load(a)));
  }
};

template <class F>
Handler approx_handler(bool ftz) {
  return ftz ? handler<Map1<Approx<F, true>, float>>() : handler<Map1<Approx<F, false>, float>>();
}

template <class F>
void decode_f32_only(Decoder& decoder, Insn& insn) {
  if (!decoder.take("approx")) decoder.fail("no .approx; accepted: .approx");
  const bool ftz = decoder.take("ftz");
  if (!decoder.take("f32")) decoder.fail("another type; accepted: .f32");
  operands_1(decoder, insn, Type::kF32);
  insn.run = approx_handler<F>(ftz);
}

template <class F, class Format>
Handler half_approx(bool pair) {
  using Lane = ApproxHalf<F, Format>;
  return pair ? handler<Map1<Lane, uint16_t, uint16_t, 2>>()
              : plain_handler<Map1<Lane, uint16_t>>();
}

// ex2.approx.ftz of .bf16 must have .ftz, that of .f16 has none; tanh has it nowhere.
template <class F, bool kExponential>
void decode_with_halves(Decoder& decoder, Insn& insn) {
  if (!decoder.take("approx")) decoder.fail("no .approx; accepted: .approx");
  const Type type = decoder.need_type();
  const bool bfloat = type == Type::kBF16 || type == Type::kBF16x2;
  const bool ftz = kExponential && (type == Type::kF32 || bfloat) && decoder.take("ftz");
  operands_1(decoder, insn, type);
  if (type == Type::kF32) {
    insn.run = approx_handler<F>(ftz);
    return;
  }
  if (!is_half(type)) decoder.fail_type(type, ".f32, .f16, .f16x2, .bf16, .bf16x2");
  if (kExponential && bfloat && !ftz)
    decoder.fail("ex2 of .bf16 without .ftz; accepted: .approx.ftz.bf16");
  const bool pair = bits_of(type) == 32;
  insn.run = bfloat ? half_approx<F, TruncatedBfloat>(pair) : half_approx<F, TruncatedHalf>(pair);
}

// --- IEEE roundings -----------------------------------------------------------------------------
template <bool kFlush>
struct Divide {
  PTXEMU_INLINE static float apply(float a, float b) {
    return canonical(flush_if<kFlush>(flush_if<kFlush>(a) / flush_if<kFlush>(b)));
  }
};
template <bool kFull, bool kFlush>
struct DivideApprox {
  PTXEMU_INLINE static float apply(float a, float b) { return approx_div<kFull, kFlush>(a, b); }
};
template <bool kFlush>
struct Reciprocal {
  PTXEMU_INLINE static float apply(float a) { return Divide<kFlush>::apply(1.0f, a); }
};
template <bool kFlush>
struct SquareRoot {
  PTXEMU_INLINE static float apply(float a) {
    return canonical(__builtin_sqrtf(flush_if<kFlush>(a)));
  }
};
struct Divide64 {
  PTXEMU_INLINE static double apply(double a, double b) { return a / b; }
};
struct Reciprocal64 {
  PTXEMU_INLINE static double apply(double a) { return 1.0 / a; }
};
struct Sqrt64 {
  PTXEMU_INLINE static double apply(double a) { return __builtin_sqrt(a); }
};
// The gross approximations of .f64: of the upper halves, with a lower half of zeros.
PTXEMU_INLINE uint32_t upper_half(double x) {
  return static_cast<uint32_t>(std::bit_cast<uint64_t>(x) >> 32);
}
PTXEMU_INLINE double double_of_upper(uint32_t upper) {
  return std::bit_cast<double>(uint64_t{upper} << 32);
}
struct ReciprocalGross {
  PTXEMU_INLINE static double apply(double a) { return double_of_upper(unit_rcp64(upper_half(a))); }
};
struct RsqrtGross {
  PTXEMU_INLINE static double apply(double a) {
    return double_of_upper(unit_rsqrt64(upper_half(a)));
  }
};
// One step of third order from the gross approximation, as ptxas writes it.
PTXEMU_INLINE double refined_rsqrt(double a) {
  const double gross = RsqrtGross::apply(a);
  const double error = __builtin_fma(-(gross * gross), a, 1.0);
  return __builtin_fma(__builtin_fma(error, 0.375, 0.5), gross * error, gross);
}
struct Rsqrt64 {
  PTXEMU_INLINE static double apply(double a) {
    const double magnitude = std::fabs(a);
    if (!(magnitude <= HUGE_VAL)) return a + a;
    if (magnitude == 0.0) return std::copysign(HUGE_VAL, a);
    if (a < 0.0) return std::bit_cast<double>(uint64_t{0xfff8000000000000});
    if (a == HUGE_VAL) return 0.0;
    return a < 0x1p-1022 ? refined_rsqrt(a * 0x1p54) * 0x1p27 : refined_rsqrt(a);
  }
};

struct DirectedForm {
  Round round;
  bool ftz, reciprocal;
};

// Directed roundings of a / b, 1 / a and sqrt(a).
template <class T, HostOp kOp>
struct Directed {
  static void run(const Exec& exec, const Insn& insn) {
    const DirectedForm& form = insn.form<DirectedForm>();
    const bool ftz = form.ftz, reciprocal = form.reciprocal;
    const T* a = exec.lanes<T>(insn.a);
    const T* b = kOp == HostOp::kDiv && !reciprocal ? exec.lanes<T>(insn.b) : nullptr;
    T* d = exec.lanes<T>(insn.d);
    const auto prepare = [&](T x) {
      if constexpr (std::is_same_v<T, float>) return ftz ? flush(x) : x;
      return x;
    };
    exec.for_lanes([&](int i) {
      const T first = reciprocal ? T{1} : prepare(a[i]);
      const T second = b != nullptr ? prepare(b[i]) : prepare(a[i]);
      T r = prepare(host_rounded(kOp, form.round, first, second, T{0}));
      if constexpr (std::is_same_v<T, float>) {
        r = canonical(r);
        // No quotient is so near to a limit that a double would not tell.
        const double quotient = static_cast<double>(first) / static_cast<double>(second);
        const bool tiny = kOp == HostOp::kDiv && flushes(form.round, quotient, 0);
        if (ftz && tiny) r = std::copysign(0.0f, r);
      }
      d[i] = r;
    });
  }
};

template <HostOp kOp>
void set_directed(Decoder& decoder, Insn& insn, Type type, const FloatForm& form, bool reciprocal) {
  decoder.set_form(insn, DirectedForm{form.round, form.ftz, reciprocal});
  insn.run = type == Type::kF32 ? plain_handler<Directed<float, kOp>>()
                                : plain_handler<Directed<double, kOp>>();
}

void need_f32_or_f64(const Decoder& decoder, Type type) {
  if (type != Type::kF32 && type != Type::kF64) {
    decoder.fail_type(type, ".f32, .f64");
  }
}

void decode_rcp(Decoder& decoder, Insn& insn) {
  const bool approx = decoder.take("approx");
  const Type type = decoder.need_type();
  need_f32_or_f64(decoder, type);
  operands_1(decoder, insn, type);
  if (approx && type == Type::kF64) {
    if (!decoder.take("ftz"))
      decoder.fail("rcp.approx of .f64 without .ftz; accepted: .approx.ftz.f64");
    insn.run = plain_handler<Map1<ReciprocalGross, double>>();
    return;
  }
  const FloatForm form = take_float_form(decoder, type);
  if (approx == form.has_round)
    decoder.fail(
        "no .approx and no rounding, or both; accepted: one of .approx, .rn, .rz, .rm, .rp");
  if (form.sat) decoder.fail(".sat is out of place; accepted: without it");
  if (form.round != Round::kNearest)
    return set_directed<HostOp::kDiv>(decoder, insn, type, form, true);
  if (approx) {
    insn.run = approx_handler<Rcp>(form.ftz);
  } else if (type == Type::kF64) {
    insn.run = handler<Map1<Reciprocal64, double>>();
  } else {
    insn.run = form.ftz ? handler<Map1<Reciprocal<true>, float>>()
                        : handler<Map1<Reciprocal<false>, float>>();
  }
}

void decode_sqrt(Decoder& decoder, Insn& insn) {
  const bool approx = decoder.take("approx");
  const Type type = decoder.need_type();
  need_f32_or_f64(decoder, type);
  operands_1(decoder, insn, type);
  const FloatForm form = take_float_form(decoder, type);
  if (approx == form.has_round || (approx && type == Type::kF64)) {
    decoder.fail(
        "no rounding, or .approx out of place; accepted: one of .rn, .rz, .rm, .rp, and "
        ".approx.f32");
  }
  if (form.sat) decoder.fail(".sat is out of place; accepted: without it");
  if (form.round != Round::kNearest)
    return set_directed<HostOp::kSqrt>(decoder, insn, type, form, false);
  if (approx) {
    insn.run = approx_handler<Sqrt>(form.ftz);
  } else if (type == Type::kF64) {
    insn.run = handler<Map1<Sqrt64, double>>();
  } else {
    insn.run = form.ftz ? handler<Map1<SquareRoot<true>, float>>()
                        : handler<Map1<SquareRoot<false>, float>>();
  }
}

void decode_rsqrt(Decoder& decoder, Insn& insn) {
  if (!decoder.take("approx")) decoder.fail("no .approx; accepted: .approx");
  const bool ftz = decoder.take("ftz");
  const Type type = decoder.need_type();
  need_f32_or_f64(decoder, type);
  operands_1(decoder, insn, type);
  if (type == Type::kF32) {
    insn.run = approx_handler<Rsqrt>(ftz);
  } else {
    insn.run =
        ftz ? plain_handler<Map1<RsqrtGross, double>>() : plain_handler<Map1<Rsqrt64, double>>();
  }
}

constexpr InstructionRow kRows[] = {
    {"rcp", decode_rcp,
     "Floating Point Instructions: rcp; Floating Point Instructions: rcp.approx.ftz.f64",
     ValueFlow::kDecides},
    {"sqrt", decode_sqrt, "Floating Point Instructions: sqrt", ValueFlow::kDecides},
    {"rsqrt", decode_rsqrt,
     "Floating Point Instructions: rsqrt; Floating Point Instructions: rsqrt.approx.ftz.f64",
     ValueFlow::kDecides},
    {"sin", decode_f32_only<Sin>, "Floating Point Instructions: sin", ValueFlow::kDecides},
    {"cos", decode_f32_only<Cos>, "Floating Point Instructions: cos", ValueFlow::kDecides},
    {"lg2", decode_f32_only<Lg2>, "Floating Point Instructions: lg2", ValueFlow::kDecides},
    {"ex2", decode_with_halves<Ex2, true>,
     "Floating Point Instructions: ex2; Half Precision Floating Point Instructions: ex2",
     ValueFlow::kDecides},
    {"tanh", decode_with_halves<Tanh, false>,
     "Floating Point Instructions: tanh; Half Precision Floating Point Instructions: tanh",
     ValueFlow::kDecides},
};

}  // namespace

void decode_float_div(Decoder& decoder, Insn& insn, Type type) {
  need_f32_or_f64(decoder, type);
  const int kind = decoder.take_one<int>({{"approx", 1}, {"full", 2}}, 0);
  const FloatForm form = take_float_form(decoder, type);
  operands_2(decoder, insn, type);
  if ((kind != 0) == form.has_round || (kind != 0 && type == Type::kF64)) {
    decoder.fail(
        "div of floats without .approx, .full or a rounding; accepted: one of .approx.f32, "
        ".full.f32, .rn, .rz, .rm, .rp");
  }
  if (form.sat) decoder.fail(".sat is out of place; accepted: without it");
  if (form.round != Round::kNearest)
    return set_directed<HostOp::kDiv>(decoder, insn, type, form, false);
  if (type == Type::kF64) {
    insn.run = handler<Map2<Divide64, double>>();
  } else if (kind != 0) {
    insn.run = by_bool(kind == 2, [&](auto full) {
      return by_bool(form.ftz, [&](auto ftz) {
        return handler<Map2<DivideApprox<decltype(full)::value, decltype(ftz)::value>, float>>();
      });
    });
  } else {
    insn.run =
        form.ftz ? handler<Map2<Divide<true>, float>>() : handler<Map2<Divide<false>, float>>();
  }
}

std::span<const InstructionRow> transcendental_rows() { return kRows; }

}  // namespace ptxemu
