// Comma-separated values (RFC 4180).
#pragma once

#include <string>
#include <vector>

namespace fa4::cli {

// Appends one line; a cell with a comma, quote or newline is quoted.
void append_csv(std::string& text, const std::vector<std::string>& cells);

}  // namespace fa4::cli
