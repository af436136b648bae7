// The options of a subcommand as data. command_line.cc alone gives them to the parser, whose
// headers cost every file that sees them three seconds of compilation.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace fa4::cli {

class Option {
 public:
  // Where its text goes, borrowed; it is left alone when the option is not given.
  using Value =
      std::variant<bool*, std::string*, std::optional<std::string>*, std::vector<std::string>*>;

  Option(std::string name, Value value, std::string help)
      : name_(std::move(name)), help_(std::move(help)), value_(value) {}

  // What the help calls its value.
  Option* type_name(std::string name);
  // How many words a list takes; without it as many as there are.
  Option* expected(int least, int most);
  Option* expected(int count) { return expected(count, count); }
  // The help does not show it.
  Option* hidden();

  const std::string& name() const { return name_; }
  const std::string& help() const { return help_; }
  const std::string& type_name() const { return type_name_; }
  const Value& value() const { return value_; }
  // What was given, the words of a list in one; none: nothing was, or it is a flag.
  std::optional<std::string> text() const;
  int least() const { return least_; }
  int most() const { return most_; }  // 0: expected() was not called
  bool is_hidden() const { return hidden_; }

 private:
  std::string name_, help_, type_name_;
  Value value_;
  int least_ = 0, most_ = 0;
  bool hidden_ = false;
};

class Options {
 public:
  // A name without "--" is that of a word which stands alone. Pointers live as long as this object.
  Option* add_option(std::string name, std::string& value, std::string help = "");
  Option* add_option(std::string name, std::optional<std::string>& value, std::string help = "");
  Option* add_option(std::string name, std::vector<std::string>& value, std::string help = "");
  Option* add_flag(std::string name, bool& value, std::string help = "");

  // What the help says after the options.
  void footer(std::string text);

  const std::deque<Option>& all() const { return options_; }
  const std::string& footer() const { return footer_; }

 private:
  Option* add(std::string name, Option::Value value, std::string help);

  std::deque<Option> options_;
  std::string footer_;
};

}  // namespace fa4::cli
