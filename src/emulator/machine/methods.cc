#include "ptxemu/methods.h"

namespace {

constexpr ptxemu::Methods kMethods{
    .create = [](const ptxemu::MachineOptions& options) { return new ptxemu::Machine(options); },
    .destroy = [](ptxemu::Machine* machine) { delete machine; },
    .set_options = &ptxemu::Machine::set_options,
    .allocate = &ptxemu::Machine::allocate,
    .free = &ptxemu::Machine::free,
    .copy_in = &ptxemu::Machine::copy_in,
    .copy_out = &ptxemu::Machine::copy_out,
    .fill = &ptxemu::Machine::fill,
    .synchronize = &ptxemu::Machine::synchronize,
    .host_view = &ptxemu::Machine::host_view,
    .device_addresses_are_host_addresses = &ptxemu::Machine::device_addresses_are_host_addresses,
    .load = &ptxemu::Machine::load,
    .kernels = &ptxemu::Machine::kernels,
    .parameter_sizes = &ptxemu::Machine::parameter_sizes,
    .symbol = &ptxemu::Machine::symbol,
    .launch = &ptxemu::Machine::launch,
    .encode_tensor_map = &ptxemu::Machine::encode_tensor_map,
    .passed = &ptxemu::LaunchReport::passed,
};

}  // namespace

const ptxemu::Methods* ptxemu_methods(uint32_t version) {
  return version == ptxemu::Methods::kVersion ? &kMethods : nullptr;
}
