// Bits and fields of bits ("Integer Arithmetic Instructions": popc to dp2a; PTX ISA 9.7.1.14 to
// 9.7.1.24).
#include <algorithm>
#include <type_traits>

#include "emulator/isa/alu_rows.h"
#include "emulator/isa/lanes.h"

namespace ptxemu {
namespace {

template <class T>
inline constexpr uint32_t kBits = sizeof(T) * 8;

struct Popc {
  template <class T>
  PTXEMU_INLINE static uint32_t apply(T a) {
    return static_cast<uint32_t>(std::popcount(a));
  }
};
struct Clz {
  template <class T>
  PTXEMU_INLINE static uint32_t apply(T a) {
    return static_cast<uint32_t>(std::countl_zero(a));
  }
};
template <bool kShiftAmount>
struct Bfind {
  template <class T>
  PTXEMU_INLINE static uint32_t apply(T a) {
    using U = std::make_unsigned_t<T>;
    const U bits = static_cast<U>(a < 0 ? ~a : a);
    if (bits == 0) return ~0u;
    const auto zeros = static_cast<uint32_t>(std::countl_zero(bits));
    return kShiftAmount ? zeros : kBits<T> - 1 - zeros;
  }
};
struct Fns {
  static uint32_t apply(uint32_t mask, uint32_t base, int32_t offset) {
    // |offset| has no value in 32 bits: an H200 gives 0.
    if (offset == INT32_MIN) return 0;
    if (base > 31) return ~0u;
    if (offset == 0) return mask >> base & 1 ? base : ~0u;
    int64_t count = (offset > 0 ? int64_t{offset} : -int64_t{offset}) - 1;
    const int step = offset > 0 ? 1 : -1;
    for (int place = static_cast<int>(base); place >= 0 && place < 32; place += step) {
      if ((mask >> place & 1) == 0) continue;
      if (count-- == 0) return static_cast<uint32_t>(place);
    }
    return ~0u;
  }
};
struct Brev {
  template <class T>
  PTXEMU_INLINE static T apply(T a) {
    uint64_t v = a;
    v = (v >> 1 & 0x5555555555555555) | (v & 0x5555555555555555) << 1;
    v = (v >> 2 & 0x3333333333333333) | (v & 0x3333333333333333) << 2;
    v = (v >> 4 & 0x0f0f0f0f0f0f0f0f) | (v & 0x0f0f0f0f0f0f0f0f) << 4;
    return static_cast<T>(__builtin_bswap64(v) >> (64 - kBits<T>));
  }
};
// The low `count` bits.
template <class T>
PTXEMU_INLINE T low_bits(uint32_t count) {
  return count >= kBits<T> ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << count) - 1);
}
// Places and counts beyond 255 are undefined; an H200 takes the low 8 bits of them in 32-bit
// fields, and all bits in 64-bit fields.
template <class T>
PTXEMU_INLINE uint32_t field_operand(uint32_t x) {
  if constexpr (sizeof(T) == 4) return x & 0xff;
  return x < 0xff ? x : 0xff;
}
struct Bfe {
  template <class T>
  PTXEMU_INLINE static T apply(T a, uint32_t b, uint32_t c) {
    using U = std::make_unsigned_t<T>;
    const uint32_t place = field_operand<T>(b), count = field_operand<T>(c);
    if (count == 0) return 0;
    const uint32_t top = std::min(place + count - 1, kBits<T> - 1);
    const U sign = std::is_signed_v<T> && (static_cast<U>(a) >> top & 1) ? ~U{0} : U{0};
    const U field = place < kBits<T> ? static_cast<U>(static_cast<U>(a) >> place) : U{0};
    // Bits that come from a, not from the sign.
    const uint32_t present = place < kBits<T> ? std::min(count, kBits<T> - place) : 0;
    const U mask = low_bits<U>(present);
    return static_cast<T>((field & mask) | (sign & ~mask));
  }
};
template <class T>
struct Bfi {
  static void run(const Exec& exec, const Insn& insn) {
    const T *a = exec.lanes<T>(insn.a), *b = exec.lanes<T>(insn.b);
    const auto *c = exec.lanes<uint32_t>(insn.c), *d = exec.lanes<uint32_t>(insn.list[0]);
    each_lane(exec.mask, exec.lanes<T>(insn.d), [=](int i) -> T {
      const uint32_t place = field_operand<T>(c[i]), count = field_operand<T>(d[i]);
      if (place >= kBits<T>) return b[i];
      const T mask = static_cast<T>(low_bits<T>(count) << place);
      return static_cast<T>((b[i] & ~mask) | (static_cast<T>(a[i] << place) & mask));
    });
  }
};
template <bool kClamp>
struct Szext {
  template <class T>
  PTXEMU_INLINE static T apply(T a, uint32_t b) {
    const uint32_t count = b & 31;
    if (kClamp && b >= 32) return a;
    if (count == 0) return 0;
    const uint32_t mask = low_bits<uint32_t>(count);
    const bool sign = std::is_signed_v<T> && (static_cast<uint32_t>(a) >> (count - 1) & 1);
    return static_cast<T>((static_cast<uint32_t>(a) & mask) | (sign ? ~mask : 0));
  }
};
template <bool kClamp>
struct Bmsk {
  PTXEMU_INLINE static uint32_t apply(uint32_t a, uint32_t b) {
    const uint32_t place = a & 31, count = b & 31;
    if (kClamp && a >= 32) return 0;
    const uint32_t from = ~0u << place;
    if (kClamp && b >= 32) return from;
    return from & low_bits<uint32_t>(place + count);
  }
};
// The sum of products of fields; in 64 bits, of which the low 32 count.
template <class A, class B, int kFields, int kFirst>
struct Dot {
  PTXEMU_INLINE static uint32_t apply(uint32_t a, uint32_t b, uint32_t c) {
    for (int i = 0; i < kFields; ++i) {
      const auto x = static_cast<A>(a >> (i * 32 / kFields));
      const auto y = static_cast<B>(b >> ((i + kFirst) * 8));
      c += static_cast<uint32_t>(static_cast<int32_t>(x) * static_cast<int32_t>(y));
    }
    return c;
  }
};

