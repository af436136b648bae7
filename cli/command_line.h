// What the words after a program's name ask for.
#pragma once

#include <string>

#include "options.h"

namespace CLI {
class App;
}

namespace fa4::cli {

class Command;
struct Program;

struct CommandLine {
  enum class Asks { kRun, kText, kMistake };
  Asks asks = Asks::kText;
  std::string who;             // "fa4 run", or "fa4" when no command was named
  std::string text;            // of kText: help or version; of kMistake: the line that explains it
  Command* command = nullptr;  // of kRun, with its options read
  Options options = {};        // of kRun: the command's
};

// `json` becomes whether --json was given; commands keep the reference.
CommandLine read_command_line(const Program& program, int argc, char** argv, bool& json);

void give_options(const Options& options, CLI::App& app);

}  // namespace fa4::cli
