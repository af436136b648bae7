// How this room refuses an argument.
#pragma once

#include <utility>

#include <fmt/format.h>

#include "core/error.h"

namespace fa4::internal {

// Throws Error{kInvalidArgument}: which argument, its value, what is accepted.
template <class... Values>
[[noreturn]] void refuse(fmt::format_string<Values...> format, Values&&... values) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format(format, std::forward<Values>(values)...));
}

}  // namespace fa4::internal