void decode_count(Decoder& decoder, Insn& insn, Handler of_32, Handler of_64) {
  const Type type = decoder.need_type();
  if (type != Type::kB32 && type != Type::kB64) decoder.fail("another type; accepted: .b32, .b64");
  decoder.need_operands(2, 2);
  insn.a = decoder.source(1, type);
  insn.d = decoder.dest(0, Type::kU32);
  insn.run = type == Type::kB32 ? of_32 : of_64;
}
void decode_popc(Decoder& decoder, Insn& insn) {
  decode_count(decoder, insn, handler<Map1<Popc, uint32_t, uint32_t>>(),
               handler<Map1<Popc, uint32_t, uint64_t>>());
}
void decode_clz(Decoder& decoder, Insn& insn) {
  decode_count(decoder, insn, handler<Map1<Clz, uint32_t, uint32_t>>(),
               handler<Map1<Clz, uint32_t, uint64_t>>());
}

template <bool kShiftAmount>
Handler bfind_handler(const Decoder& decoder, Type type) {
  using F = Bfind<kShiftAmount>;
  switch (type) {
    case Type::kU32: return handler<Map1<F, uint32_t, uint32_t>>();
    case Type::kS32: return handler<Map1<F, uint32_t, int32_t>>();
    case Type::kU64: return handler<Map1<F, uint32_t, uint64_t>>();
    case Type::kS64: return handler<Map1<F, uint32_t, int64_t>>();
    default: decoder.fail("another type; accepted: .u32, .s32, .u64, .s64");
  }
}
void decode_bfind(Decoder& decoder, Insn& insn) {
  const bool shift_amount = decoder.take("shiftamt");
  const Type type = decoder.need_type();
  decoder.need_operands(2, 2);
  insn.a = decoder.source(1, type);
  insn.d = decoder.dest(0, Type::kU32);
  insn.run =
      shift_amount ? bfind_handler<true>(decoder, type) : bfind_handler<false>(decoder, type);
}

void decode_fns(Decoder& decoder, Insn& insn) {
  const Type type = decoder.need_type();
  if (type != Type::kB32) decoder.fail_type(type, ".b32");
  operands_3(decoder, insn, type);
  insn.run = plain_handler<Map3<Fns, uint32_t, uint32_t, uint32_t, int32_t>>();
}

void decode_brev(Decoder& decoder, Insn& insn) {
  const Type type = decoder.need_type();
  if (type != Type::kB32 && type != Type::kB64) decoder.fail("another type; accepted: .b32, .b64");
  operands_1(decoder, insn, type);
  insn.run = type == Type::kB32 ? handler<Map1<Brev, uint32_t>>() : handler<Map1<Brev, uint64_t>>();
}

// A position or a length that is written as a number has 8 bits.
void check_field(const Decoder& decoder, size_t first) {
  for (size_t i = first; i < first + 2; ++i) {
    const Operand& operand = decoder.operand(i);
    if (decoder.is_constant(operand) && operand.integer > 255) {
      decoder.fail("a position or a length out of range; accepted: 0 to 255");
    }
  }
}

void decode_bfe(Decoder& decoder, Insn& insn) {
  const Type type = decoder.need_type();
  decoder.need_operands(4, 4);
  check_field(decoder, 2);
  insn.a = decoder.source(1, type);
  insn.b = decoder.source(2, Type::kU32);
  insn.c = decoder.source(3, Type::kU32);
  insn.d = decoder.dest(0, type);
  switch (type) {
    case Type::kU32: insn.run = handler<Map3<Bfe, uint32_t>>(); break;
    case Type::kS32: insn.run = handler<Map3<Bfe, int32_t, int32_t, uint32_t>>(); break;
    case Type::kU64: insn.run = handler<Map3<Bfe, uint64_t, uint64_t, uint32_t>>(); break;
    case Type::kS64: insn.run = handler<Map3<Bfe, int64_t, int64_t, uint32_t>>(); break;
    default: decoder.fail("another type; accepted: .u32, .s32, .u64, .s64");
  }
}

