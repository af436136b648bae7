#include "parse.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "failure.h"

namespace fa4::cli {

using fa4::internal::DType;
using fa4::internal::MaskSpec;

namespace {

std::optional<int64_t> whole_number(const std::string& text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stopped != end) return std::nullopt;
  return value;
}

}  // namespace

int64_t parse_int(std::string_view option, const std::string& text, int64_t low, int64_t high) {
  const std::optional<int64_t> value = whole_number(text);
  if (!value || *value < low || *value > high) {
    throw bad_input(
        fmt::format("{} {}; accepted: a whole number from {} to {}", option, text, low, high));
  }
  return *value;
}

int64_t parse_head_dim(std::string_view option, const std::string& text) {
  const std::optional<int64_t> value = whole_number(text);
  if (!value || !fa4::internal::is_head_dim(*value)) {
    throw bad_input(fmt::format("{} {}; accepted: multiples of 8 from 8 to 256", option, text));
  }
  return *value;
}

float parse_float(std::string_view option, const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  const bool is_number = error == std::errc() && stopped == end && std::isfinite(value);
  const float number = static_cast<float>(value);
  // A cap that becomes 0 would be off.
  if (!is_number || !std::isfinite(number) || (number == 0 && value != 0)) {
    throw bad_input(fmt::format("{} {}; accepted: a finite number that f32 holds", option, text));
  }
  return number;
}

DType parse_dtype(std::string_view option, const std::string& text) {
  const std::optional<DType> dtype = fa4::internal::parse_dtype(text);
  if (!dtype) throw bad_input(fmt::format("{} {}; accepted: bf16, f16, f32", option, text));
  return *dtype;
}

DType parse_kv_dtype(std::string_view option, const std::string& text) {
  if (text == name_of(DType::kE4M3)) return DType::kE4M3;
  const std::optional<DType> dtype = fa4::internal::parse_dtype(text);
  if (!dtype) throw bad_input(fmt::format("{} {}; accepted: e4m3, or that of q", option, text));
  return *dtype;
}

MaskSpec parse_window(std::string_view option, const std::vector<std::string>& sides,
                      const std::optional<std::string>& bounds) {
  MaskSpec window;
  if (bounds) {
    window.window_bounds = static_cast<int32_t>(parse_int("--window-bounds", *bounds, 0, 3));
    if (sides.empty()) {
      throw bad_input(fmt::format("--window-bounds {}: there is no window; accepted: with {}",
                                  *bounds, option));
    }
  }
  if (sides.empty()) return window;
  if (sides.size() != 2) {
    throw bad_input(fmt::format("{} {}; accepted: two numbers L R, -1 for no bound", option,
                                fmt::join(sides, " ")));
  }
  const auto least = [&](int bit) { return (window.window_bounds & bit) != 0 ? INT32_MIN : -1; };
  window.window_left = parse_int(option, sides[0], least(1), INT32_MAX);
  window.window_right = parse_int(option, sides[1], least(2), INT32_MAX);
  return window;
}

Direction parse_direction(std::string_view option, const std::string& text) {
  if (text == "forward") return Direction::kForward;
  if (text == "backward") return Direction::kBackward;
  throw bad_input(fmt::format("{} {}; accepted: forward, backward", option, text));
}

void check_deterministic(Direction direction, bool deterministic, std::string_view accepted) {
  if (!deterministic || direction == Direction::kBackward) return;
  throw bad_input(fmt::format(
      "--deterministic: a forward has the same bits in every run; accepted: with {}", accepted));
}

std::vector<std::string> split_list(std::string_view option, const std::string& text) {
  std::vector<std::string> pieces;
  size_t begin = 0;
  while (true) {
    const size_t comma = text.find(',', begin);
    pieces.push_back(text.substr(begin, comma - begin));
    if (pieces.back().empty()) {
      throw bad_input(fmt::format("{} {}; accepted: a list A,B,C without gaps", option, text));
    }
    if (comma == std::string::npos) return pieces;
    begin = comma + 1;
  }
}

std::vector<int64_t> parse_int_list(std::string_view option, const std::string& text, int64_t low,
                                    int64_t high) {
  return parse_list(option, text, [&](std::string_view name, const std::string& piece) {
    return parse_int(name, piece, low, high);
  });
}

}  // namespace fa4::cli
