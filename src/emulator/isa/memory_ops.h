// Members of the family of loads and stores that have files of their own.
#pragma once

#include "emulator/isa/decoder.h"

namespace ptxemu {

// shared_address.cc
void decode_mapa(Decoder& decoder, Insn& insn);
void decode_getctarank(Decoder& decoder, Insn& insn);
// memory_hints.cc
void decode_prefetch(Decoder& decoder, Insn& insn);
void decode_apply_priority(Decoder& decoder, Insn& insn);
void decode_discard(Decoder& decoder, Insn& insn);
void decode_create_policy(Decoder& decoder, Insn& insn);
void decode_multimem(Decoder& decoder, Insn& insn);
// remote_store.cc
void decode_store_async(Decoder& decoder, Insn& insn);
void decode_store_bulk(Decoder& decoder, Insn& insn);
void decode_reduce_async(Decoder& decoder, Insn& insn);

}  // namespace ptxemu
