// The subcommands of fa4.
#pragma once

#include <memory>

#include "command.h"

namespace fa4::cli {

std::unique_ptr<Command> make_devices_command();
std::unique_ptr<Command> make_run_command();
std::unique_ptr<Command> make_verify_command();
std::unique_ptr<Command> make_bench_command();
std::unique_ptr<Command> make_plan_command();
std::unique_ptr<Command> make_compile_command();
std::unique_ptr<Command> make_cache_command();

}  // namespace fa4::cli
