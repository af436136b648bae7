// Texts of the command line as values. Every failure names the option, its text and what is
// accepted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "problem/attention_problem.h"

namespace fa4::cli {

int64_t parse_int(std::string_view option, const std::string& text, int64_t low, int64_t high);
int64_t parse_head_dim(std::string_view option, const std::string& text);
// Refuses what f32 does not hold, and what would become 0 in it.
float parse_float(std::string_view option, const std::string& text);
fa4::internal::DType parse_dtype(std::string_view option, const std::string& text);
// The same of k and v as they are stored: e4m3 too.
fa4::internal::DType parse_kv_dtype(std::string_view option, const std::string& text);
// "L", "R": -1 is unbounded.
fa4::internal::MaskSpec parse_window(std::string_view option, const std::vector<std::string>& sides,
                                     const std::optional<std::string>& bounds = std::nullopt);

enum class Direction { kForward, kBackward };
Direction parse_direction(std::string_view option, const std::string& text);
// --deterministic belongs to a backward.
void check_deterministic(Direction direction, bool deterministic, std::string_view accepted);

// "a,b,c"; an empty piece is an error.
std::vector<std::string> split_list(std::string_view option, const std::string& text);
// Its pieces, each as `parse`(option, piece) reads it.
template <class Parse>
auto parse_list(std::string_view option, const std::string& text, const Parse& parse) {
  std::vector<decltype(parse(option, text))> values;
  for (const std::string& piece : split_list(option, text)) values.push_back(parse(option, piece));
  return values;
}
std::vector<int64_t> parse_int_list(std::string_view option, const std::string& text, int64_t low,
                                    int64_t high);

}  // namespace fa4::cli
