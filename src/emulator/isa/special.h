// Names of the special registers ("Special Registers"; PTX ISA 10).
#pragma once

#include <string_view>

#include "emulator/isa/code.h"

namespace ptxemu {

struct SpecialName {
  SpecialRegister reg = SpecialRegister::kCount;  // kCount: no such register
  int bits = 32;
};

// "tid.x", "clock64": as Operand::text has them, without the %.
SpecialName special_register(std::string_view name);

}  // namespace ptxemu
