// One element of "args": what its bytes are, before addresses are known.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "ptxemu/launch_file.h"

namespace fa4::cli {

// What one block may use in all on both devices (227 KiB).
inline constexpr int64_t kMostSharedBytes = 232448;

// Throws Failure{kBadInput}.
ArgumentSpec read_argument(const nlohmann::ordered_json& value, const std::string& where);

}  // namespace fa4::cli
