#include "core/config.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <mutex>
#include <optional>

#include <fmt/format.h>

#include "core/error.h"
#include "core/excerpt.h"

namespace fa4::internal {
namespace {

[[noreturn]] void refuse(std::string_view name, std::string_view value, std::string_view accepted) {
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} \"{}\"; accepted: {}", name, excerpt(value), accepted));
}

int parse_int(std::string_view name, std::string_view value, int maximum, int minimum = 0) {
  int number = 0;
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  if (error != std::errc() || stop != end || number < minimum || number > maximum) {
    refuse(name, value, fmt::format("{} to {}", minimum, maximum));
  }
  return number;
}

bool parse_bool(std::string_view name, std::string_view value) {
  if (value != "0" && value != "1") refuse(name, value, "0, 1");
  return value == "1";
}

// `value` when it is one of `accepted`, "a, b, c".
std::string one_of(std::string_view name, std::string_view value, std::string_view accepted) {
  for (size_t begin = 0; begin < accepted.size();) {
    const size_t end = std::min(accepted.find(", ", begin), accepted.size());
    if (value == accepted.substr(begin, end - begin)) return std::string(value);
    begin = end + 2;
  }
  refuse(name, value, accepted);
}

void set_cpu_isa(Config& c, std::string_view name, std::string_view value) {
  constexpr std::string_view kIsas = "scalar, avx2, avx512, avx512_bf16, avx512_fp16, amx";
  c.cpu_isa = one_of(name, value, kIsas);
}

void set_emulator_seed(Config& c, std::string_view name, std::string_view value) {
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, c.emulator_seed);
  if (error != std::errc() || stop != end) refuse(name, value, "0 to 2^64 - 1");
}

void set_log(Config& c, std::string_view name, std::string_view value) {
  c.log_level = parse_int(name, value, 2);
  c.log_asked = true;
}

struct Variable {
  const char* key;
  const char* environment;
  void (*set)(Config& config, std::string_view name, std::string_view value);

  // An empty value leaves the default, of the environment's as of fa4_configure's.
  void apply(Config& config, std::string_view name, std::string_view value) const {
    if (!value.empty()) set(config, name, value);
  }
};

using Text = std::string_view;
constexpr Variable kVariables[] = {
    {"cache_dir", "FA4_CACHE_DIR", [](Config& c, Text, Text v) { c.cache_dir = v; }},
    {"cache", "FA4_CACHE", [](Config& c, Text n, Text v) { c.cache_enabled = parse_bool(n, v); }},
    {"nvrtc", "FA4_NVRTC", [](Config& c, Text, Text v) { c.nvrtc_path = v; }},
    {"cuda_driver", "FA4_CUDA_DRIVER", [](Config& c, Text, Text v) { c.cuda_driver_path = v; }},
    {"nccl", "FA4_NCCL", [](Config& c, Text, Text v) { c.nccl_path = v; }},
    {"cpu_isa", "FA4_CPU_ISA", set_cpu_isa},
    {"num_threads", "FA4_NUM_THREADS",
     [](Config& c, Text n, Text v) { c.num_threads = parse_int(n, v, 4096); }},
    {"emulator_policy", "FA4_EMULATOR_POLICY",
     [](Config& c, Text n, Text v) {
       c.emulator_policy = one_of(n, v, "eager, late, random, split");
     }},
    {"emulator_seed", "FA4_EMULATOR_SEED", set_emulator_seed},
    {"emulator_check", "FA4_EMULATOR_CHECK",
     [](Config& c, Text n, Text v) { c.emulator_check = one_of(n, v, "none, all") == "all"; }},
    {"emulator_math", "FA4_EMULATOR_MATH",
     [](Config& c, Text n, Text v) { c.emulator_math = one_of(n, v, "hw, exact, fast"); }},
    {"emulator_launch_order", "FA4_EMULATOR_LAUNCH_ORDER",
     [](Config& c, Text n, Text v) { c.emulator_launch_order = one_of(n, v, "in_order, random"); }},
    {"emulator_reorder_products", "FA4_EMULATOR_REORDER_PRODUCTS",
     [](Config& c, Text n, Text v) { c.emulator_reorder_products = parse_bool(n, v); }},
    {"emulator_resident", "FA4_EMULATOR_RESIDENT",
     [](Config& c, Text n, Text v) { c.emulator_resident = parse_int(n, v, 4096, 1); }},
    {"emulator_library", "FA4_EMULATOR_LIBRARY",
     [](Config& c, Text, Text v) { c.emulator_library = v; }},
    {"emulator_exec", "FA4_EMULATOR_EXEC", [](Config& c, Text, Text v) { c.emulator_exec = v; }},
    {"emulator_save", "FA4_EMULATOR_SAVE", [](Config& c, Text, Text v) { c.emulator_save = v; }},
    {"log", "FA4_LOG", set_log},
};
constexpr size_t kNumVariables = std::size(kVariables);

std::string default_cache_dir() {
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg != nullptr && *xdg == '/') {
    return std::string(xdg) + "/fa4";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    return std::string(home) + "/.cache/fa4";
  }
  return {};
}

struct State {
  std::mutex mutex;
  bool read = false;
  std::optional<std::string> overrides[kNumVariables];
};

State& state() {
  static State* const kState = new State;  // outlives every static object that may use it
  return *kState;
}

Config read_config() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  Config result;
  result.cache_dir = default_cache_dir();
  for (size_t i = 0; i < kNumVariables; ++i) {
    if (s.overrides[i].has_value()) {
      kVariables[i].apply(result, kVariables[i].key, *s.overrides[i]);
    } else if (const char* value = std::getenv(kVariables[i].environment)) {
      kVariables[i].apply(result, kVariables[i].environment, value);
    }
  }
  s.read = true;
  return result;
}

}  // namespace

const Config& config() {
  static const Config* const kConfig = new Config(read_config());  // as state()
  return *kConfig;
}

void set_config(std::string_view key, std::string_view value) {
  for (size_t i = 0; i < kNumVariables; ++i) {
    if (key != kVariables[i].key) continue;
    Config scratch;
    kVariables[i].apply(scratch, key, value);
    State& s = state();
    const std::lock_guard lock(s.mutex);
    if (s.read) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{} \"{}\" comes too late; accepted: before the first other call, "
                              "which reads the configuration",
                              key, excerpt(value)));
    }
    s.overrides[i] = std::string(value);
    return;
  }
  std::string keys;
  for (const Variable& variable : kVariables) {
    keys += keys.empty() ? "" : ", ";
    keys += variable.key;
  }
  refuse("configuration key", key, keys);
}

}  // namespace fa4::internal
