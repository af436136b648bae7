// A caller's text as an error shows it.
#pragma once

#include <string>
#include <string_view>

namespace fa4::internal {

// Its first 100 bytes, whole characters of UTF-8, and "..." for more: what is accepted comes after
// it, and has to be seen.
inline std::string excerpt(std::string_view text) {
  constexpr size_t kMost = 100;
  if (text.size() <= kMost) return std::string(text);
  size_t length = kMost;
  while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xc0) == 0x80) --length;
  return std::string(text.substr(0, length)) + "...";
}

}  // namespace fa4::internal
