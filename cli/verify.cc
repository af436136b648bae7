// fa4 verify: cases against attention in double precision.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <thread>

#include "accuracy_report.h"
#include "axes.h"
#include "commands.h"
#include "core/error.h"
#include "parse.h"
#include "progress.h"
#include "verify_run.h"

namespace fa4::cli {

using namespace fa4::internal;

namespace {

// The cases of a suite whose number is `index` modulo `count`.
struct Shard {
  int64_t index = 0, count = 1;
};

// How often each option and kernel was part of a case that ran.
class Coverage {
 public:
  explicit Coverage(bool backward) : backward_(backward) {}
  void add(const CaseResult& result) {
    const AttentionProblem& p = result.problem;
    ++counts_[fmt::format("dtype {}", name_of(p.dtype))];
    ++counts_[fmt::format("head_dim {}", family_of(p))];
    ++counts_["kernel " + result.kernel];
    count("head_dim_v != head_dim", p.head_dim_v != p.head_dim);
    count("causal", p.causal);
    count("window", !p.window.is_full());
    count("window with a negative bound", p.window.window_bounds != 0);
    count("softcap", p.softcap != 0);
    count("gqa", p.heads_kv > 1 && p.heads_q > p.heads_kv);
    count("mqa", p.heads_kv == 1 && p.heads_q > 1);
    count("varlen", p.layout_q == Layout::kPacked);
    count("paged", p.layout_kv == Layout::kPaged);
    count("shared prefix", p.prefix_len > 0);
    count("pages of each head", p.page_table_heads > 1);
    count("seqused_k", p.has_seqused_k);
    count("sink", p.has_sink);
    count("sink of 16 bits", p.has_sink && p.sink_dtype != DType::kF32);
    count("seqused_q", p.has_seqused_q);
    if (backward_) {
      count("dlse", p.has_dlse);
      count("deterministic", p.deterministic);
      count("grad_dtype f32", p.grad_dtype != p.dtype);
      count("scale <= 0", p.scale <= 0);
    } else {
      count("lse", result.wants_lse);
    }
    count("splits asked for", p.num_splits > 1 || p.split_keys > 0);
    count("k and v e4m3", p.is_quantised());
    count("descales of blocks", p.has_descales && p.descale_block > 0 && !p.has_page_descales());
    count("descales of pages", p.has_page_descales());
    count("out f32 of 16-bit inputs", p.out_dtype != p.dtype);
    count("seqlen > 1024", std::max(p.seqlen_q, p.seqlen_k) > 1024);
  }
  Json json() const { return Json(counts_); }
  std::string text() const {
    std::string text;
    for (const auto& [name, count] : counts_) text += fmt::format("  {:<36} {:>5}\n", name, count);
    return text;
  }

