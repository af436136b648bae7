#include "ptxemu/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace fa4::cli {

using ptxemu::LaunchReport;
using ptxemu::ReportedFinding;
using ptxemu::ReportedWaiter;

namespace {

Json number_or_null(int value) { return value < 0 ? Json() : Json(value); }

Json finding_json(const ReportedFinding& finding, const std::string& kernel, size_t launch) {
  return {{"severity", finding.severity},
          {"rule", finding.rule},
          {"launch", launch},
          {"kernel", kernel},
          {"cta", finding.cta},
          {"warp", number_or_null(finding.warp)},
          {"lane", number_or_null(finding.lane)},
          {"ptx_line", finding.ptx_line},
          {"source", finding.source},
          {"object", finding.object},
          {"message", finding.message},
          {"count", finding.count}};
}

Json waiter_json(const ReportedWaiter& waiter, const std::string& kernel, size_t launch) {
  return {{"launch", launch},
          {"kernel", kernel},
          {"cta", waiter.cta},
          {"warp", waiter.warp},
          {"lanes", waiter.lanes},
          {"ptx_line", waiter.ptx_line},
          {"source", waiter.source},
          {"waits_on", waiter.waits_on},
          {"phase", waiter.phase},
          {"pending", waiter.pending},
          {"pending_bytes", waiter.pending_bytes},
          {"last_arrivals", waiter.last_arrivals}};
}

Json counters_json(const LaunchReport& report) {
  return {{"warp_instructions", report.warp_instructions},
          {"moves", report.moves},
          {"mma", report.mma},
          {"tma_bytes", report.tma_bytes}};
}

// The worst of the statuses, and sums of the rest.
LaunchReport total(const std::vector<LaunchResult>& results) {
  LaunchReport sum;
  sum.status = "ok";
  for (const LaunchResult& result : results) {
    const LaunchReport& report = result.report;
    if (is_worse(report.status, sum.status)) sum.status = report.status;
    sum.warp_instructions += report.warp_instructions;
    sum.moves += report.moves;
    sum.mma += report.mma;
    sum.tma_bytes += report.tma_bytes;
    sum.seconds += report.seconds;
    sum.printed += report.printed;
  }
  return sum;
}

std::string cta_text(const std::array<uint32_t, 3>& cta) {
  return fmt::format("({},{},{})", cta[0], cta[1], cta[2]);
}

std::string line_text(uint32_t line, const std::string& source) {
  return source.empty() ? fmt::format("PTX line {}", line)
                        : fmt::format("PTX line {} ({})", line, source);
}

std::string finding_text(const ReportedFinding& finding) {
  std::string text =
      fmt::format("{} {}: cta {}", finding.severity, finding.rule, cta_text(finding.cta));
  if (finding.warp >= 0) text += fmt::format(" warp {}", finding.warp);
  if (finding.lane >= 0) text += fmt::format(" lane {}", finding.lane);
  if (finding.ptx_line > 0) text += ", " + line_text(finding.ptx_line, finding.source);
  if (!finding.object.empty()) text += ", " + finding.object;
  text += ": " + one_line(finding.message);
  if (finding.count > 1) text += fmt::format(" ({} times)", finding.count);
  return text + "\n";
}

std::string deadlock_text(const std::vector<ReportedWaiter>& waiters) {
  std::vector<std::vector<std::string>> rows{
      {"cta", "warp", "lanes", "where", "waits on", "phase", "pending", "bytes", "last arrivals"}};
  for (const ReportedWaiter& waiter : waiters) {
    rows.push_back({cta_text(waiter.cta), std::to_string(waiter.warp),
                    fmt::format("{:08x}", waiter.lanes), line_text(waiter.ptx_line, waiter.source),
                    waiter.waits_on, std::to_string(waiter.phase), std::to_string(waiter.pending),
                    std::to_string(waiter.pending_bytes), waiter.last_arrivals});
  }
  std::vector<size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], widths[i]);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace

bool is_worse(std::string_view status, std::string_view than) {
  static constexpr std::string_view kOrder[] = {"ok", "findings", "deadlock", "trap"};
  const auto rank = [](std::string_view of) { return std::find(kOrder, std::end(kOrder), of); };
  return rank(status) > rank(than);
}

Json report_json(const ptxemu::MachineOptions& options, const std::vector<LaunchResult>& results) {
  const LaunchReport sum = total(results);
  Json json;
  json["device"] = options.device;
  json["policy"] = options.policy;
  json["seed"] = options.seed;
  json["check"] = options.check ? "all" : "none";
  json["math"] = options.math;
  json["status"] = sum.status;
  json["findings"] = Json::array();
  json["deadlock"] = Json::array();
  json["counters"] = counters_json(sum);
  json["seconds"] = sum.seconds;
  json["printed"] = sum.printed;
  json["launches"] = Json::array();
  for (size_t i = 0; i < results.size(); ++i) {
    const auto& [request, report] = results[i];
    for (const ReportedFinding& finding : report.findings) {
      json["findings"].push_back(finding_json(finding, request.kernel, i));
    }
    for (const ReportedWaiter& waiter : report.deadlock) {
      json["deadlock"].push_back(waiter_json(waiter, request.kernel, i));
    }
    json["launches"].push_back({{"kernel", request.kernel},
                                {"grid", request.grid},
                                {"block", request.block},
                                {"cluster", request.cluster},
                                {"shared_bytes", request.shared_bytes},
                                {"status", report.status},
                                {"counters", counters_json(report)},
                                {"seconds", report.seconds}});
  }
  return json;
}

Json line_counts_json(const std::vector<LaunchResult>& results) {
  Json json{{"schema", 1}, {"launches", Json::array()}};
  for (const auto& [request, report] : results) {
    Json warps = Json::array();
    for (const ptxemu::ReportedLines& warp : report.line_counts) {
      warps.push_back({{"cta", warp.cta}, {"warp", warp.warp}, {"lines", warp.lines}});
    }
    json["launches"].push_back({{"kernel", request.kernel}, {"warps", std::move(warps)}});
  }
  return json;
}

std::string report_text(const ptxemu::MachineOptions& options,
                        const std::vector<LaunchResult>& results) {
  std::string text;
  for (const auto& [request, report] : results) {
    text += report.printed;
    if (!text.empty() && text.back() != '\n') text += '\n';
    text += fmt::format(
        "{} grid {} block {} cluster {} on {}, policy {}: {}; {} warp instructions, {} MMAs, {} "
        "bytes by TMA, {:.3g} s\n",
        request.kernel, fmt::join(request.grid, "x"), fmt::join(request.block, "x"),
        fmt::join(request.cluster, "x"), options.device, options.policy, report.status,
        report.warp_instructions, report.mma, report.tma_bytes, report.seconds);
    for (const ReportedFinding& finding : report.findings) text += finding_text(finding);
    if (!report.deadlock.empty()) text += deadlock_text(report.deadlock);
  }
  return text;
}

bool all_passed(const std::vector<LaunchResult>& results) {
  return std::all_of(results.begin(), results.end(),
                     [](const LaunchResult& result) { return result.report.passed(); });
}

}  // namespace fa4::cli
