// Whether the clusters of a launch can learn of one another while they run.
//
// Where they cannot, each gives the same result whatever the others do, so that they may run in any
// order and side by side.
#pragma once

#include "emulator/parse/ast.h"

namespace ptxemu {

// True when the function has a statement by which clusters meet in global memory: an atomic or a
// reduction, a volatile access or one with an order of scope .gpu or .sys, a load that asks memory
// each time (.cv), or a request for another cluster's work (clusterlaunchcontrol). A generic
// address counts as global. Plain loads and stores do not count: "Memory Consistency Model" (PTX
// ISA 8) gives them no value that another cluster stores meanwhile.
bool may_meet(const Function* function);

}  // namespace ptxemu
