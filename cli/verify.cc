// fa4 verify: cases against attention in double precision.
#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "axes.h"
#include "commands.h"
#include "core/error.h"
#include "parse.h"
#include "progress.h"
#include "verify_report.h"
#include "verify_run.h"

namespace fa4::cli {

using namespace fa4::internal;

namespace {

// The cases of a suite whose number is `index` modulo `count`.
struct Shard {
  int64_t index = 0, count = 1;
};

class VerifyCommand final : public Command {
 public:
  const char* name() const override { return "verify"; }
  const char* description() const override { return "Check results against double precision"; }

  void declare(Options& app) override {
    app.add_option("--device", device_, "cpu (default), cuda:N, emulated:h200 or emulated:b200")
        ->type_name("NAME");
    app.add_option("--direction", direction_, "forward (default) or backward")->type_name("WAY");
    app.add_option("--suite", suite_, "quick (default) or full; else the one case of the axes")
        ->type_name("NAME");
    app.add_option("--shard", shard_, "Only the suite's cases I, I + N, I + 2N, ...")
        ->type_name("I/N");
    app.add_option("--seed", seed_, "Of the cases and their values (default 0)")->type_name("N");
    app.add_option("--repeat", repeat_, "Runs that must give identical bits")->type_name("N");
    app.add_option("--threads", threads_, "Of the CPU (default: all)")->type_name("N");
    axes_.declare(app);
    app.add_flag("--deterministic", deterministic_, "Backward: the same bits in every run");
  }

  Outcome run() override;

 private:
  std::vector<Case> choose_cases(uint64_t seed) const;
  Shard shard() const;
  Direction direction() const { return parse_direction("--direction", direction_); }
  VerifyOptions options() const;

  Axes axes_;
  std::string device_ = "cpu", direction_ = "forward";
  std::optional<std::string> suite_, shard_, seed_, repeat_, threads_;
  bool deterministic_ = false;
};

Shard VerifyCommand::shard() const {
  if (!shard_) return {};
  const size_t slash = shard_->find('/');
  const auto refuse_shard = [&] {
    return bad_input(fmt::format("--shard {}; accepted: I/N, as 0/4 to 3/4", *shard_));
  };
  if (slash == std::string::npos) throw refuse_shard();
  Shard shard;
  try {
    shard.count = parse_int("", shard_->substr(slash + 1), 1, 1'000'000);
    shard.index = parse_int("", shard_->substr(0, slash), 0, shard.count - 1);
  } catch (const Failure&) {
    throw refuse_shard();  // with both numbers: which of them is wrong depends on the other
  }
  return shard;
}

std::vector<Case> VerifyCommand::choose_cases(uint64_t seed) const {
  if (suite_ && axes_.any_given()) {
    throw bad_input(fmt::format(
        "--suite {}: a suite has cases of its own; accepted: --suite, or the axes of one case",
        *suite_));
  }
  if (!suite_ && (axes_.any_given() || repeat_)) {
    if (shard_) {
      throw bad_input(fmt::format("--shard {}: {} has no shards; accepted: with --suite", *shard_,
                                  axes_.any_given() ? "one case" : "the one case of --repeat"));
    }
    Case one;
    one.desc = axes_.desc();
    check_splits(direction(), one.desc);
    one.desc.deterministic = deterministic_;
    one.seed = seed;
    make_problem(one.desc);
    return {one};
  }
  const std::string text = suite_.value_or("quick");
  const std::optional<Suite> suite = parse_suite(text);
  if (!suite) throw bad_input(fmt::format("--suite {}; accepted: quick, full", text));
  if (direction() == Direction::kForward) return make_suite(*suite, seed);
  std::vector<Case> cases = make_backward_suite(*suite, seed);
  for (Case& c : cases) c.desc.deterministic |= deterministic_;
  return cases;
}

VerifyOptions VerifyCommand::options() const {
  VerifyOptions options;
  options.backward = direction() == Direction::kBackward;
  if (threads_) options.threads = static_cast<int>(parse_int("--threads", *threads_, 1, 4096));
  if (repeat_) options.repeat = parse_int("--repeat", *repeat_, 1, 1'000'000'000);
  options.oracle_threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return options;
}

Outcome VerifyCommand::run() {
  const VerifyOptions chosen = options();
  check_deterministic(direction(), deterministic_, "--direction backward");
  const uint64_t seed =
      seed_ ? static_cast<uint64_t>(parse_int("--seed", *seed_, 0, INT64_MAX)) : 0;
  const std::vector<Case> cases = choose_cases(seed);
  const Shard part = shard();
  const DeviceChoice device = open_device(device_);
  const auto last = static_cast<int64_t>(cases.size());

  VerifyReport report(device_, chosen.backward, last == 1);
  Progress progress("verify", (last - part.index + part.count - 1) / part.count);
  for (int64_t i = part.index; i < last; i += part.count) {
    progress.step(i / part.count);
    report.add(verify_case(cases[static_cast<size_t>(i)], device, chosen), i);
  }
  Outcome outcome;
  outcome.json["device"] = device_;
  outcome.json["direction"] = direction_;
  outcome.json["seed"] = seed;
  outcome.json["repeat"] = chosen.repeat;
  report.finish(last, outcome);
  return outcome;
}

}  // namespace

std::unique_ptr<Command> make_verify_command() { return std::make_unique<VerifyCommand>(); }

}  // namespace fa4::cli
