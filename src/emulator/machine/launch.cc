#include "emulator/machine/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <random>
#include <utility>

#include "emulator/machine/cluster_runs.h"
#include "emulator/machine/cluster_turns.h"
#include "emulator/machine/exec.h"
#include "emulator/machine/simt.h"
#include "emulator/observe/waiters.h"

namespace ptxemu {

namespace {

Finding limit(std::string message) {
  Finding finding;
  finding.rule = "limit";
  finding.message = std::move(message);
  return finding;
}

Finding recorded_limit(uint64_t most) {
  return limit(fmt::format(
      "the launch's trace and line counts take more than --max-recorded, {} bytes", most));
}

uint64_t recorded_bytes(const Launch& launch) {
  return launch.line_count_bytes + (launch.trace != nullptr ? launch.trace->bytes() : 0);
}

}  // namespace

Finding printed_limit(uint64_t most) {
  return limit(fmt::format("the launch prints more than --max-printed, {} bytes", most));
}

uint32_t registers_of_thread(const Function& entry, uint64_t threads) {
  constexpr uint64_t kRegisterFile = 65536, kMostRegisters = 255, kUnit = 8;
  if (entry.maxnreg != 0) return entry.maxnreg;
  const uint64_t warps = std::clamp<uint64_t>((threads + 31) / 32, 1, kRegisterFile / 32);
  const uint64_t ctas = std::max(1u, entry.minnctapersm);
  const uint64_t each = kRegisterFile / (warps * 32 * ctas) / kUnit * kUnit;
  return static_cast<uint32_t>(std::min(kMostRegisters, each));
}

void Counters::add(const Counters& other) {
  warp_instructions += other.warp_instructions;
  moves += other.moves;
  mma += other.mma;
  tma_bytes += other.tma_bytes;
}

bool Launch::report_again(std::string_view rule, uint32_t ptx_line, Severity severity,
                          uint64_t statement) {
  for (Finding& known : findings) {
    if (known.ptx_line != ptx_line || known.severity != severity || known.rule != rule) continue;
    if (statement == 0 || known.statement != statement) ++known.count;
    known.statement = statement;
    return true;
  }
  return false;
}

void Launch::report(Finding finding) {
  for (Finding& known : findings) {
    if (known.rule == finding.rule && known.ptx_line == finding.ptx_line &&
        known.severity == finding.severity) {
      const bool again = finding.statement != 0 && finding.statement == known.statement;
      if (!again) known.count += finding.count;
      known.statement = finding.statement;
      return;
    }
  }
  findings.push_back(std::move(finding));
}

void Launch::report(const Exec& exec, const Insn& insn, Severity severity, std::string rule,
                    std::string message, std::string object, int lane) {
  Finding finding;
  finding.severity = severity;
  finding.rule = std::move(rule);
  std::copy_n(exec.cta->id, 3, finding.cta);
  finding.warp = static_cast<int32_t>(exec.warp->index);
  finding.lane = lane >= 0 ? lane : exec.first_lane();
  finding.ptx_line = insn.line;
  finding.statement = exec.statement();
  finding.source = source_of(*code, *exec.group->frame->function, insn);
  finding.object = std::move(object);
  finding.message = std::move(message);
  report(std::move(finding));
}

void Launch::stop(Finding finding) {
  report(std::move(finding));
  status = Status::kTrap;
  throw LaunchStopped{};
}

void Launch::check_recorded() {
  const uint64_t most = options.max_recorded;
  if (most != 0 && recorded_bytes(*this) > most) stop(recorded_limit(most));
}

bool Launch::cancel_cluster(uint64_t* index) {
  if (next_cluster >= clusters) return false;
  *index = cluster_at(next_cluster++);
  return true;
}

// A permutation of the numbers below `clusters` by four rounds that swap the halves of a number's
// bits, over and over while the result is no cluster's number.
uint64_t Launch::cluster_at(uint64_t number) const {
  if (!options.random_launch_order) return number;
  const int half = (std::bit_width(clusters - 1) + 1) / 2;
  const uint64_t mask = (uint64_t{1} << half) - 1;
  do {
    uint64_t left = number >> half, right = number & mask;
    for (uint64_t round = 0; round < 4; ++round) {
      std::mt19937_64 hash(options.seed * 4 + round + (right << 32));
      left ^= hash() & mask;
      std::swap(left, right);
    }
    number = left << half | right;
  } while (number >= clusters);
  return number;
}

void Launch::run() {
  ctas_per_cluster = shape.cluster[0] * shape.cluster[1] * shape.cluster[2];
  clusters = uint64_t{shape.grid[0]} * shape.grid[1] * shape.grid[2] / ctas_per_cluster;
  // setmaxnreg moves what a kernel starts with, which PTX does not hold.
  registers_per_thread =
      registers_of_thread(*code->entry, uint64_t{shape.block[0]} * shape.block[1] * shape.block[2]);
  // Without an observer nobody knows what this launch touches, nor whether it waits.
  if (observer == nullptr) earlier_grids = nullptr;
  try {
    // The checker's rules of global memory span clusters.
    if (code->clusters_meet || observer != nullptr) {
      run_in_turns(*this);
    } else {
      run_side_by_side(*this);
    }
  } catch (const LaunchStopped&) {
  }
  if (observer != nullptr) observer->launch_end();
  if (status == Status::kOk && !findings.empty()) status = Status::kFindings;
}

std::unique_ptr<Launch> Launch::part() const {
  auto part = std::make_unique<Launch>();
  part->code = code;
  part->shape = shape;
  part->options = options;
  part->memory = memory;
  part->params = params;
  part->grid_workspace = grid_workspace;
  part->clusters = part->next_cluster = clusters;
  part->ctas_per_cluster = ctas_per_cluster;
  part->registers_per_thread = registers_per_thread;
  if (trace != nullptr) part->trace = std::make_unique<Trace>();
  return part;
}

void Launch::take(Launch& part) {
  counters.add(part.counters);
  const bool fits =
      options.max_printed == 0 || printed.size() + part.printed.size() <= options.max_printed;
  if (fits) printed += part.printed;
  for (Finding& finding : part.findings) report(std::move(finding));
  std::move(part.waiters.begin(), part.waiters.end(), std::back_inserter(waiters));
  const bool records_fit = options.max_recorded == 0 ||
                           recorded_bytes(*this) + recorded_bytes(part) <= options.max_recorded;
  if (records_fit) {
    std::move(part.line_counts.begin(), part.line_counts.end(), std::back_inserter(line_counts));
    line_count_bytes += part.line_count_bytes;
    if (trace != nullptr) trace->take(*part.trace);
  }
  status = std::max(status, part.status);
  if (!fits) report(printed_limit(options.max_printed));
  if (!records_fit) report(recorded_limit(options.max_recorded));
  if (!fits || !records_fit) status = Status::kTrap;
}

void Launch::report_deadlock(const std::vector<std::unique_ptr<Cluster>>& resident) {
  status = Status::kDeadlock;
  for (const auto& cluster : resident) {
    for (const auto& cta : cluster->ctas) {
      for (const auto& warp : cta->warps) describe_waiters(*this, *warp, &waiters);
    }
  }
}

}  // namespace ptxemu
