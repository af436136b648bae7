// Times the rows of `fa4 bench` in interleaved rounds, each between measurements of the ceiling.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "devices.h"
#include "parse.h"
#include "problem/attention_problem.h"

namespace fa4::cli {

struct BenchJob {
  fa4::internal::AttentionProblem problem;
  Direction direction = Direction::kForward;
  int threads = 0;  // of the CPU; 0: all
};

struct BenchRow {
  fa4::internal::AttentionProblem problem;
  std::string device;
  int threads = 0;  // of the CPU; 0 on a GPU
  std::string kernel;
  double flops = 0;
  double bytes = 0;          // of keys and values, each once; a backward's: 0
  double read_gb_per_s = 0;  // what the threads read of as many bytes, in the same rounds; CPU
  double ms_min = 0, ms_median = 0, ms_max = 0;  // of one run, over the rounds
  // The ceiling of the matrix instruction in use, measured in the same rounds; 0: not known.
  double peak_tflops = 0;
  double peak_expected_tflops = 0;  // instructions x width x measured clock
  std::string peak_instruction;
  bool correct = true;  // a few of its rows, checked against double precision
  std::string detail;

  double gb_per_s() const { return bytes / (ms_median * 1e6); }
  double tflops() const { return flops / (ms_median * 1e9); }
  double share_of_peak() const { return peak_tflops > 0 ? tflops() / peak_tflops : 0; }
};

// Throws the library's Error; Error{kNotSupported} before anything is timed when a row is not
// supported.
std::vector<BenchRow> time_rows(const std::vector<BenchJob>& jobs, const DeviceChoice& device,
                                int rounds);

}  // namespace fa4::cli
