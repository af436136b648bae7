// What ends a function's code.
#pragma once

#include "emulator/isa/insn.h"

namespace ptxemu {

// The instruction after a function's last: lanes that come here return, of a kernel they exit.
Flow return_from_function(Exec& exec, const Insn& insn);

}  // namespace ptxemu
