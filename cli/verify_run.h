// One case of `fa4 verify`: run on a device, checked against the oracle.
#pragma once

#include <string>

#include "devices.h"
#include "verify/accuracy.h"
#include "verify/cases.h"

namespace fa4::cli {

struct CaseResult {
  fa4::internal::AttentionProblem problem;
  std::string kernel;
  bool wants_lse = false;
  bool skipped = false;
  std::string skip_reason;
  fa4::internal::Accuracy out, lse;           // of a forward
  fa4::internal::BackwardAccuracy gradients;  // of a backward
  bool passed = true;
  std::string detail;           // when not passed, one line
  double seconds = 0;           // of the first run, copies included
  std::string digest;           // XXH3 of all outputs, 32 digits: equal bits, equal digest
  int64_t formal_findings = 0;  // of an emulated device's checker, over all runs
};

struct VerifyOptions {
  bool backward = false;
  int threads = 0;  // of the CPU backend
  int oracle_threads = 1;
  int64_t repeat = 1;  // runs that must give identical bits
};

// Outputs are poisoned before every run and guarded on both sides. A launch that an emulated device
// refuses has not passed; on others it throws, as nothing runs there afterwards.
CaseResult verify_case(const fa4::internal::Case& c, const DeviceChoice& device,
                       const VerifyOptions& options);

}  // namespace fa4::cli
