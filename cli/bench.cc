// fa4 bench: speed, row by row, beside the ceiling of the machine.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <utility>

#include "axes.h"
#include "bench_rows.h"
#include "bench_timing.h"
#include "commands.h"
#include "io/csv.h"
#include "io/output_files.h"
#include "io/svg_chart.h"
#include "parse.h"

namespace fa4::cli {

using namespace fa4::internal;

namespace {

// What a series' name says of heads and batches: equal heads and the batch only where rows of a
// length differ in nothing else.
enum class Named { kUnequalHeads, kHeads, kHeadsAndBatch };

// What tells a row's series apart in a chart: everything but the sequence's length.
std::string series_name(const BenchRow& row, Named named) {
  const AttentionProblem& p = row.problem;
  std::string name = fmt::format("{} d{}", name_of(p.dtype), p.head_dim);
  if (p.kv_dtype != p.dtype) name += fmt::format(" kv {}", name_of(p.kv_dtype));
  if (p.out_dtype != p.dtype) name += fmt::format(" out {}", name_of(p.out_dtype));
  if (p.head_dim_v != p.head_dim) name += fmt::format(",{}", p.head_dim_v);
  if (p.heads_kv != p.heads_q || named != Named::kUnequalHeads) {
    name += fmt::format(" {}:{}", p.heads_q, p.heads_kv);
  }
  if (named == Named::kHeadsAndBatch) name += fmt::format(" batch {}", p.batch);
  if (p.causal) name += " causal";
  if (!p.window.is_full()) {
    name += fmt::format(" win {}:{}", p.window.window_left, p.window.window_right);
  }
  if (p.softcap != 0) name += fmt::format(" cap {}", p.softcap);
  if (p.layout_kv == Layout::kPaged) name += fmt::format(" pages of {}", p.page_size);
  if (p.num_splits != 0) name += fmt::format(" {} splits", p.num_splits);
  if (p.sm_margin != 0) name += fmt::format(" margin {}", p.sm_margin);
  return name + (row.threads > 0 ? fmt::format(", {} threads", row.threads) : ", " + row.device);
}

std::string group_name(const AttentionProblem& p) {
  std::string name = std::to_string(p.seqlen_q);
  if (p.seqlen_k != p.seqlen_q) name += fmt::format("x{}", p.seqlen_k);
  return name;
}

template <class T>
size_t index_of(std::vector<T>& list, const T& value) {
  const auto found = std::find(list.begin(), list.end(), value);
  if (found != list.end()) return static_cast<size_t>(found - list.begin());
  list.push_back(value);
  return list.size() - 1;
}

// Of each row its series' name, as short as tells them apart.
std::vector<std::string> series_names(const std::vector<BenchRow>& rows) {
  std::vector<std::string> names;
  for (const Named named : {Named::kUnequalHeads, Named::kHeads, Named::kHeadsAndBatch}) {
    names.clear();
    std::set<std::pair<std::string, std::string>> bars;
    for (const BenchRow& row : rows) {
      names.push_back(series_name(row, named));
      bars.emplace(group_name(row.problem), names.back());
    }
    if (bars.size() == rows.size()) break;
  }
  return names;
}

BarChart make_chart(const std::vector<BenchRow>& rows, const std::string& direction,
                    const std::string& device, const std::string& model) {
  BarChart chart;
  const std::vector<std::string> name_of_row = series_names(rows);
  std::vector<std::string> names;
  double fastest = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    index_of(chart.groups, group_name(rows[i].problem));
    index_of(names, name_of_row[i]);
    fastest = std::max(fastest, rows[i].tflops());
  }
  const bool giga = fastest < 2;
  for (const std::string& name : names) {
    chart.series.push_back({name, std::vector<double>(chart.groups.size(), std::nan(""))});
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const size_t series = index_of(names, name_of_row[i]);
    const size_t group = index_of(chart.groups, group_name(rows[i].problem));
    chart.series[series].values[group] = rows[i].tflops() * (giga ? 1000 : 1);
  }
  chart.title = "Attention " + direction + ", " + model;
  chart.subtitle = fmt::format("{}, {}: median of interleaved rounds, higher is better", device,
                               rows.front().kernel);
  chart.unit = giga ? "GFLOP/s" : "TFLOP/s";
  chart.x_label = "sequence length";
  return chart;
}

// Beside a row of few queries, which reads its keys as fast as the machine does at best.
std::string reads_text(const BenchRow& row) {
  if (row.read_gb_per_s <= 0) return "";
  return fmt::format("  {:.4g} GB/s, {:.0f} % of what its threads read", row.gb_per_s(),
                     100 * row.gb_per_s() / row.read_gb_per_s);
}

// One line a CPU instruction: whether its measured ceiling is what the clock allows.
std::string ceilings_text(const std::vector<BenchRow>& rows) {
  std::string text;
  std::vector<std::string> named;
  for (const BenchRow& row : rows) {
    const std::string name = fmt::format("{}, {} threads", row.peak_instruction, row.threads);
    const size_t known = named.size();
    if (row.peak_expected_tflops <= 0 || index_of(named, name) < known) continue;
    text += fmt::format("ceiling of {}: {:.4g} TFLOP/s, {:.0f} % of instructions x width x clock\n",
                        name, row.peak_tflops, 100 * row.peak_tflops / row.peak_expected_tflops);
  }
  return text;
}

class BenchCommand final : public Command {
 public:
  const char* name() const override { return "bench"; }
  const char* description() const override { return "Measure speed beside the machine's ceiling"; }

