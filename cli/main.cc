// fa4: the command line of the library (docs/cli.md).
#include <cstdio>

#include "commands.h"
#include "core/config.h"
#include "core/logging.h"
#include "program.h"
#include "version.h"
#include "with_option.h"

namespace {

fa4::cli::Program make_program() {
  using namespace fa4::cli;
  Program program{"fa4",
                  "Exact attention on CPUs and GPUs: FlashAttention-4 in C++",
                  kVersion,
                  {},
                  with_option};
  program.commands.push_back(make_devices_command());
  program.commands.push_back(make_run_command());
  program.commands.push_back(make_verify_command());
  program.commands.push_back(make_bench_command());
  program.commands.push_back(make_plan_command());
  program.commands.push_back(make_compile_command());
  program.commands.push_back(make_cache_command());
  return program;
}

// Standard error has one line of an error at most, unless FA4_LOG asks for more.
void log_to_stderr(int, const char* message, void*) {
  if (fa4::internal::config().log_asked) std::fprintf(stderr, "%s\n", message);
}

}  // namespace

int main(int argc, char** argv) {
  fa4::internal::set_log_callback(log_to_stderr, nullptr);
  return fa4::cli::program_main("fa4", make_program, argc, argv);
}
