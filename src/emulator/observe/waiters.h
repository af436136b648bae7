// Who waits for what: the table of a deadlock.
#pragma once

#include <string>
#include <vector>

#include "emulator/machine/launch.h"
#include "emulator/machine/warp.h"

namespace ptxemu {

// "file.cu:12" of an instruction, empty without .loc.
std::string source_of(const Code& code, const CodeFunction& function, const Insn& insn);

// "smem+0x420 (name+0x20)": an offset in shared memory, by the variable that holds it.
std::string name_shared(const Code& code, uint32_t offset);

// Appends a row for every group of the warp that has not exited.
void describe_waiters(const Launch& launch, const Warp& warp, std::vector<Waiter>* rows);

}  // namespace ptxemu
