// The driver's functions by name, for cuGetProcAddress and the runtime's way to them.
#pragma once

#include <cstdint>

namespace ptxemu::exec {

inline constexpr int kDriverVersion = 13000;

// The function as a program built for this version of CUDA knows it (12050 for 12.5); null when
// these libraries lack it.
void* driver_entry(const char* name, uint64_t cuda_version);

}  // namespace ptxemu::exec
