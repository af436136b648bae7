#include "options.h"

#include <fmt/ranges.h>

#include <utility>

namespace fa4::cli {

Option* Option::type_name(std::string name) {
  type_name_ = std::move(name);
  return this;
}

Option* Option::expected(int least, int most) {
  least_ = least;
  most_ = most;
  return this;
}

Option* Option::hidden() {
  hidden_ = true;
  return this;
}

std::optional<std::string> Option::text() const {
  if (const auto* one = std::get_if<std::string*>(&value_)) return **one;
  if (const auto* one = std::get_if<std::optional<std::string>*>(&value_)) return **one;
  const auto* list = std::get_if<std::vector<std::string>*>(&value_);
  if (list == nullptr || (*list)->empty()) return std::nullopt;
  return fmt::format("{}", fmt::join(**list, " "));
}

Option* Options::add(std::string name, Option::Value value, std::string help) {
  return &options_.emplace_back(std::move(name), value, std::move(help));
}

Option* Options::add_option(std::string name, std::string& value, std::string help) {
  return add(std::move(name), &value, std::move(help));
}

Option* Options::add_option(std::string name, std::optional<std::string>& value, std::string help) {
  return add(std::move(name), &value, std::move(help));
}

Option* Options::add_option(std::string name, std::vector<std::string>& value, std::string help) {
  return add(std::move(name), &value, std::move(help));
}

Option* Options::add_flag(std::string name, bool& value, std::string help) {
  return add(std::move(name), &value, std::move(help));
}

void Options::footer(std::string text) { footer_ = std::move(text); }

}  // namespace fa4::cli
