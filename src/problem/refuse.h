// How this room refuses an argument.
#pragma once

#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "problem/attention_problem.h"

namespace fa4::internal {

// Throws Error{kInvalidArgument}: which argument, its value, what is accepted.
template <class... Values>
[[noreturn]] void refuse(fmt::format_string<Values...> format, Values&&... values) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format(format, std::forward<Values>(values)...));
}

inline void check_size(const char* name, int64_t value, int64_t low = 0, int64_t high = kMaxSize) {
  if (value < low || value > high) refuse("{} {}; accepted: {} to {}", name, value, low, high);
}

}  // namespace fa4::internal
