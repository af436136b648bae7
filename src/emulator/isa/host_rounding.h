// Operations in the host's own rounding modes, for those that are rare: .f64, division, square
// root.
#pragma once

#include "emulator/isa/rounding.h"

namespace ptxemu {

enum class HostOp : uint8_t { kAdd, kMul, kFma, kDiv, kSqrt };

// a op b (op c), rounded as asked. The caller's rounding mode (to nearest) is as before.
double host_rounded(HostOp op, Round round, double a, double b, double c);
float host_rounded(HostOp op, Round round, float a, float b, float c);

}  // namespace ptxemu
