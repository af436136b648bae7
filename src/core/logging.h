// The library never prints: it calls back, when somebody asked for it.
#pragma once

#include <string_view>

namespace fa4::internal {

using LogCallback = void (*)(int level, const char* message, void* context);

void set_log_callback(LogCallback callback, void* context);
// level 1: something failed and a slower path was taken; 2: a decision.
void log(int level, std::string_view message);
// Whether anybody would hear of it: for messages that take work to make.
bool is_logged(int level);

}  // namespace fa4::internal
