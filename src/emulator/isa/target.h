// Which PTX a device runs and which instructions a target has ("PTX Module Directives: .version",
// ".target"; PTX ISA 11.1.1, 11.1.2; "Target ISA Notes" of the instructions).
#pragma once

#include <span>
#include <string_view>

#include "emulator/isa/insn.h"
#include "emulator/machine/options.h"
#include "emulator/parse/ast.h"

namespace ptxemu {

// sm_90, sm_90a (that architecture alone), sm_100f (its family).
struct Target {
  int number = 0;
  char suffix = 0;  // 'a', 'f' or 0

  static Target of(std::string_view name);  // number 0: no such name
};

// Throws Error{kLaunch} unless the device runs modules of this version and target.
void check_runs_on(const Module& module, const DeviceModel& device);

// Throws Error{kUnknownForm} when the statement's instruction is not among those of the target.
void check_in_target(std::span<const std::string_view> words, size_t operands,
                     std::string_view target);

}  // namespace ptxemu
