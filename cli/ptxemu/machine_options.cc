#include "ptxemu/machine_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <initializer_list>

#include "failure.h"

namespace fa4::cli {
namespace {

std::string one_of(const char* option, const std::string& value,
                   std::initializer_list<std::string_view> accepted) {
  for (const std::string_view one : accepted) {
    if (value == one) return value;
  }
  throw bad_input(fmt::format("{} {}; accepted: {}", option, value, fmt::join(accepted, ", ")));
}

uint64_t whole_number(const char* option, const std::optional<std::string>& text, uint64_t low,
                      uint64_t high) {
  if (!text) return 0;
  uint64_t value = 0;
  const char* end = text->data() + text->size();
  const auto [stopped, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || stopped != end || value < low || value > high) {
    throw bad_input(
        fmt::format("{} {}; accepted: a whole number from {} to {}", option, *text, low, high));
  }
  return value;
}

}  // namespace

void MachineFlags::declare(Options& app, const char* check) {
  check_ = check;
  app.add_option("--device", device_, "emulated:b200 (default) or emulated:h200")
      ->type_name("NAME");
  app.add_option("--policy", policy_,
                 "When asynchronous work completes: eager (default), late, random, split")
      ->type_name("P");
  app.add_option("--seed", seed_, "Of random and split (default 0)")->type_name("N");
  app.add_option("--check", check_,
                 fmt::format("all: observe hazards, barriers, leaks; none. Default {}", check))
      ->type_name("C");
  app.add_option("--math", math_, "How tensor cores add: hw (default), exact, fast")
      ->type_name("M");
  app.add_option("--threads", threads_, "Host threads (default: all cores)")->type_name("N");
  app.add_option("--max-instructions", max_instructions_,
                 "Stop a launch after N warp instructions (default: none)")
      ->type_name("N");
}

ptxemu::MachineOptions MachineFlags::options() const {
  ptxemu::MachineOptions options;
  options.device = one_of("--device", device_, {"emulated:b200", "emulated:h200"});
  options.policy = one_of("--policy", policy_, {"eager", "late", "random", "split"});
  options.math = one_of("--math", math_, {"hw", "exact", "fast"});
  options.check = one_of("--check", check_, {"none", "all"}) == "all";
  options.seed = whole_number("--seed", seed_, 0, UINT64_MAX);
  options.threads = static_cast<uint32_t>(whole_number("--threads", threads_, 1, 4096));
  options.max_instructions = whole_number("--max-instructions", max_instructions_, 1, UINT64_MAX);
  return options;
}

}  // namespace fa4::cli
