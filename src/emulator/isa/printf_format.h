// Conversions of a printf format as a kernel writes them ("Formatted Output", CUDA C++ Programming
// Guide): % flags width .precision size type. The text comes from the kernel, so nothing of it
// reaches the host's printf but flags and numbers that were understood.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ptxemu {

struct PrintfConversion {
  enum class Size : uint8_t { kInt, kChar, kShort, kLong };

  std::string flags;                                              // of "-+ #0", each once
  std::optional<int> width, precision;                            // as written
  bool width_is_argument = false, precision_is_argument = false;  // *
  Size size = Size::kInt;
  char type = 0;      // d i o u x X c s p e E f F g G a A
  size_t length = 0;  // of the text, the % included

  bool is_float() const;
  bool is_integer() const;
  bool is_wide() const { return size == Size::kLong; }  // of an integer: 8 bytes, else 4

  // The host's text of one value; width and precision as set.
  std::string text(double value) const;
  std::string text(int64_t value) const;  // also c and p
  std::string text(const std::string& value) const;
};

inline constexpr int kMostPrintfWidth = 4096;

// The conversion at the begin of `text`, a % that no second one follows; nullopt for any other.
std::optional<PrintfConversion> parse_conversion(std::string_view text);

}  // namespace ptxemu
