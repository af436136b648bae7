// A line on standard error that says how far a long command is; silent unless that is a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace fa4::cli {

class Progress {
 public:
  Progress(std::string label, int64_t total);
  ~Progress();  // wipes the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void step(int64_t done);

 private:
  std::string label_;
  int64_t total_;
  bool shown_;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace fa4::cli
