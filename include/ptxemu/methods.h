// For programs that open libptxemu.so.0 when they need it and do not link it:
//
// void* library = dlopen("libptxemu.so.0", RTLD_NOW);
// auto find = reinterpret_cast<ptxemu::FindMethods*>(dlsym(library, "ptxemu_methods"));
// const ptxemu::Methods* methods = find(ptxemu::Methods::kVersion);  // null: another version
// ptxemu::Machine* machine = methods->create({.device = "emulated:b200"});
// const uint64_t x = (machine->*methods->allocate)(1024, "x");
//
// What each does stands in machine.h; an InputError can be caught as there. The library stays open
// as long as anything of it lives, and both sides use one C++ runtime.
#pragma once

#include "ptxemu/machine.h"

namespace ptxemu {

struct Methods {
  // Another number whenever this struct or one of machine.h changes.
  static constexpr uint32_t kVersion = 4;

  Machine* (*create)(const MachineOptions& options);  // to be given to destroy
  void (*destroy)(Machine* machine);                  // null does nothing
  decltype(&Machine::set_options) set_options;
  decltype(&Machine::allocate) allocate;
  decltype(&Machine::free) free;
  decltype(&Machine::copy_in) copy_in;
  decltype(&Machine::copy_out) copy_out;
  decltype(&Machine::fill) fill;
  decltype(&Machine::synchronize) synchronize;
  decltype(&Machine::host_view) host_view;
  decltype(&Machine::device_addresses_are_host_addresses) device_addresses_are_host_addresses;
  decltype(&Machine::load) load;
  decltype(&Machine::kernels) kernels;
  decltype(&Machine::parameter_sizes) parameter_sizes;
  decltype(&Machine::symbol) symbol;
  decltype(&Machine::launch) launch;
  decltype(&Machine::encode_tensor_map) encode_tensor_map;
  decltype(&LaunchReport::passed) passed;
};

using FindMethods = const Methods*(uint32_t version);

}  // namespace ptxemu

// The methods, or null when `version` is not this library's.
extern "C" PTXEMU_PUBLIC const ptxemu::Methods* ptxemu_methods(uint32_t version);
