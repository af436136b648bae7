#include "program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <new>

#include "command_line.h"
#include "core/error.h"
#include "io/output_files.h"
#include "io/temporaries.h"

namespace fa4::cli {
namespace {

using fa4::internal::Error;
using fa4::internal::ErrorCode;

ExitCode exit_code_of(const Error& error) {
  switch (error.code()) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kNotSupported: return kBadInput;
    default: return kCouldNotRun;
  }
}

// The one line that ends a command which could not do its work. Where standard error is closed or
// full the exit status alone says so: fmt::print would throw.
int report(const std::string& who, int code, std::string_view what) {
  std::fputs(fmt::format("{}: {}\n", who, one_line(what)).c_str(), stderr);
  return code;
}

// A standard stream that the caller has closed would lend its number to the next file opened, which
// would then receive what is printed. The descriptor that takes its place can be neither read nor,
// as standard output, written: a result that nobody can see stays a failure.
void occupy_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) != -1 || errno != EBADF) continue;
    if (::open("/dev/null", stream == STDOUT_FILENO ? O_RDONLY : O_WRONLY) != stream) return;
  }
}

// Everything that a command prints appears at once, when it has succeeded and its files are in
// their places. Where nobody can be told, they are taken back: nothing is written.
int print(const std::string& who, const std::string& text, const Outcome& outcome) {
  for (const auto& files : outcome.files) files->publish();
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!written || std::fflush(stdout) != 0) {
    return report(who, kCouldNotRun, "standard output cannot be written");
  }
  for (const auto& files : outcome.files) files->keep();
  return outcome.code;
}

int run_command(const Program& program, const CommandLine& line, bool json) {
  const std::string& who = line.who;
  Command& command = *line.command;
  try {
    const Outcome outcome = command.run();
    return print(who,
                 json ? json_text(command.name(), program.version, outcome.json) : outcome.text,
                 outcome);
  } catch (const Failure& failure) {
    return report(who, failure.code(), failure.what());
  } catch (const Error& error) {
    const std::string what = error.what();
    return report(who, exit_code_of(error),
                  program.with_option ? program.with_option(what, line.options) : what);
  } catch (const std::bad_alloc&) {
    return report(who, kCouldNotRun, "memory: there is not enough of it");
  } catch (const std::length_error&) {
    return report(who, kCouldNotRun, "memory: there is not enough of it");
  } catch (const std::exception& error) {
    return report(who, kCouldNotRun, error.what());
  }
}

}  // namespace

std::string json_text(const std::string& command, const std::string& version, const Json& body) {
  Json document{{"schema", 1}, {"command", command}, {"version", version}};
  for (const auto& [key, value] : body.items()) document[key] = value;
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

int run_program(const Program& program, int argc, char** argv) {
  bool json = false;
  const CommandLine line = read_command_line(program, argc, argv, json);
  switch (line.asks) {
    case CommandLine::Asks::kRun: return run_command(program, line, json);
    case CommandLine::Asks::kMistake: return report(line.who, kBadInput, line.text);
    case CommandLine::Asks::kText: break;
  }
  return print(line.who, line.text, {});
}

int program_main(const char* name, const std::function<Program()>& make, int argc, char** argv) {
  occupy_closed_streams();
  install_signal_handlers(name);
  try {
    return run_program(make(), argc, argv);
  } catch (const std::bad_alloc&) {
    return report(name, kCouldNotRun, "memory: there is not enough of it");
  }
}

}  // namespace fa4::cli
