#include "emulator/machine/options.h"

namespace ptxemu {

const DeviceModel& DeviceModel::h200() {
  static const DeviceModel model = [] {
    DeviceModel m;
    m.name = "emulated:h200";
    m.product = "NVIDIA H200";
    m.compute_major = 9;
    m.multiprocessors = 132;
    m.tensor_memory_columns = 0;
    m.newest_target = m.oldest_own_target = 90;
    m.accepted_targets = "sm_90 and older, sm_90a";
    m.global_bytes = uint64_t{141} << 30;
    m.l2_bytes = uint64_t{60} << 20;
    m.memory_clock_khz = 3201000;
    m.memory_bus_bits = 6144;
    return m;
  }();
  return model;
}

const DeviceModel& DeviceModel::b200() {
  static const DeviceModel model = [] {
    DeviceModel m;
    m.name = "emulated:b200";
    m.product = "NVIDIA B200";
    return m;
  }();
  return model;
}

}  // namespace ptxemu
