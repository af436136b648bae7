#include "program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <new>

#include "core/error.h"
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

// The one line that ends a command which could not do its work.
int report(const std::string& who, int code, std::string_view what) {
  fmt::print(stderr, "{}: {}\n", who, one_line(what));
  return code;
}

std::string options_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    const bool hidden = option->get_group().empty();
    if (!hidden && !option->get_lnames().empty()) names.push_back("--" + option->get_lnames()[0]);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string subcommands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return fmt::format("{}", fmt::join(names, ", "));
}

// CLI11's words about the usage, as this program's: argument, value, what is accepted.
std::string explain_usage(const CLI::App& top, const CLI::App& app, const CLI::ParseError& error) {
  const std::string text = one_line(error.what());
  const bool extra = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  if (extra && &top == &app) {
    const std::vector<std::string> rest = app.remaining();
    const std::string word = rest.empty() ? text : rest.front();
    return fmt::format("{}: unknown command; accepted: {}, --version, --help", word,
                       subcommands_of(top));
  }
  if (extra) {
    const std::vector<std::string> rest = app.remaining();
    return fmt::format("{}: unknown argument; accepted: {}", rest.empty() ? text : rest.front(),
                       options_of(app));
  }
  const size_t colon = text.find(": ");
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr && colon != std::string::npos) {
    const std::string option = text.substr(0, colon);
    const CLI::Option* declared = app.get_option_no_throw(option);
    if (text.find("At Most") != std::string::npos) {
      return option + ": is given more than once; accepted: once";
    }
    return fmt::format("{}: a value is missing; accepted: {} {}", option, option,
                       declared == nullptr ? "VALUE" : declared->get_type_name());
  }
  return fmt::format("{}; accepted: {}", text, options_of(app));
}

// Everything that a command prints appears at once, when it has succeeded.
int print(const std::string& who, int code, const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!written || std::fflush(stdout) != 0) {
    return report(who, kCouldNotRun, "standard output cannot be written");
  }
  return code;
}

std::string json_text(const Program& program, const Command& command, const Outcome& outcome) {
  Json document;
  document["schema"] = 1;
  document["command"] = command.name();
  document["version"] = program.version;
  for (const auto& [key, value] : outcome.json.items()) document[key] = value;
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

int run_command(const Program& program, const std::string& who, Command& command, bool json) {
  try {
    const Outcome outcome = command.run();
    return print(who, outcome.code, json ? json_text(program, command, outcome) : outcome.text);
  } catch (const Failure& failure) {
    return report(who, failure.code(), failure.what());
  } catch (const Error& error) {
    return report(who, exit_code_of(error), error.what());
  } catch (const std::bad_alloc&) {
    return report(who, kCouldNotRun, "memory: there is not enough of it");
  } catch (const std::length_error&) {
    return report(who, kCouldNotRun, "memory: there is not enough of it");
  } catch (const std::exception& error) {
    return report(who, kCouldNotRun, error.what());
  }
}

}  // namespace

int run_program(const Program& program, int argc, char** argv) {
  CLI::App top(program.description, program.name);
  top.set_version_flag("--version", fmt::format("{} {}", program.name, program.version));
  top.require_subcommand(0, 1);
  bool json = false;
  for (const auto& command : program.commands) {
    CLI::App* app = top.add_subcommand(command->name(), command->description());
    command->declare(*app);
    app->add_flag("--json", json, "Print one JSON document and nothing else");
    command->knows_json(json);
  }
  const auto chosen = [&]() -> CLI::App& {
    const std::vector<CLI::App*> parsed = top.get_subcommands();
    return parsed.empty() ? top : *parsed.front();
  };
  const auto who = [&] {
    return &chosen() == &top ? program.name : program.name + " " + chosen().get_name();
  };
  try {
    top.parse(argc, argv);
  } catch (const CLI::CallForVersion& version) {
    return print(program.name, kSuccess, std::string(version.what()) + "\n");
  } catch (const CLI::Success&) {
    return print(program.name, kSuccess, chosen().help());
  } catch (const CLI::ParseError& error) {
    return report(who(), kBadInput, explain_usage(top, chosen(), error));
  }
  if (&chosen() == &top) return print(program.name, kSuccess, top.help());
  for (const auto& command : program.commands) {
    if (chosen().get_name() == command->name()) {
      return run_command(program, who(), *command, json);
    }
  }
  return kBadInput;
}

int program_main(const char* name, const std::function<Program()>& make, int argc, char** argv) {
  install_signal_handlers(name);
  try {
    return run_program(make(), argc, argv);
  } catch (const std::bad_alloc&) {
    return report(name, kCouldNotRun, "memory: there is not enough of it");
  }
}

}  // namespace fa4::cli