void decode_bfi(Decoder& decoder, Insn& insn) {
  const Type type = decoder.need_type();
  if (type != Type::kB32 && type != Type::kB64) decoder.fail("another type; accepted: .b32, .b64");
  decoder.need_operands(5, 5);
  check_field(decoder, 3);
  insn.a = decoder.source(1, type);
  insn.b = decoder.source(2, type);
  insn.c = decoder.source(3, Type::kU32);
  decoder.set_list(insn, {decoder.source(4, Type::kU32)});
  insn.d = decoder.dest(0, type);
  insn.run = type == Type::kB32 ? plain_handler<Bfi<uint32_t>>() : plain_handler<Bfi<uint64_t>>();
}

// .clamp or .wrap, one of which must be there.
bool take_clamp(Decoder& decoder) {
  const int mode = decoder.take_one<int>({{"clamp", 1}, {"wrap", 2}}, 0);
  if (mode == 0) decoder.fail("no mode; accepted: .clamp, .wrap");
  return mode == 1;
}

void decode_szext(Decoder& decoder, Insn& insn) {
  const bool clamp = take_clamp(decoder);
  const Type type = decoder.need_type();
  operands_2(decoder, insn, type);
  if (type == Type::kU32) {
    insn.run =
        clamp ? handler<Map2<Szext<true>, uint32_t>>() : handler<Map2<Szext<false>, uint32_t>>();
  } else if (type == Type::kS32) {
    insn.run = clamp ? handler<Map2<Szext<true>, int32_t, int32_t, uint32_t>>()
                     : handler<Map2<Szext<false>, int32_t, int32_t, uint32_t>>();
  } else {
    decoder.fail("another type; accepted: .u32, .s32");
  }
}

void decode_bmsk(Decoder& decoder, Insn& insn) {
  const bool clamp = take_clamp(decoder);
  if (!decoder.take("b32")) decoder.fail("another type; accepted: .b32");
  operands_2(decoder, insn, Type::kB32);
  insn.run = clamp ? handler<Map2<Bmsk<true>, uint32_t>>() : handler<Map2<Bmsk<false>, uint32_t>>();
}

template <class AS, class AU, int kFields, int kFirst>
Handler dot_handler(bool a_signed, bool b_signed) {
  if (a_signed && b_signed) return handler<Map3<Dot<AS, int8_t, kFields, kFirst>, uint32_t>>();
  if (a_signed) return handler<Map3<Dot<AS, uint8_t, kFields, kFirst>, uint32_t>>();
  if (b_signed) return handler<Map3<Dot<AU, int8_t, kFields, kFirst>, uint32_t>>();
  return handler<Map3<Dot<AU, uint8_t, kFields, kFirst>, uint32_t>>();
}

void decode_dot(Decoder& decoder, Insn& insn, int fields, bool high) {
  const Type a = decoder.need_type(), b = decoder.need_type();
  for (const Type type : {a, b}) {
    if (type != Type::kU32 && type != Type::kS32) decoder.fail("other types; accepted: .u32, .s32");
  }
  operands_3(decoder, insn, Type::kU32);
  const bool as = is_signed(a), bs = is_signed(b);
  insn.run = fields == 4 ? dot_handler<int8_t, uint8_t, 4, 0>(as, bs)
             : high      ? dot_handler<int16_t, uint16_t, 2, 2>(as, bs)
                         : dot_handler<int16_t, uint16_t, 2, 0>(as, bs);
}
void decode_dp4a(Decoder& decoder, Insn& insn) { decode_dot(decoder, insn, 4, false); }
void decode_dp2a(Decoder& decoder, Insn& insn) {
  const int half = decoder.take_one<int>({{"lo", 1}, {"hi", 2}}, 0);
  if (half == 0) decoder.fail("dp2a without a half; accepted: .lo, .hi");
  decode_dot(decoder, insn, 2, half == 2);
}

constexpr InstructionRow kRows[] = {
    {"popc", decode_popc, "Integer Arithmetic Instructions: popc", ValueFlow::kDecides},
    {"clz", decode_clz, "Integer Arithmetic Instructions: clz", ValueFlow::kDecides},
    {"bfind", decode_bfind, "Integer Arithmetic Instructions: bfind", ValueFlow::kDecides},
    {"fns", decode_fns, "Integer Arithmetic Instructions: fns"},
    {"brev", decode_brev, "Integer Arithmetic Instructions: brev", ValueFlow::kComputes},
    {"bfe", decode_bfe, "Integer Arithmetic Instructions: bfe", ValueFlow::kMovesOne},
    {"bfi", decode_bfi, "Integer Arithmetic Instructions: bfi", ValueFlow::kMovesTwo},
    {"szext", decode_szext, "Integer Arithmetic Instructions: szext"},
    {"bmsk", decode_bmsk, "Integer Arithmetic Instructions: bmsk"},
    {"dp4a", decode_dp4a, "Integer Arithmetic Instructions: dp4a"},
    {"dp2a", decode_dp2a, "Integer Arithmetic Instructions: dp2a"},
};

}  // namespace

std::span<const InstructionRow> bit_rows() { return kRows; }

}  // namespace ptxemu
