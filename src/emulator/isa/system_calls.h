// Functions that the driver provides to a kernel: vprintf, __assertfail.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace ptxemu {

struct Exec;

// Runs for one lane; `arguments` and `result` (null when there is none) point to their bytes.
using SystemCall = void (*)(Exec& exec, int lane, std::span<std::byte* const> arguments,
                            std::byte* result);

SystemCall find_system_call(std::string_view name);  // null when there is none
std::string system_call_names();

}  // namespace ptxemu
