#include "emulator/isa/printf_format.h"

#include <fmt/format.h>

#include <cstdio>

namespace ptxemu {
namespace {

constexpr std::string_view kFlags = "-+ #0", kIntegers = "diouxX", kFloats = "eEfFgGaA";

bool contains(std::string_view set, char c) { return set.find(c) != std::string_view::npos; }

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  char next() { return at_ < text_.size() ? text_[at_++] : 0; }
  char peek() const { return at_ < text_.size() ? text_[at_] : 0; }
  size_t at() const { return at_; }

  // A number, or * for one among the arguments; false for one that is too large.
  bool number(std::optional<int>* value, bool* is_argument) {
    if (take('*')) return *is_argument = true;
    while (peek() >= '0' && peek() <= '9') {
      *value = value->value_or(0) * 10 + (next() - '0');
      if (**value > kMostPrintfWidth) return false;
    }
    return true;
  }

 private:
  std::string_view text_;
  size_t at_ = 0;
};

PrintfConversion::Size take_size(Reader& reader) {
  using Size = PrintfConversion::Size;
  if (reader.take('h')) return reader.take('h') ? Size::kChar : Size::kShort;
  if (reader.take('l')) {
    reader.take('l');
    return Size::kLong;
  }
  return reader.take('z') || reader.take('j') || reader.take('t') ? Size::kLong : Size::kInt;
}

// The host's printf of one value.
template <class T>
std::string print(const PrintfConversion& conversion, const std::string& tail, T value) {
  std::string format = "%" + conversion.flags;
  if (conversion.width) format += fmt::format("{}", *conversion.width);
  if (conversion.precision) format += fmt::format(".{}", *conversion.precision);
  format += tail;
  const int length = std::snprintf(nullptr, 0, format.c_str(), value);
  if (length <= 0) return "";
  std::string text(static_cast<size_t>(length) + 1, 0);
  std::snprintf(text.data(), text.size(), format.c_str(), value);
  text.pop_back();
  return text;
}

int64_t narrowed(PrintfConversion::Size size, bool is_signed, int64_t value) {
  using Size = PrintfConversion::Size;
  switch (size) {
    case Size::kChar: return is_signed ? int64_t{static_cast<int8_t>(value)} : value & 0xFF;
    case Size::kShort: return is_signed ? int64_t{static_cast<int16_t>(value)} : value & 0xFFFF;
    case Size::kInt: return is_signed ? int64_t{static_cast<int32_t>(value)} : value & 0xFFFFFFFF;
    case Size::kLong: break;
  }
  return value;
}

}  // namespace

bool PrintfConversion::is_float() const { return contains(kFloats, type); }
bool PrintfConversion::is_integer() const { return contains(kIntegers, type); }

std::string PrintfConversion::text(double value) const {
  return print(*this, std::string(1, type), value);
}

std::string PrintfConversion::text(int64_t value) const {
  if (type == 'c') return print(*this, "c", static_cast<int>(value));
  if (type == 'p') {
    PrintfConversion pointer = *this;
    pointer.flags = contains(flags, '-') ? "-#" : "#";
    pointer.precision.reset();
    if (value == 0) {
      pointer.flags.assign(contains(flags, '-') ? 1 : 0, '-');
      return print(pointer, "s", "(nil)");
    }
    return print(pointer, "llx", static_cast<unsigned long long>(value));
  }
  const int64_t shown = narrowed(size, type == 'd' || type == 'i', value);
  return print(*this, std::string("ll") + type, static_cast<long long>(shown));
}

std::string PrintfConversion::text(const std::string& value) const {
  return print(*this, "s", value.c_str());
}

std::optional<PrintfConversion> parse_conversion(std::string_view text) {
  Reader reader(text);
  PrintfConversion conversion;
  if (!reader.take('%')) return std::nullopt;
  while (reader.peek() != 0 && contains(kFlags, reader.peek())) {
    const char flag = reader.next();
    if (!contains(conversion.flags, flag)) conversion.flags += flag;
  }
  if (!reader.number(&conversion.width, &conversion.width_is_argument)) return std::nullopt;
  if (reader.take('.')) {
    if (!reader.number(&conversion.precision, &conversion.precision_is_argument)) {
      return std::nullopt;
    }
    if (!conversion.precision && !conversion.precision_is_argument) conversion.precision = 0;
  }
  conversion.size = take_size(reader);
  conversion.type = reader.next();
  // The sizes h and l change nothing of a float, a string and a character, and %p takes none.
  const bool plain = conversion.size == PrintfConversion::Size::kInt;
  const bool known = conversion.is_integer() || conversion.is_float() || conversion.type == 's' ||
                     conversion.type == 'c' || (plain && conversion.type == 'p');
  if (!known) return std::nullopt;
  conversion.length = reader.at();
  return conversion;
}

}  // namespace ptxemu
