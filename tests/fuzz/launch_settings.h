// The first line of an input of fuzz_kernel: how the PTX below it is launched.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ptxemu/machine.h"

namespace ptxemu::fuzz {

// The line's first byte chooses policy (bits 0, 1), checker (bit 2), seed (bits 3, 4) and whether
// lines are counted (bit 5); then come words key=value. Whatever it says is brought to what a run
// of a fraction of a second holds.
struct LaunchSettings {
  MachineOptions options;
  std::array<uint32_t, 3> grid{1, 1, 1}, block{32, 1, 1}, cluster{1, 1, 1};
  uint32_t shared_bytes = 0;
  uint32_t out_bytes = 1024;
  std::string in = "bits:1024";  // as in fixtures: bits:N, count2:N, words:w,w, pick:N:v,v
  bool has_map = false, map_of_in = true;
  TensorMapRequest map;

  // Takes the first line off the input.
  static LaunchSettings take(std::string_view* input);
};

// As `description` says; at most 64 KiB.
std::vector<uint8_t> fuzz_data(std::string_view description);

}  // namespace ptxemu::fuzz
