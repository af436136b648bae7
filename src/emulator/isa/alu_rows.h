// Rows of the arithmetic, a file each, beside those that insn.h names.
#pragma once

#include "emulator/isa/insn.h"

namespace ptxemu {

std::span<const InstructionRow> bit_rows();
std::span<const InstructionRow> logic_rows();
std::span<const InstructionRow> compare_rows();
std::span<const InstructionRow> select_rows();
std::span<const InstructionRow> address_rows();
std::span<const InstructionRow> sign_rows();
std::span<const InstructionRow> transcendental_rows();

}  // namespace ptxemu
