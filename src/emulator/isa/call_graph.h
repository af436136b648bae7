// Which functions of a kernel call which.
#pragma once

#include <vector>

#include "emulator/parse/ast.h"

namespace ptxemu {

// True when no call of these functions can be inside another call of the same function: none is
// called by a pointer, and their calls by name lead in no circle.
bool calls_are_bounded(const Module& module, const std::vector<const Function*>& functions);

}  // namespace ptxemu
