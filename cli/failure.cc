#include "failure.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/excerpt.h"

namespace fa4::cli {
namespace {

// Bytes of the UTF-8 character that `text` begins with; 0 where it begins with none. A message may
// hold part of one: an excerpt of a file ends anywhere.
size_t character_bytes(std::string_view text) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first < 0xc2   ? 0
                        : first < 0xe0 ? 2
                        : first < 0xf0 ? 3
                        : first < 0xf5 ? 4
                                       : 0;
  for (size_t i = 1; i < length; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xbf) return 0;
  }
  // Neither longer than need be, nor half of a UTF-16 pair, nor beyond the last character.
  const bool outside = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) > 0x9f) ||
                       (first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) > 0x8f);
  return outside ? 0 : length;
}

// Names, keys and values of files may be of any length; what is accepted comes after them, and has
// to be seen. Paths of 300 bytes are whole.
std::string cut_words(std::string_view line) {
  constexpr size_t kMost = 300;
  std::string result;
  while (!line.empty()) {
    const size_t length = std::min(line.find(' '), line.size());
    const std::string_view word = line.substr(0, length);
    result += length > kMost ? fa4::internal::excerpt(word) : std::string(word);
    if (length < line.size()) result += ' ';
    line.remove_prefix(std::min(length + 1, line.size()));
  }
  return result;
}

}  // namespace

// Text of a file may stand in it: what() would end at a byte 0.
Failure::Failure(ExitCode code, const std::string& message)
    : std::runtime_error(cut_words(one_line(message))), code_(code) {}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = character_bytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string one_line(std::string_view text) {
  std::string line;
  for (size_t bytes = 0; !text.empty(); text.remove_prefix(std::max<size_t>(bytes, 1))) {
    const char c = text.front();
    const auto byte = static_cast<unsigned char>(c);
    bytes = character_bytes(text);
    if (c == '\t') {
      line += ' ';
    } else if (c == '\n' || c == '\r') {
      if (!line.empty() && !line.ends_with("; ")) line += "; ";
    } else if (bytes == 0 || byte < 0x20 || byte == 0x7f) {
      line += fmt::format("\\x{:02x}", byte);
    } else {
      line += text.substr(0, bytes);
    }
  }
  while (line.ends_with(' ') || line.ends_with(';')) line.pop_back();
  return line;
}

}  // namespace fa4::cli
