// Loops over the 32 lanes of a slot, which the compiler turns into vector instructions, compiled
// for several instruction sets of the host; the machine that runs it decides which is called.
//
// An operation Op has `static void run(const Exec&, const Insn&)`; handler<Op>() is its handler.
// Everything below run() must be PTXEMU_INLINE, so that it is compiled for the caller's set.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "emulator/isa/decoder.h"
#include "emulator/machine/exec.h"

#define PTXEMU_INLINE __attribute__((always_inline)) inline
#define PTXEMU_LAMBDA __attribute__((always_inline))
#if defined(__clang__)
#define PTXEMU_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#define PTXEMU_WIDE ""  // the word below makes clang ignore the whole attribute
#else
#define PTXEMU_INDEPENDENT _Pragma("GCC ivdep")
#define PTXEMU_WIDE ",prefer-vector-width=512"
#endif
#if defined(__x86_64__)
#define PTXEMU_AVX2 __attribute__((target("avx2,fma,f16c,bmi,bmi2,lzcnt,popcnt")))
#define PTXEMU_AVX512                                                              \
  __attribute__((                                                                  \
      target("avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx2,fma,f16c,bmi,bmi2," \
             "lzcnt,popcnt" PTXEMU_WIDE)))
#endif

namespace ptxemu {

// --- Choice of the host's instructions ----------------------------------------------------------
enum class VectorLevel : uint8_t { kBase, kAvx2, kAvx512 };
VectorLevel vector_level();
// Kernels decoded from now on use at most this; for tests that compare the levels.
void limit_vector_level(VectorLevel most);

template <class Op>
Flow run_base(Exec& exec, const Insn& insn) {
  Op::run(exec, insn);
  return Flow::kNext;
}
#if defined(__x86_64__)
template <class Op>
PTXEMU_AVX2 Flow run_avx2(Exec& exec, const Insn& insn) {
  Op::run(exec, insn);
  return Flow::kNext;
}
template <class Op>
PTXEMU_AVX512 Flow run_avx512(Exec& exec, const Insn& insn) {
  Op::run(exec, insn);
  return Flow::kNext;
}
#endif

template <class Op>
Handler handler() {
#if defined(__x86_64__)
  switch (vector_level()) {
    case VectorLevel::kAvx512: return run_avx512<Op>;
    case VectorLevel::kAvx2: return run_avx2<Op>;
    case VectorLevel::kBase: break;
  }
#endif
  return run_base<Op>;
}
// For what is not worth a vector.
template <class Op>
Handler plain_handler() {
  return run_base<Op>;
}

// --- Loops --------------------------------------------------------------------------------------
// d[i] = f(i) for the N values of each lane of mask. A destination may be a source, whole.
template <int N = 1, class T, class F>
PTXEMU_INLINE void each_lane(uint32_t mask, T* d, F f) {
  if (mask == ~0u) {
    PTXEMU_INDEPENDENT
    for (int i = 0; i < 32 * N; ++i) d[i] = f(i);
    return;
  }
  for (uint32_t m = mask; m != 0; m &= m - 1) {
    const int lane = std::countr_zero(m);
    for (int i = lane * N; i < lane * N + N; ++i) d[i] = f(i);
  }
}

// Bit i is f(i), for all 32 lanes; f has no effects.
template <class F>
PTXEMU_INLINE uint32_t lane_mask(F f) {
  alignas(64) uint8_t is[32];
  for (int i = 0; i < 32; ++i) is[i] = f(i) ? 0xff : 0;
#if defined(__SSE2__)
  const auto low = _mm_load_si128(reinterpret_cast<const __m128i*>(is));
  const auto high = _mm_load_si128(reinterpret_cast<const __m128i*>(is + 16));
  return static_cast<uint32_t>(_mm_movemask_epi8(low)) |
         static_cast<uint32_t>(_mm_movemask_epi8(high)) << 16;
#else
  uint32_t mask = 0;
  for (int i = 0; i < 32; ++i) mask |= (is[i] & 1u) << i;
  return mask;
#endif
}

// --- Operations that map lane to lane -----------------------------------------------------------
// F::apply of one, two, three values; N of them in each lane.
template <class F, class D, class A = D, int N = 1>
struct Map1 {
  PTXEMU_INLINE static void run(const Exec& exec, const Insn& insn) {
    const A* a = exec.lanes<A, N>(insn.a);
    each_lane<N>(exec.mask, exec.lanes<D, N>(insn.d),
                 [=](int i) PTXEMU_LAMBDA { return F::apply(a[i]); });
  }
};

template <class F, class D, class A = D, class B = A, int N = 1>
struct Map2 {
  PTXEMU_INLINE static void run(const Exec& exec, const Insn& insn) {
    const A* a = exec.lanes<A, N>(insn.a);
    const B* b = exec.lanes<B, N>(insn.b);
    each_lane<N>(exec.mask, exec.lanes<D, N>(insn.d),
                 [=](int i) PTXEMU_LAMBDA { return F::apply(a[i], b[i]); });
  }
};

template <class F, class D, class A = D, class B = A, class C = B, int N = 1>
struct Map3 {
  PTXEMU_INLINE static void run(const Exec& exec, const Insn& insn) {
    const A* a = exec.lanes<A, N>(insn.a);
    const B* b = exec.lanes<B, N>(insn.b);
    const C* c = exec.lanes<C, N>(insn.c);
    each_lane<N>(exec.mask, exec.lanes<D, N>(insn.d),
                 [=](int i) PTXEMU_LAMBDA { return F::apply(a[i], b[i], c[i]); });
  }
};

// --- Choice of a type ---------------------------------------------------------------------------
inline constexpr std::string_view kIntegers = ".u16, .u32, .u64, .s16, .s32, .s64";
// The handler of M<T> for an integer type of 16, 32 or 64 bits.
template <template <class> class M>
Handler for_integer(const Decoder& decoder, Type type) {
  switch (type) {
    case Type::kU16: return handler<M<uint16_t>>();
    case Type::kU32: return handler<M<uint32_t>>();
    case Type::kU64: return handler<M<uint64_t>>();
    case Type::kS16: return handler<M<int16_t>>();
    case Type::kS32: return handler<M<int32_t>>();
    case Type::kS64: return handler<M<int64_t>>();
    default: decoder.fail_type(type, kIntegers);
  }
}
// The handler of M<T> for the unsigned integer of the type's width.
template <template <class> class M>
Handler for_width(const Decoder& decoder, Type type) {
  switch (bits_of(type)) {
    case 16: return handler<M<uint16_t>>();
    case 32: return handler<M<uint32_t>>();
    case 64: return handler<M<uint64_t>>();
    default: decoder.fail_type(type, "types of 16, 32 and 64 bits");
  }
}

// --- Operands -----------------------------------------------------------------------------------
// d, a / d, a, b / d, a, b, c of one type.
inline void operands_1(Decoder& decoder, Insn& insn, Type type) {
  decoder.need_operands(2, 2);
  insn.a = decoder.source(1, type);
  insn.d = decoder.dest(0, type);
}
inline void operands_2(Decoder& decoder, Insn& insn, Type type) {
  decoder.need_operands(3, 3);
  insn.a = decoder.source(1, type);
  insn.b = decoder.source(2, type);
  insn.d = decoder.dest(0, type);
}
inline void operands_3(Decoder& decoder, Insn& insn, Type type) {
  decoder.need_operands(4, 4);
  insn.a = decoder.source(1, type);
  insn.b = decoder.source(2, type);
  insn.c = decoder.source(3, type);
  insn.d = decoder.dest(0, type);
}

}  // namespace ptxemu
