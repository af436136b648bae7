// Which rows of the instruction table inputs have executed.
#pragma once

#include <string>

#include "ptxemu/machine.h"

namespace ptxemu::fuzz {

// Adds the rows of the statements that stand alone on a line which a warp of the launch executed.
void note_executed_rows(std::string ptx, const LaunchReport& report);

}  // namespace ptxemu::fuzz

// For the driver: a bit for each row of all_rows(), and how many of them that is, with the names of
// the others.
extern "C" void fuzz_reached(uint64_t* bits, size_t words);
extern "C" void fuzz_describe(const uint64_t* bits, size_t words);
