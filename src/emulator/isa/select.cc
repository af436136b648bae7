// "Comparison and Selection Instructions": selp, slct (PTX ISA 9.7.6.3, 9.7.6.4).
#include "emulator/isa/alu_rows.h"
#include "emulator/isa/formats.h"

namespace ptxemu {
namespace {

struct SelectForm {
  bool negated;  // @!p
};
template <class T>
struct Select {
  PTXEMU_INLINE static void run(const Exec& exec, const Insn& insn) {
    const T *a = exec.lanes<T>(insn.a), *b = exec.lanes<T>(insn.b);
    const uint32_t chosen = exec.predicate(insn.c) ^ (insn.form<SelectForm>().negated ? ~0u : 0);
    each_lane(exec.mask, exec.lanes<T>(insn.d),
              [=](int i) PTXEMU_LAMBDA { return chosen >> i & 1 ? a[i] : b[i]; });
  }
};

template <class T>
struct SelectSigned {
  PTXEMU_INLINE static T apply(T a, T b, int32_t c) { return c >= 0 ? a : b; }
};
template <class T, bool kFlush>
struct SelectFloat {
  PTXEMU_INLINE static T apply(T a, T b, float c) { return flush_if<kFlush>(c) >= 0 ? a : b; }
};

template <class T>
using SignedLanes = Map3<SelectSigned<T>, T, T, T, int32_t>;
template <class T>
using FloatLanes = Map3<SelectFloat<T, false>, T, T, T, float>;
template <class T>
using FlushedLanes = Map3<SelectFloat<T, true>, T, T, T, float>;

bool is_selectable(Type type) {
  switch (type) {
    case Type::kB16:
    case Type::kB32:
    case Type::kB64:
    case Type::kU16:
    case Type::kU32:
    case Type::kU64:
    case Type::kS16:
    case Type::kS32:
    case Type::kS64:
    case Type::kF32:
    case Type::kF64: return true;
    default: return false;
  }
}

Type need_selectable(Decoder& decoder) {
  const Type type = decoder.need_type();
  if (!is_selectable(type)) {
    decoder.fail_type(type, ".b16, .b32, .b64, .u16, .u32, .u64, .s16, .s32, .s64, .f32, .f64");
  }
  return type;
}

void decode_selp(Decoder& decoder, Insn& insn) {
  const Type type = need_selectable(decoder);
  decoder.need_operands(4, 4);
  insn.a = decoder.source(1, type);
  insn.b = decoder.source(2, type);
  bool negated = false;
  insn.c = decoder.predicate(decoder.operand(3), &negated);
  decoder.set_form(insn, SelectForm{negated});
  insn.d = decoder.dest(0, type);
  insn.run = for_width<Select>(decoder, type);
}

void decode_slct(Decoder& decoder, Insn& insn) {
  const Type type = need_selectable(decoder);
  const Type by = decoder.need_type();
  if (by != Type::kS32 && by != Type::kF32)
    decoder.fail("slct by another type; accepted: by .s32, .f32");
  decoder.need_operands(4, 4);
  insn.a = decoder.source(1, type);
  insn.b = decoder.source(2, type);
  insn.c = decoder.source(3, by);
  insn.d = decoder.dest(0, type);
  if (by == Type::kS32) {
    insn.run = for_width<SignedLanes>(decoder, type);
  } else {
    insn.run = decoder.take("ftz") ? for_width<FlushedLanes>(decoder, type)
                                   : for_width<FloatLanes>(decoder, type);
  }
}

constexpr InstructionRow kRows[] = {
    {"selp", decode_selp, "Comparison and Selection Instructions: selp", ValueFlow::kComputes},
    {"slct", decode_slct, "Comparison and Selection Instructions: slct", ValueFlow::kDecides},
};

}  // namespace

std::span<const InstructionRow> select_rows() { return kRows; }

}  // namespace ptxemu
