// Where a module's .global and .const variables lie.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>

#include "emulator/isa/code.h"
#include "emulator/machine/memory.h"

namespace ptxemu {

struct ModuleVariables {
  SymbolAddresses addresses;
  std::map<std::string_view, uint64_t> sizes;
};

// Gives each variable an allocation of its own and its initial value ("Initializers", PTX ISA
// 5.4.4). Names point into the module. Throws Error{kMemory} when the sandbox is full, and
// Error{kSyntax} for an initialiser that names nothing of the module.
ModuleVariables place_variables(const Module& module, GlobalMemory& memory);

}  // namespace ptxemu
