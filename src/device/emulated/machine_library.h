// libptxemu, opened at run time when an emulated device is first asked for, so that a program that
// asks for none does not carry it.
#pragma once

#include <string>
#include <vector>

#include "ptxemu/methods.h"

namespace fa4::internal {

// Null when the library cannot be opened: machine_problem() then says why and what would help.
// Opened once and never closed. Thread-safe.
const ptxemu::Methods* machine_methods();
const std::string& machine_problem();

// Files that dlopen is tried with, in this order: config().emulator_library alone when that is
// given; else beside the library (or program) that holds this code, in the lib folder next to its
// folder, and by the loader's own search.
std::vector<std::string> machine_library_places();

// Opens the first of `places` that is there and has these methods. False: problem says why.
bool open_machine_library(const std::vector<std::string>& places, const ptxemu::Methods*& methods,
                          std::string& problem);

}  // namespace fa4::internal
