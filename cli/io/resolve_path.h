// Which file a path means.
#pragma once

#include <string>

namespace fa4::cli {

// The file that a path means, whether it is there yet or not: symbolic links followed, so that a
// rename replaces what they name, and one spelling of each file, so that two outputs are seen to be
// one. Where the folder is not there either, or the links lead nowhere, opening says so.
std::string resolve_path(const std::string& path);

}  // namespace fa4::cli
