// Tensor maps as operands, and the instructions that edit them (tensormap.cc).
#pragma once

#include "emulator/isa/decoder.h"
#include "emulator/machine/exec.h"
#include "emulator/machine/tensor_map.h"

namespace ptxemu {

// The address of a tensor map, generic: a kernel parameter by name gets its window.
Address tensor_map_address(Decoder& decoder, const Operand& base);
// Throws Trap when there is none, or one that cuTensorMapEncodeTiled would not make.
TensorMap read_tensor_map(const Exec& exec, const Insn& insn, const Address& address, int lane);

void decode_tensormap_replace(Decoder& decoder, Insn& insn);
void decode_tensormap_copy(Decoder& decoder, Insn& insn);

}  // namespace ptxemu
