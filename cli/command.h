// One subcommand of a program: declares its options, then runs and hands its output back.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "failure.h"
#include "json.h"
#include "options.h"

namespace fa4::cli {

class OutputFiles;

// What goes to standard output, in one piece, when the command is done.
struct Outcome {
  ExitCode code = kSuccess;
  std::string text;
  Json json;  // an object; schema, command and version are put before it
  // What was written: published before that is printed, and kept when it has been.
  std::vector<std::shared_ptr<OutputFiles>> files;
};

class Command {
 public:
  virtual ~Command() = default;
  virtual const char* name() const = 0;
  virtual const char* description() const = 0;
  virtual void declare(Options& options) = 0;
  // Where the program keeps whether --json was given; known when run() is called.
  virtual void knows_json(const bool&) {}
  // Throws Failure, or the library's Error.
  virtual Outcome run() = 0;
};

}  // namespace fa4::cli
