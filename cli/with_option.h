// Errors of the library in the words of the command line.
#pragma once

#include <string>

#include "options.h"

namespace fa4::cli {

// The library names its arguments. What it says against one of them comes back behind the option of
// the command that the argument is from, with what the user typed; as it is where there is none.
std::string with_option(const std::string& message, const Options& options);

}  // namespace fa4::cli
