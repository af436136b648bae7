#include "launch_settings.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "../support/split.h"

namespace ptxemu::fuzz {
namespace {

constexpr uint32_t kMostThreads = 256, kMostCtas = 8, kMostCluster = 4;
constexpr size_t kMostData = 64 << 10;

uint64_t number(const std::string& text) { return std::strtoull(text.c_str(), nullptr, 0); }

template <class T>
std::vector<T> numbers(const std::string& text) {
  std::vector<T> values;
  for (const std::string& part : split(text, ',')) values.push_back(static_cast<T>(number(part)));
  return values;
}

// Three numbers from 1 on whose product is at most `most`.
std::array<uint32_t, 3> shape(const std::string& text, uint32_t most) {
  std::array<uint32_t, 3> result{1, 1, 1};
  const auto given = numbers<uint32_t>(text);
  for (size_t i = 0; i < std::min<size_t>(3, given.size()); ++i) {
    result[i] = std::clamp(given[i], 1u, most);
    most /= result[i];
  }
  return result;
}

void set(LaunchSettings* settings, const std::string& key, const std::string& value) {
  TensorMapRequest& map = settings->map;
  if (key == "arch") settings->options.device = value == "b200" ? "emulated:b200" : "emulated:h200";
  if (key == "math") settings->options.math = value;
  if (key == "grid") settings->grid = shape(value, kMostCtas);
  if (key == "block") settings->block = shape(value, kMostThreads);
  if (key == "cluster") settings->cluster = shape(value, kMostCluster);
  if (key == "shared") settings->shared_bytes = static_cast<uint32_t>(number(value));
  if (key == "out") settings->out_bytes = std::clamp<uint32_t>(number(value), 1, kMostData);
  if (key == "in") settings->in = value;
  if (key == "map") map.dtype = value;
  if (key == "map") settings->has_map = true;
  if (key == "mapof") settings->map_of_in = value == "in";
  if (key == "dims") map.dims = numbers<uint64_t>(value);
  if (key == "strides") map.strides_bytes = numbers<uint64_t>(value);
  if (key == "box") map.box = numbers<uint32_t>(value);
  if (key == "steps") map.element_strides = numbers<uint32_t>(value);
  if (key == "swizzle") map.swizzle = value;
  if (key == "interleave") map.interleave = value;
  if (key == "oob") map.oob = value;
}

}  // namespace

LaunchSettings LaunchSettings::take(std::string_view* input) {
  static constexpr std::array kPolicies{"eager", "late", "random", "split"};
  LaunchSettings settings;
  const size_t end = input->find('\n');
  std::string_view line = input->substr(0, end);
  *input = end == std::string_view::npos ? "" : input->substr(end + 1);
  const auto mode = static_cast<uint8_t>(line.empty() ? 0 : line.front());
  settings.options.policy = kPolicies[mode & 3];
  settings.options.check = (mode & 4) != 0;
  settings.options.seed = mode >> 3 & 3;
  settings.options.count_lines = (mode & 32) != 0;
  settings.options.device = "emulated:h200";
  settings.options.threads = 1;
  settings.options.max_instructions = 20'000;
  settings.options.max_memory = 64 << 20;
  settings.options.max_local_memory = 64 << 20;
  settings.options.max_printed = 64 << 10;
  settings.options.max_call_depth = 64;
  if (!line.empty()) line.remove_prefix(1);
  for (const std::string& word : split(line, ' ')) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) continue;
    set(&settings, word.substr(0, equals), word.substr(equals + 1));
  }
  return settings;
}

std::vector<uint8_t> fuzz_data(std::string_view description) {
  const auto parts = split(description, ':');
  std::vector<uint8_t> bytes;
  const auto append = [&](uint64_t value, size_t size) {
    for (size_t i = 0; i < size; ++i) bytes.push_back(static_cast<uint8_t>(value >> (8 * i)));
  };
  // Hexadecimal digits of a number of any length, two a byte.
  const auto append_digits = [&](std::string digits) {
    digits.insert(0, digits.empty() ? "00" : digits.size() % 2 != 0 ? "0" : "");
    for (size_t end = digits.size(); end >= 2; end -= 2) {
      append(std::strtoull(digits.substr(end - 2, 2).c_str(), nullptr, 16), 1);
    }
  };
  if (parts[0] == "words" && parts.size() > 1) {
    for (const std::string& word : split(parts[1], ',')) {
      append(std::strtoull(word.c_str(), nullptr, 16), 4);
    }
    return bytes;
  }
  const size_t size = std::clamp<size_t>(parts.size() > 1 ? number(parts[1]) : 1024, 16, kMostData);
  const auto choices = parts.size() > 2 ? split(parts[2], ',') : std::vector<std::string>{"0"};
  uint32_t state = 1;
  for (uint64_t i = 0; bytes.size() < size; ++i) {
    state = state * 1664525 + 1013904223;
    if (parts[0] == "count2") {
      append(i, 2);
    } else if (parts[0] == "count4") {
      append(i, 4);
    } else if (parts[0] == "pick") {
      append_digits(choices[(state >> 8) % choices.size()]);
    } else {
      append(state, 4);
    }
  }
  return bytes;
}

}  // namespace ptxemu::fuzz
