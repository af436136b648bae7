#pragma once

namespace fa4::cli {

inline constexpr const char* kVersion = FA4_VERSION_TEXT;  // of the project, from CMake

}  // namespace fa4::cli
