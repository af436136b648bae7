// What the emulated GPU said about launches, as JSON and as text for a person.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "command.h"
#include "ptxemu/launches.h"
#include "ptxemu/machine.h"

namespace fa4::cli {

// status, findings, deadlock, counters, seconds: of all launches together, and of each.
Json report_json(const ptxemu::MachineOptions& options, const std::vector<LaunchResult>& results);
// What kernels printed, then a line a launch, a line a finding, a table of every deadlock.
std::string report_text(const ptxemu::MachineOptions& options,
                        const std::vector<LaunchResult>& results);
// How often each warp executed each line of PTX, a list for every launch.
Json line_counts_json(const std::vector<LaunchResult>& results);
// Of statuses of launches: "ok" is the best, then "findings", "deadlock", "trap".
bool is_worse(std::string_view status, std::string_view than);
bool all_passed(const std::vector<LaunchResult>& results);

}  // namespace fa4::cli
