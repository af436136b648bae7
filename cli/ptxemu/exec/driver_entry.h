// The driver's functions by name, for cuGetProcAddress and the runtime's way to them.
#pragma once

namespace ptxemu::exec {

inline constexpr int kDriverVersion = 13000;

// Null when these libraries lack it.
void* driver_entry(const char* name);

}  // namespace ptxemu::exec
