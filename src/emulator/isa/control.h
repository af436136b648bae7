// Control flow in two files (control.cc, call.cc).
#pragma once

#include "emulator/isa/insn.h"

namespace ptxemu {

class Decoder;

// The instruction after a function's last: lanes that come here return, of a kernel they exit.
Flow return_from_function(Exec& exec, const Insn& insn);
void decode_call(Decoder& decoder, Insn& insn);

}  // namespace ptxemu
