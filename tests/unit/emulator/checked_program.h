// Small programs under the checker, and what it says of them.
#pragma once

#include <string>

#include "ptx_program.h"

namespace ptxemu {

inline MachineOptions checked(const char* policy = "eager", const char* device = "emulated:b200") {
  MachineOptions options;
  options.device = device;
  options.policy = policy;
  options.seed = 1;
  options.check = true;
  return options;
}

// "error", "formal" or "" for the worst finding of the rule.
inline std::string severity(const LaunchReport& report, const std::string& rule) {
  std::string worst;
  for (const auto& f : report.findings) {
    if (f.rule == rule && worst != "error") worst = f.severity;
  }
  return worst;
}

}  // namespace ptxemu
