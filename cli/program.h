// What every executable of this folder does around its subcommands: options, help, one-line
// errors, exit status.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "command.h"

namespace fa4::cli {

struct Program {
  std::string name;         // "fa4"
  std::string description;  // one line
  std::string version;
  std::vector<std::unique_ptr<Command>> commands;
  // An error of the library, which names its arguments, in the command's options; null: as it is.
  std::string (*with_option)(const std::string& message, const Options& options) = nullptr;
};

// The document of --json: `body` behind what every one begins with.
std::string json_text(const std::string& command, const std::string& version, const Json& body);

// Parses the command line, runs the chosen command, prints what it hands back; the exit status.
int run_program(const Program& program, int argc, char** argv);

// main() itself: signal handlers, then the program that `make` gives.
int program_main(const char* name, const std::function<Program()>& make, int argc, char** argv);

}  // namespace fa4::cli