 private:
  void count(const char* name, bool present) { counts_[name] += present; }
  static std::string family_of(const AttentionProblem& p) {
    if (p.head_dim_v != p.head_dim) return "differing";
    for (const int64_t most : {64, 96, 128, 192}) {
      if (p.head_dim <= most) return fmt::format("to {:03}", most);
    }
    return "to 256";
  }
  bool backward_;
  std::map<std::string, int64_t> counts_;
};

std::string results_text(const CaseResult& result, bool backward) {
  if (backward) {
    const BackwardAccuracy& g = result.gradients;
    return fmt::format("dq   {}\ndk   {}\ndv   {}\n", accuracy_text(g.dq), accuracy_text(g.dk),
                       accuracy_text(g.dv));
  }
  return fmt::format("out  {}\nlse  {}\n", accuracy_text(result.out), accuracy_text(result.lse));
}

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
  static Json case_json(const CaseResult& result, int64_t index, bool backward);

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
      throw bad_input(
          fmt::format("--shard {}: one case has no shards; accepted: with a suite", *shard_));
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

Json VerifyCommand::case_json(const CaseResult& result, int64_t index, bool backward) {
  Json json = axes_json(result.problem);
  json["index"] = index;
  json["kernel"] = result.skipped ? Json() : Json(result.kernel);
  if (backward) {
    const BackwardAccuracy& g = result.gradients;
    json["dq"] = result.skipped ? Json() : accuracy_json(g.dq);
    json["dk"] = result.skipped ? Json() : accuracy_json(g.dk);
    json["dv"] = result.skipped ? Json() : accuracy_json(g.dv);
    json["dsink"] = result.skipped || !result.problem.has_sink ? Json() : accuracy_json(g.dsink);
  } else {
    json["out"] = result.skipped ? Json() : accuracy_json(result.out);
    json["lse"] = result.skipped || !result.wants_lse ? Json() : accuracy_json(result.lse);
  }
  json["seconds"] = result.skipped ? Json() : Json(result.seconds);
  json["digest"] = result.digest.empty() ? Json() : Json(result.digest);
  json["formal_findings"] = result.skipped ? Json() : Json(result.formal_findings);
  json["passed"] = result.skipped ? Json() : Json(result.passed);
  json["skip_reason"] = result.skipped ? Json(result.skip_reason) : Json();
  if (!result.passed) json["detail"] = result.detail;
  return json;
}

Outcome VerifyCommand::run() {
  const VerifyOptions chosen = options();
  check_deterministic(direction(), deterministic_, "--direction backward");
  const uint64_t seed =
      seed_ ? static_cast<uint64_t>(parse_int("--seed", *seed_, 0, INT64_MAX)) : 0;
  const std::vector<Case> cases = choose_cases(seed);
  const Shard part = shard();
  const DeviceChoice device = open_device(device_);
  const bool single = cases.size() == 1;
  const auto last = static_cast<int64_t>(cases.size());
  const int64_t total = (last - part.index + part.count - 1) / part.count;

  Outcome outcome;
  Coverage coverage(chosen.backward);
  Json rows = Json::array();
  std::map<std::string, int64_t> reasons;
  int64_t failed = 0, skipped = 0, formal_findings = 0;
  Progress progress("verify", total);
  for (int64_t i = part.index; i < last; i += part.count) {
    progress.step(i / part.count);
    const CaseResult result = verify_case(cases[static_cast<size_t>(i)], device, chosen);
    if (single && result.skipped) throw bad_input(with_option(result.skip_reason));
    rows.push_back(case_json(result, i, chosen.backward));
    formal_findings += result.formal_findings;
    if (result.skipped) {
      ++skipped;
      ++reasons[result.skip_reason];
      continue;
    }
    coverage.add(result);
    if (single) {
      outcome.text += fmt::format("{}\n{} {}\n{}", axes_text(result.problem), device_,
                                  result.kernel, results_text(result, chosen.backward));
    }
    if (result.passed) continue;
    ++failed;
    outcome.text += fmt::format("FAILED case {} ({}, {}): {}\n", i, axes_text(result.problem),
                                result.kernel, result.detail);
  }
  if (!single) outcome.text += "cases that ran, by option:\n" + coverage.text();
  for (const auto& [reason, count] : reasons) {
    if (count == last) throw bad_input(with_option(reason));
    outcome.text += fmt::format("skipped {}: {}\n", count, reason);
  }
  outcome.text += fmt::format("{}: {} cases, {} ran, {} failed, {} skipped\n", device_, total,
                              total - skipped, failed, skipped);
  if (formal_findings > 0) outcome.text += fmt::format("{} formal findings\n", formal_findings);
  outcome.json["device"] = device_;
  outcome.json["direction"] = direction_;
  outcome.json["seed"] = seed;
  outcome.json["repeat"] = chosen.repeat;
  outcome.json["total"] = total;
  outcome.json["failed"] = failed;
  outcome.json["skipped"] = skipped;
  outcome.json["formal_findings"] = formal_findings;
  outcome.json["coverage"] = coverage.json();
  outcome.json["cases"] = std::move(rows);
  if (failed > 0) outcome.code = kCheckFailed;
  return outcome;
}

}  // namespace

std::unique_ptr<Command> make_verify_command() { return std::make_unique<VerifyCommand>(); }

}  // namespace fa4::cli
