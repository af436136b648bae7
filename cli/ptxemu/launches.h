// The launches of a file made ready and run on a machine.
#pragma once

#include <string>
#include <vector>

#include "ptxemu/buffers.h"
#include "ptxemu/launch_file.h"
#include "ptxemu/machine.h"

namespace fa4::cli {

struct LaunchResult {
  ptxemu::LaunchRequest request;
  ptxemu::LaunchReport report;
};

// A launch of which everything that can be known before it runs has been checked.
struct ReadyLaunch {
  const LaunchSpec* spec = nullptr;
  ptxemu::ModuleHandle module;
  ptxemu::LaunchRequest request;
};

// A cluster of 0, 0, 0 becomes what the machine runs: the kernel's own, else 1, 1, 1.
void settle_cluster(const ptxemu::Machine& machine, const ptxemu::ModuleHandle& module,
                    ptxemu::LaunchRequest& request);

// Loads each PTX file once, finds the kernels and compares arguments with their parameters. Throws
// Failure{kBadInput}.
std::vector<ReadyLaunch> load_launches(ptxemu::Machine& machine,
                                       const std::vector<LaunchSpec>& specs);

// The arguments of one, each as long as its parameter. Throws Failure{kBadInput} for a tensor map
// that cannot be.
std::vector<std::vector<std::byte>> argument_bytes(const LaunchSpec& spec,
                                                   const EmulatedBuffers& buffers);

}  // namespace fa4::cli
