#include "emulator/machine/module_variables.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "emulator/error.h"

namespace ptxemu {

namespace {

// The address of a variable or, for tables of functions, of a function.
uint64_t address_of(const Module& module, const SymbolAddresses& addresses,
                    const Variable& variable, const Initializer& init) {
  const auto found = addresses.find(init.symbol);
  if (found != addresses.end()) return found->second;
  const Function* function = module.find(init.symbol);
  if (function == nullptr) {
    throw Error(
        ErrorCode::kSyntax, variable.line,
        fmt::format("initialiser of {}: no variable or function {}; accepted: one of the module",
                    variable.name, init.symbol));
  }
  return kFunctionWindow + static_cast<uint64_t>(function - module.functions.data());
}

uint64_t bits_of_value(const Module& module, const SymbolAddresses& addresses,
                       const Variable& variable, const Initializer& init) {
  uint64_t bits = init.integer;
  if (init.kind == Initializer::Kind::kFloat) {
    const int width = bytes_of(variable.type);
    const float single = static_cast<float>(init.real);
    if (width == 8) std::memcpy(&bits, &init.real, 8);
    if (width == 4) std::memcpy(&bits, &single, 4);
  } else if (init.kind == Initializer::Kind::kAddress) {
    bits += address_of(module, addresses, variable, init);
    if (init.mask != 0) bits = (bits & init.mask) >> std::countr_zero(init.mask);
  }
  return bits;
}

}  // namespace

namespace {

// Names the variable and its line where it does not fit.
uint64_t allocate(GlobalMemory& memory, const Variable& variable) {
  try {
    return memory.allocate_zeroed(std::max<uint64_t>(variable.bytes, 1),
                                  std::string(variable.name));
  } catch (const Error& error) {
    throw Error(error.code(), variable.line, fmt::format("`{}`: {}", variable.name, error.what()));
  }
}

// Variables of .const lie in one bank ("Constant State Space"; PTX ISA 5.1.3); ptxas refuses more.
void check_constants(const Module& module) {
  constexpr uint64_t kBank = 65536;
  uint64_t end = 0;
  for (const Variable& variable : module.variables) {
    if (variable.space != Space::kConst) continue;
    const uint64_t begin = (end + variable.align - 1) / variable.align * variable.align;
    if (begin > kBank || variable.bytes > kBank - begin) {
      throw Error(ErrorCode::kSyntax, variable.line,
                  fmt::format("`{}` of {} bytes after {} others in .const; accepted: {} in all",
                              variable.name, variable.bytes, begin, kBank));
    }
    end = begin + variable.bytes;
  }
}

}  // namespace

ModuleVariables place_variables(const Module& module, GlobalMemory& memory) {
  check_constants(module);
  ModuleVariables placed;
  for (const Variable& variable : module.variables) {
    if (variable.space != Space::kGlobal && variable.space != Space::kConst) continue;
    const uint64_t address = allocate(memory, variable);
    placed.addresses[variable.name] = address;
    placed.sizes[variable.name] = variable.bytes;
  }
  for (const Variable& variable : module.variables) {
    const auto found = placed.addresses.find(variable.name);
    if (found == placed.addresses.end()) continue;
    std::byte* host = memory.find(found->second, variable.bytes);
    const auto width = std::min<size_t>(static_cast<size_t>(bytes_of(variable.type)), 8);
    for (const Initializer& init : variable.init) {
      const uint64_t bits = bits_of_value(module, placed.addresses, variable, init);
      std::memcpy(host + init.byte_offset, &bits, width);
    }
  }
  return placed;
}

}  // namespace ptxemu
