#include "io/csv.h"

namespace fa4::cli {

void append_csv(std::string& text, const std::vector<std::string>& cells) {
  for (size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) text += ',';
    if (cells[i].find_first_of(",\"\r\n") == std::string::npos) {
      text += cells[i];
      continue;
    }
    text += '"';
    for (const char c : cells[i]) text += c == '"' ? "\"\"" : std::string(1, c);
    text += '"';
  }
  text += '\n';
}

}  // namespace fa4::cli
