// Which file a path means.
#pragma once

#include <optional>
#include <string>

namespace fa4::cli {

// The file that a path means, whether it is there yet or not: symbolic links followed, so that a
// rename replaces what they name, and one spelling of each file, so that two outputs are seen to be
// one. Where the folder is not there either, or the links lead nowhere, opening says so. An open
// descriptor of this process (/dev/stdout, /dev/fd/N) stays one: a pipe behind it has no path.
std::string resolve_path(const std::string& path);

// The descriptor that a resolved path is.
std::optional<int> own_descriptor(const std::string& resolved);

}  // namespace fa4::cli
