// The backward of `fa4 run`: its options, its files, its run after the forward's.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "command.h"
#include "devices.h"
#include "io/output_files.h"
#include "run_inputs.h"

namespace fa4::cli {

class RunBackward {
 public:
  void declare(Options& options);
  // Whether gradients are asked for. Throws Failure{kBadInput} when the options do not go together.
  bool wanted() const;

  bool deterministic() const { return deterministic_; }
  bool has_dlse() const { return dlse_.has_value(); }

  void claim(OutputFiles& outputs) const;
  // Reads dout, dlse and the true gradients, whose shapes are those of `inputs`.
  void read(const RunInputs& inputs, std::optional<fa4::internal::DType> asked);
  // Runs on the forward's results, hands its outputs over, and compares with the true gradients.
  void run(const RunInputs& inputs, const DeviceChoice& device, int threads, const void* out,
           const float* lse, OutputFiles& outputs, Outcome& outcome);

 private:
  using Text = std::optional<std::string>;
  struct Gradient {
    const char* option;
    Text file, expected_file;
    std::vector<int64_t> shape;
    std::vector<unsigned char> data;
    std::vector<double> truth;
  };
  bool any_output() const;
  bool any_expected() const;
  void check(const RunInputs& inputs, const fa4::internal::BackwardArgs& args, int tile_m,
             Outcome& outcome);

  Text dout_, dlse_, dsink_;
  Gradient dq_{"--dq", {}, {}, {}, {}, {}}, dk_{"--dk", {}, {}, {}, {}, {}},
      dv_{"--dv", {}, {}, {}, {}, {}};
  bool deterministic_ = false;
  std::vector<unsigned char> dout_data_;
  std::vector<float> dlse_data_, dsink_data_;
};

}  // namespace fa4::cli
