// ptxemu: an emulated GPU for PTX (docs/cli.md).
#include "program.h"
#include "ptxemu/commands.h"
#include "version.h"

namespace {

fa4::cli::Program make_program() {
  using namespace fa4::cli;
  Program program{
      "ptxemu", "Runs PTX kernels on an emulated Hopper or Blackwell GPU", kVersion, {}};
  program.commands.push_back(make_emulate_command());
  program.commands.push_back(make_exec_command());
  return program;
}

}  // namespace

int main(int argc, char** argv) {
  return fa4::cli::program_main("ptxemu", make_program, argc, argv);
}
