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
                      uint64_t high, uint64_t otherwise = 0) {
  if (!text) return otherwise;
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
  app.add_option("--seed", seed_, "Of random, split, --launch-order and --resident (default 0)")
      ->type_name("N");
  app.add_option("--check", check_,
                 fmt::format("all: observe hazards, barriers, leaks; none. Default {}", check))
      ->type_name("C");
  app.add_option("--math", math_, "How tensor cores add: hw (default), exact, fast")
      ->type_name("M");
  app.add_option("--launch-order", launch_order_,
                 "In which order clusters start: in_order (default), random (by --seed)")
      ->type_name("O");
  app.add_flag("--reorder-products", reorder_products_,
               "tcgen05.mma of different accumulators may overtake each other");
  app.add_option("--resident", resident_,
                 "Clusters that take turns by --seed, where they may meet (default 1: none)")
      ->type_name("N");
  app.add_option("--threads", threads_, "Host threads (default: all cores)")->type_name("N");
  const ptxemu::MachineOptions defaults;
  const auto limit = [&](const char* name, std::optional<std::string>& value, const char* what,
                         uint64_t number) {
    app.add_option(name, value, fmt::format("{} (default {})", what, number))->type_name("N");
  };
  limit("--max-instructions", max_instructions_, "Most warp instructions of a cluster",
        defaults.max_instructions);
  limit("--max-memory", max_memory_, "Most bytes of buffers and module variables",
        defaults.max_memory);
  limit("--max-local-memory", max_local_memory_, "Most bytes of a launch's registers and .local",
        defaults.max_local_memory);
  limit("--max-printed", max_printed_, "Most bytes that a launch prints", defaults.max_printed);
  limit("--max-call-depth", max_call_depth_, "Most calls of a thread inside each other",
        defaults.max_call_depth);
  limit("--max-recorded", max_recorded_, "Most bytes of a launch's trace and line counts",
        defaults.max_recorded);
}

ptxemu::MachineOptions MachineFlags::options() const {
  ptxemu::MachineOptions options;
  options.device = one_of("--device", device_, {"emulated:b200", "emulated:h200"});
  options.policy = one_of("--policy", policy_, {"eager", "late", "random", "split"});
  options.math = one_of("--math", math_, {"hw", "exact", "fast"});
  options.launch_order = one_of("--launch-order", launch_order_, {"in_order", "random"});
  options.reorder_products = reorder_products_;
  options.check = one_of("--check", check_, {"none", "all"}) == "all";
  options.seed = whole_number("--seed", seed_, 0, UINT64_MAX);
  options.resident = static_cast<uint32_t>(whole_number("--resident", resident_, 1, 4096, 1));
  options.threads = static_cast<uint32_t>(whole_number("--threads", threads_, 1, 4096));
  options.max_instructions = whole_number("--max-instructions", max_instructions_, 1, UINT64_MAX,
                                          options.max_instructions);
  options.max_memory = whole_number("--max-memory", max_memory_, 1, UINT64_MAX, options.max_memory);
  options.max_local_memory = whole_number("--max-local-memory", max_local_memory_, 1, UINT64_MAX,
                                          options.max_local_memory);
  options.max_printed =
      whole_number("--max-printed", max_printed_, 1, UINT64_MAX, options.max_printed);
  options.max_call_depth = static_cast<uint32_t>(
      whole_number("--max-call-depth", max_call_depth_, 1, UINT32_MAX, options.max_call_depth));
  options.max_recorded =
      whole_number("--max-recorded", max_recorded_, 1, UINT64_MAX, options.max_recorded);
  return options;
}

}  // namespace fa4::cli
