// What the files of the arithmetic family decode for each other: mnemonics such as add are one row
// for integers and floating-point numbers. Each takes the type that was read first.
#pragma once

#include "emulator/isa/decoder.h"

namespace ptxemu {

void decode_float_add(Decoder& decoder, Insn& insn, Type type);
void decode_float_sub(Decoder& decoder, Insn& insn, Type type);
void decode_float_mul(Decoder& decoder, Insn& insn, Type type);
void decode_float_fma(Decoder& decoder, Insn& insn, Type type);
void decode_float_div(Decoder& decoder, Insn& insn, Type type);
void decode_float_abs(Decoder& decoder, Insn& insn, Type type);
void decode_float_neg(Decoder& decoder, Insn& insn, Type type);
void decode_float_min(Decoder& decoder, Insn& insn, Type type);
void decode_float_max(Decoder& decoder, Insn& insn, Type type);

void decode_mul(Decoder& decoder, Insn& insn);
void decode_mad(Decoder& decoder, Insn& insn);
void decode_mul24(Decoder& decoder, Insn& insn);
void decode_mad24(Decoder& decoder, Insn& insn);
void decode_add_carry(Decoder& decoder, Insn& insn);
void decode_addc(Decoder& decoder, Insn& insn);
void decode_sub_carry(Decoder& decoder, Insn& insn);
void decode_subc(Decoder& decoder, Insn& insn);
void decode_mad_carry(Decoder& decoder, Insn& insn, Type type, bool high, bool carry_in);
void decode_madc(Decoder& decoder, Insn& insn);

}  // namespace ptxemu
