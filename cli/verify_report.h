// What `fa4 verify` says of the cases that it ran.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "command.h"
#include "json.h"
#include "verify_run.h"

namespace fa4::cli {

// How often each option and kernel was part of a case that ran.
class Coverage {
 public:
  explicit Coverage(bool backward) : backward_(backward) {}
  void add(const CaseResult& result);
  Json json() const { return Json(counts_); }
  std::string text() const;

 private:
  void count(const char* name, bool present) { counts_[name] += present; }

  bool backward_;
  std::map<std::string, int64_t> counts_;
};

class VerifyReport {
 public:
  // A single case's results are told one by one, and it may not be skipped.
  VerifyReport(std::string device, bool backward, bool is_single)
      : device_(std::move(device)),
        backward_(backward),
        is_single_(is_single),
        coverage_(backward) {}

  // Throws Failure{kBadInput} for a single case that the device does not take.
  void add(const CaseResult& result, int64_t index);
  // Throws Failure{kBadInput} where all `cases` of the suite were skipped for the same reason.
  void finish(int64_t cases, Outcome& outcome);

 private:
  std::string device_;
  bool backward_, is_single_;
  Coverage coverage_;
  std::string text_;  // of the single case, and of those that failed
  Json rows_ = Json::array();
  std::map<std::string, int64_t> reasons_;  // of skipped cases
  int64_t failed_ = 0, skipped_ = 0, formal_findings_ = 0;
};

}  // namespace fa4::cli
