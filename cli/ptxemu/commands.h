// The subcommands of ptxemu.
#pragma once

#include <memory>

#include "command.h"

namespace fa4::cli {

std::unique_ptr<Command> make_emulate_command();  // ptxemu run
std::unique_ptr<Command> make_exec_command();

}  // namespace fa4::cli
