#include "failure.h"

#include <fmt/format.h>

namespace fa4::cli {

// Text of a file may stand in it: what() would end at a byte 0.
Failure::Failure(ExitCode code, const std::string& message)
    : std::runtime_error(one_line(message)), code_(code) {}

std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\t') {
      line += ' ';
    } else if (c != '\n' && c != '\r') {
      line += byte >= 0x20 && byte != 0x7f ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
    } else if (!line.empty() && !line.ends_with("; ")) {
      line += "; ";
    }
  }
  while (line.ends_with(' ') || line.ends_with(';')) line.pop_back();
  return line;
}

}  // namespace fa4::cli
