// Names to values, for the options and tensor maps of the public interface.
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "ptxemu/machine.h"

namespace ptxemu {

// The choice that `value` names. Throws InputError "<what> '<value>'; accepted: ...".
template <class T>
T choose(std::string_view what, std::string_view value,
         std::initializer_list<std::pair<std::string_view, T>> choices) {
  std::string accepted;
  for (const auto& [name, choice] : choices) {
    if (name == value) return choice;
    accepted += (accepted.empty() ? "" : ", ") + std::string(name);
  }
  throw InputError(fmt::format("{} '{}'; accepted: {}", what, value, accepted));
}

}  // namespace ptxemu