  void declare(Options& app) override {
    app.add_option("direction", direction_, "forward or backward")->type_name("");
    axes_.declare(app);
    app.add_flag("--deterministic", deterministic_, "Backward: the same bits in every run");
    app.add_option("--device", device_, "cpu (default), cuda:N, emulated:h200, emulated:b200")
        ->type_name("A,B,C");
    app.add_option("--threads", threads_, "Of the CPU (default: all)")->type_name("A,B,C");
    app.add_option("--rounds", rounds_, "Default 5")->type_name("N");
    app.add_option("--plot", plot_, "Write a bar chart")->type_name("FILE.svg");
    app.add_option("--csv", csv_, "Write the table")->type_name("FILE.csv");
  }

  Outcome run() override;

 private:
  Direction direction() const;
  std::vector<BenchJob> choose_jobs() const;
  std::string csv_text(const std::vector<BenchRow>& rows) const;
  static Json row_json(const BenchRow& row);

  BenchAxes axes_;
  std::string direction_, device_ = "cpu";
  std::optional<std::string> threads_, rounds_, plot_, csv_;
  bool deterministic_ = false;
};

Direction BenchCommand::direction() const {
  if (direction_.empty())
    throw bad_input("what to measure is missing; accepted: forward, backward");
  return parse_direction("direction", direction_);
}

std::vector<BenchJob> BenchCommand::choose_jobs() const {
  std::vector<BenchJob> jobs;
  for (AttentionProblem problem : axes_.problems(direction())) {
    problem.deterministic = deterministic_;
    if (!threads_) {
      jobs.push_back({problem, direction(), 0});
      continue;
    }
    for (const int64_t threads : parse_int_list("--threads", *threads_, 1, 4096)) {
      jobs.push_back({problem, direction(), static_cast<int>(threads)});
    }
  }
  return jobs;
}

Json BenchCommand::row_json(const BenchRow& row) {
  Json json = axes_json(row.problem);
  const bool peak = row.peak_tflops > 0;
  // Axes of a list stand in every row, also where they are off, so that rows can be told apart.
  json["page_size"] = row.problem.page_size;
  json["kv_dtype"] = name_of(row.problem.kv_dtype);
  json["out_dtype"] = name_of(row.problem.out_dtype);
  json["device"] = row.device;
  json["threads"] = row.threads > 0 ? Json(row.threads) : Json();
  json["kernel"] = row.kernel;
  json["ms"] = {{"min", row.ms_min}, {"median", row.ms_median}, {"max", row.ms_max}};
  json["tflops"] = row.tflops();
  json["gb_per_s"] = row.bytes > 0 ? Json(row.gb_per_s()) : Json();
  json["read_gb_per_s"] = row.read_gb_per_s > 0 ? Json(row.read_gb_per_s) : Json();
  json["peak_tflops"] = peak ? Json(row.peak_tflops) : Json();
  json["share_of_peak"] = peak ? Json(row.share_of_peak()) : Json();
  if (peak) {
    json["peak_instruction"] = row.peak_instruction;
    json["peak_expected_tflops"] =
        row.peak_expected_tflops > 0 ? Json(row.peak_expected_tflops) : Json();
  }
  json["correct"] = row.correct;
  return json;
}

std::string BenchCommand::csv_text(const std::vector<BenchRow>& rows) const {
  std::string text;
  append_csv(text, {"device",        "threads",   "kernel",      "dtype",        "batch",
                    "heads_q",       "heads_kv",  "seqlen_q",    "seqlen_k",     "head_dim",
                    "head_dim_v",    "causal",    "window_left", "window_right", "softcap",
                    "ms_min",        "ms_median", "ms_max",      "tflops",       "peak_tflops",
                    "share_of_peak", "page_size", "num_splits",  "gb_per_s",     "read_gb_per_s",
                    "kv_dtype",      "out_dtype", "sm_margin"});
  for (const BenchRow& row : rows) {
    const AttentionProblem& p = row.problem;
    const auto number = [](auto value) { return fmt::format("{}", value); };
    const bool peak = row.peak_tflops > 0;
    append_csv(text, {row.device,
                      row.threads > 0 ? std::to_string(row.threads) : "",
                      row.kernel,
                      std::string(name_of(p.dtype)),
                      number(p.batch),
                      number(p.heads_q),
                      number(p.heads_kv),
                      number(p.seqlen_q),
                      number(p.seqlen_k),
                      number(p.head_dim),
                      number(p.head_dim_v),
                      p.causal ? "1" : "0",
                      number(p.window.window_left),
                      number(p.window.window_right),
                      number(p.softcap),
                      number(row.ms_min),
                      number(row.ms_median),
                      number(row.ms_max),
                      number(row.tflops()),
                      peak ? number(row.peak_tflops) : "",
                      peak ? number(row.share_of_peak()) : "",
                      number(p.page_size),
                      number(p.num_splits),
                      row.bytes > 0 ? number(row.gb_per_s()) : "",
                      row.read_gb_per_s > 0 ? number(row.read_gb_per_s) : "",
                      std::string(name_of(p.kv_dtype)),
                      std::string(name_of(p.out_dtype)),
                      number(p.sm_margin)});
  }
  return text;
}

Outcome BenchCommand::run() {
  check_deterministic(direction(), deterministic_, "bench backward");
  const int rounds = rounds_ ? static_cast<int>(parse_int("--rounds", *rounds_, 1, 100000)) : 5;
  const std::vector<BenchJob> jobs = choose_jobs();
  std::vector<DeviceChoice> devices;
  for (const std::string& name : split_list("--device", device_)) {
    devices.push_back(open_device(name));
  }
  const auto files = std::make_shared<OutputFiles>();
  OutputFiles& outputs = *files;
  if (plot_) outputs.add_text("--plot", *plot_);
  if (csv_) outputs.add_text("--csv", *csv_);
  std::vector<BenchRow> rows;
  for (const DeviceChoice& device : devices) {
    for (BenchRow& row : time_rows(jobs, device, rounds)) rows.push_back(std::move(row));
  }
  const std::string& model = devices.front().spec.model;
  if (plot_) outputs.set_text("--plot", render_svg(make_chart(rows, direction_, device_, model)));
  if (csv_) outputs.set_text("--csv", csv_text(rows));
  outputs.write();

  Outcome outcome;
  outcome.files.push_back(files);
  outcome.json["device"] = device_;
  outcome.json["direction"] = direction_;
  outcome.json["model"] = model;
  outcome.json["rounds"] = rounds;
  outcome.json["rows"] = Json::array();
  outcome.text = fmt::format("{} ({}), median of {} interleaved rounds\n", device_, model, rounds);
  for (const BenchRow& row : rows) {
    outcome.json["rows"].push_back(row_json(row));
    const bool peak = row.peak_tflops > 0;
    outcome.text +=
        fmt::format("{:<62} {:>10.4g} ms {:>8.4g} TFLOP/s{}{}  {}\n", axes_text(row.problem),
                    row.ms_median, row.tflops(), reads_text(row),
                    peak ? fmt::format("  {:>5.1f} % of {:.4g} ({})", 100 * row.share_of_peak(),
                                       row.peak_tflops, row.peak_instruction)
                         : "",
                    row.kernel, row.threads > 0 ? fmt::format(", {} threads", row.threads) : "");
    if (!row.correct) outcome.text += "FAILED: wrong result: " + row.detail + "\n";
    if (row.share_of_peak() > 1) outcome.text += "FAILED: faster than the measured ceiling\n";
    if (!row.correct || row.share_of_peak() > 1) outcome.code = kCheckFailed;
  }
  outcome.text += ceilings_text(rows);
  return outcome;
}

}  // namespace

std::unique_ptr<Command> make_bench_command() { return std::make_unique<BenchCommand>(); }

}  // namespace fa4::cli
