#include "command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "program.h"

namespace fa4::cli {
namespace {

using Asks = CommandLine::Asks;

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

// The first argument that nothing takes. Those behind "--" are left to the program.
std::string left_over(const CLI::App& top, const CLI::App& app, const std::string& otherwise) {
  for (const CLI::App* level : {&app, &top}) {
    for (const std::string& word : level->remaining()) {
      if (word != "--") return word;
    }
  }
  return otherwise;
}

std::string explain_extra(const CLI::App& top, const CLI::App& app, const std::string& otherwise) {
  const std::string word = left_over(top, app, otherwise);
  if (&top == &app) {
    return fmt::format("{}: unknown command; accepted: {}, --version, --help", word,
                       subcommands_of(top));
  }
  return fmt::format("{}: unknown argument; accepted: {}", word, options_of(app));
}

std::string explain_missing_value(const std::string& option, const std::string& type_name) {
  return fmt::format("{}: a value is missing; accepted: {} {}", option, option, type_name);
}

// CLI11's words about the usage, as this program's: argument, value, what is accepted.
std::string explain_usage(const CLI::App& top, const CLI::App& app, const CLI::ParseError& error) {
  const std::string text = one_line(error.what());
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    return explain_extra(top, app, text);
  }
  const size_t colon = text.find(": ");
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr && colon != std::string::npos) {
    const std::string option = text.substr(0, colon);
    const CLI::Option* declared = app.get_option_no_throw(option);
    if (text.find("At Most") != std::string::npos) {
      const bool takes_one = declared == nullptr || declared->get_expected_max() <= 1;
      return takes_one ? option + ": is given more than once; accepted: once"
                       : fmt::format(
                             "{}: has too many values, or is given more than once; accepted: "
                             "once, as {} {}",
                             option, option, declared->get_type_name());
    }
    return explain_missing_value(option, declared == nullptr ? "VALUE" : declared->get_type_name());
  }
  return fmt::format("{}; accepted: {}", text, options_of(app));
}

// What CLI11 would take otherwise than it was meant. Flags stand alone: it takes a value from each,
// where "--causal=-1" is not causal. Other options have a value: it takes the next word for one,
// also an option of the command. What a command does not know it blames on it, also where it stands
// before.
std::optional<CommandLine> refuse_misread_words(const Program& program, const CLI::App& top,
                                                int argc, char** argv) {
  const CLI::App* app = &top;
  std::string who = program.name;
  const auto names_command = [&](const std::string& word) {
    return std::any_of(program.commands.begin(), program.commands.end(),
                       [&](const auto& command) { return command->name() == word; });
  };
  for (int i = 1; i < argc && argv[i] != std::string_view("--"); ++i) {
    const std::string word = argv[i], next = i + 1 < argc ? argv[i + 1] : "";
    if (app == &top && names_command(word)) {
      app = top.get_subcommand(word);
      who += " " + word;
      continue;
    }
    if (!word.starts_with("--")) continue;
    const size_t equals = word.find('=');
    const bool has_equals = equals != std::string::npos;
    const std::string name = word.substr(0, equals);
    const CLI::Option* option = app->get_option_no_throw(name);
    if (option == nullptr) {
      if (app != &top || !names_command(next)) continue;
      return CommandLine{Asks::kMistake, who,
                         fmt::format("{}: unknown before a command; accepted: behind it", word)};
    }
    if (option->get_items_expected_max() == 0) {
      if (!has_equals) continue;
      return CommandLine{Asks::kMistake, who, fmt::format("{}; accepted: {} alone", word, name)};
    }
    const bool is_option = next.starts_with("--") &&
                           app->get_option_no_throw(next.substr(0, next.find('='))) != nullptr;
    if (has_equals ? equals + 1 == word.size() : is_option) {
      return CommandLine{Asks::kMistake, who, explain_missing_value(name, option->get_type_name())};
    }
  }
  return std::nullopt;
}

CLI::Option* give(const Option& option, CLI::App& app) {
  if (bool* const* flag = std::get_if<bool*>(&option.value())) {
    return app.add_flag(option.name(), **flag, option.help());
  }
  return std::visit(
      [&](auto* value) { return app.add_option(option.name(), *value, option.help()); },
      option.value());
}

}  // namespace

void give_options(const Options& options, CLI::App& app) {
  app.footer(options.footer());
  for (const Option& option : options.all()) {
    CLI::Option* given = give(option, app);
    if (!option.type_name().empty()) given->type_name(option.type_name());
    if (option.most() != 0) {
      given->expected(option.least(), option.most());
      given->option_text(option.type_name());  // which says how many: no " x 2" behind it
    }
    if (option.is_hidden()) given->group("");
  }
}

CommandLine read_command_line(const Program& program, int argc, char** argv, bool& json) {
  CLI::App top(program.description, program.name);
  top.set_version_flag("--version", fmt::format("{} {}", program.name, program.version));
  top.require_subcommand(0, 1);
  std::vector<Options> options_of_commands;
  for (const auto& command : program.commands) {
    CLI::App* app = top.add_subcommand(command->name(), command->description());
    Options& options = options_of_commands.emplace_back();
    command->declare(options);
    options.add_flag("--json", json, "Print one JSON document and nothing else");
    give_options(options, *app);
    command->knows_json(json);
  }
  const auto chosen = [&]() -> CLI::App& {
    const std::vector<CLI::App*> parsed = top.get_subcommands();
    return parsed.empty() ? top : *parsed.front();
  };
  const auto who = [&] {
    return &chosen() == &top ? program.name : program.name + " " + chosen().get_name();
  };
  if (const auto mistake = refuse_misread_words(program, top, argc, argv)) return *mistake;
  try {
    top.parse(argc, argv);
  } catch (const CLI::CallForVersion& version) {
    return {Asks::kText, program.name, std::string(version.what()) + "\n"};
  } catch (const CLI::Success&) {
    // With the name of the program before it, the line of the usage can be typed as it stands.
    return {Asks::kText, program.name, chosen().help(&chosen() == &top ? "" : program.name)};
  } catch (const CLI::ParseError& error) {
    return {Asks::kMistake, who(), explain_usage(top, chosen(), error)};
  }
  for (size_t i = 0; i < program.commands.size(); ++i) {
    Command* command = program.commands[i].get();
    if (chosen().get_name() == command->name()) {
      return {Asks::kRun, who(), "", command, std::move(options_of_commands[i])};
    }
  }
  return {Asks::kText, program.name, top.help()};
}

}  // namespace fa4::cli
