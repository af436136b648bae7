// How a machine runs: the device it stands for, when asynchronous work completes, how tensor cores
// add, what is observed.
#pragma once

#include <cstdint>
#include <string_view>

namespace ptxemu {

enum class Policy : uint8_t {
  kEager,   // asynchronous work completes before any warp gets its next turn
  kLate,    // only when no warp of its cluster can run
  kRandom,  // at seeded random times; warps run in seeded random order
  kSplit,   // as kRandom, and every copy and every product is done in parts with gaps between
};

enum class Math : uint8_t {
  kHardware,  // products exact, one sum aligned to the largest exponent, truncated at 25 bits
  kExact,     // in double, rounded once
  kFast,      // in float, in any order
};

// What PTX can see of a device, and the sizes that bound a launch.
struct DeviceModel {
  std::string_view name;     // "emulated:b200"
  std::string_view product;  // "NVIDIA B200"
  uint32_t compute_major = 10, compute_minor = 0;
  uint32_t multiprocessors = 148;
  uint32_t shared_bytes_per_block = 232448;  // 227 KiB, what a launch may ask for
  uint32_t max_cluster = 16;                 // with the non-portable attribute; else 8
  uint32_t tensor_memory_columns = 512;      // 0: none
  // Modules that run: of targets up to the newest; with an a or an f, of one of these two.
  int newest_target = 103, oldest_own_target = 100;
  std::string_view accepted_targets =
      "sm_103 and older, sm_100a, sm_100f, sm_103a, sm_103f";  // in words
  uint64_t global_bytes = uint64_t{192} << 30;
  uint64_t l2_bytes = uint64_t{126} << 20;
  int memory_clock_khz = 3996000, memory_bus_bits = 8192;

  static const DeviceModel& h200();
  static const DeviceModel& b200();
};

struct Options {
  const DeviceModel* device = &DeviceModel::b200();
  Policy policy = Policy::kEager;
  uint64_t seed = 0;
  Math math = Math::kHardware;
  bool check = false;                // all observers
  bool trace = false;                // a record of every warp and engine over time
  bool count_lines = false;          // how often each warp executed each line of PTX
  bool random_launch_order = false;  // clusters start in an order that the seed draws
  bool reorder_products = false;     // those of different accumulators may overtake each other
  uint32_t resident = 1;             // clusters that take turns by the seed; 1: one after the other
  uint32_t threads = 0;              // 0: all cores; the result does not depend on it
  // 0: no bound.
  uint64_t max_instructions = 0;  // warp instructions of one cluster
  uint64_t max_local_memory = 0;  // bytes of the frames of a Launch
  uint64_t max_printed = 0;       // bytes that a launch prints
  uint64_t max_call_depth = 0;    // frames of a thread but the kernel's
  uint64_t max_recorded = 0;      // bytes of a launch's trace and line counts
};

}  // namespace ptxemu
