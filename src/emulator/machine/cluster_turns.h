// Clusters that may meet, in turns on one host thread.
#pragma once

#include "emulator/machine/launch.h"

namespace ptxemu {

// Runs every cluster of the launch on the calling thread, in an order that the seed alone decides.
// Under options.resident 1 a cluster goes on while something of it moves, and others come when it
// only spins. With more, so many are there from the start, another one starts when one ends, and
// each short turn goes to one that the seed draws: what clusters do to each other happens in many
// orders. Either way more of them start, as many as the device has room for, while nothing of those
// that are there moves. A trap, or clusters that wait for what never comes, ends the launch.
void run_in_turns(Launch& launch);

}  // namespace ptxemu
