// Functions that the driver provides to a kernel: vprintf, __assertfail.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace ptxemu {

struct Exec;

// Runs for one lane, with the bytes of the arguments and of the result (none when nobody wants it)
// as long as the kernel made them, which need not be what the function declares.
using SystemCall = void (*)(Exec& exec, int lane,
                            std::span<const std::span<const std::byte>> arguments,
                            std::span<std::byte> result);

SystemCall find_system_call(std::string_view name);  // null when there is none
std::string system_call_names();

}  // namespace ptxemu
