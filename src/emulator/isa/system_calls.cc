#include "emulator/isa/system_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "emulator/isa/printf_format.h"
#include "emulator/machine/exec.h"

namespace ptxemu {

namespace {

using Arguments = std::span<const std::span<const std::byte>>;

// An argument of at most 8 bytes; what it lacks of T is 0.
template <class T>
T value_of(std::span<const std::byte> bytes) {
  T value{};
  std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof value));
  return value;
}

[[noreturn]] void exceed_printed_limit(const Exec& exec, int lane) {
  const Finding finding = printed_limit(exec.launch->options.max_printed);
  throw Trap{finding.rule, finding.message, lane};
}

// Up to the NUL, which may be far away: no longer than what may be printed.
std::string read_string(const Exec& exec, int lane, uint64_t address) {
  const uint64_t most = exec.launch->options.max_printed;
  std::string text;
  for (;;) {
    const auto c =
        static_cast<char>(*resolve(exec, lane, Space::kGeneric, address++, 1, AccessKind::kRead));
    if (c == 0) return text;
    if (most != 0 && text.size() == most) exceed_printed_limit(exec, lane);
    text += c;
  }
}

// The values of a format, one after the other at `address`: 4 bytes for int and what is narrower,
// else 8, aligned to their size (how vprintf's buffer is laid out).
class PrintfValues {
 public:
  PrintfValues(const Exec& exec, int lane, uint64_t address)
      : exec_(exec), lane_(lane), address_(address) {}

  std::string text(PrintfConversion conversion) {
    if (conversion.width_is_argument) set_width(&conversion);
    if (conversion.precision_is_argument) set_precision(&conversion);
    if (conversion.type == 's') {
      const auto address = next<uint64_t>();
      return conversion.text(address == 0 ? "(null)" : read_string(exec_, lane_, address));
    }
    if (conversion.is_float()) return conversion.text(next<double>());
    const bool wide = conversion.type == 'p' || (conversion.is_integer() && conversion.is_wide());
    return conversion.text(wide ? next<int64_t>() : int64_t{next<int32_t>()});
  }

  // How many have been taken, those of * included.
  int32_t count() const { return count_; }

 private:
  // A negative width is the flag - and a positive one; a negative precision is none.
  void set_width(PrintfConversion* conversion) {
    const int32_t width = next<int32_t>();
    if (width < 0) conversion->flags += '-';
    conversion->width =
        static_cast<int>(std::min<int64_t>(std::abs(int64_t{width}), kMostPrintfWidth));
  }
  void set_precision(PrintfConversion* conversion) {
    const int32_t precision = next<int32_t>();
    if (precision >= 0) conversion->precision = std::min(precision, kMostPrintfWidth);
  }
  template <class T>
  T next() {
    address_ = (address_ + sizeof(T) - 1) / sizeof(T) * sizeof(T);
    const std::byte* at =
        resolve(exec_, lane_, Space::kGeneric, address_, sizeof(T), AccessKind::kRead);
    address_ += sizeof(T);
    ++count_;
    return value_of<T>({at, sizeof(T)});
  }
  const Exec& exec_;
  int lane_;
  uint64_t address_;
  int32_t count_ = 0;
};

// The result is the number of arguments, or -1 without a format ("Formatted Output").
void call_vprintf(Exec& exec, int lane, Arguments arguments, std::span<std::byte> result) {
  if (arguments.size() < 2) throw Trap{"call-arguments", "vprintf takes a format and a buffer"};
  const auto give = [&](int32_t value) {
    if (!result.empty()) std::memcpy(result.data(), &value, std::min(result.size(), sizeof value));
  };
  const auto address = value_of<uint64_t>(arguments[0]);
  if (address == 0) return give(-1);
  const std::string format = read_string(exec, lane, address);
  PrintfValues values(exec, lane, value_of<uint64_t>(arguments[1]));
  std::string out;
  for (size_t i = 0; i < format.size();) {
    const std::string_view rest = std::string_view(format).substr(i);
    if (rest.front() != '%') {
      out += rest.front();
      ++i;
    } else if (rest.starts_with("%%")) {
      out += '%';
      i += 2;
    } else if (const auto conversion = parse_conversion(rest)) {
      out += values.text(*conversion);
      i += conversion->length;
    } else {
      throw Trap{"printf-format",
                 fmt::format("printf of \"{}\"; accepted: % flags width .precision size and one of "
                             "d i o u x X c s p e E f F g G a A, with width and precision up to {}",
                             rest.substr(0, 16), kMostPrintfWidth),
                 lane};
    }
  }
  Launch& launch = *exec.launch;
  const uint64_t most = launch.options.max_printed;
  if (most != 0 && launch.printed.size() + out.size() > most) exceed_printed_limit(exec, lane);
  launch.printed += out;
  give(values.count());
}

// message, file, line, function, size of a character.
void call_assertfail(Exec& exec, int lane, Arguments arguments, std::span<std::byte>) {
  if (arguments.size() < 4) throw Trap{"assert", "an assertion failed"};
  auto text = [&](size_t i) { return read_string(exec, lane, value_of<uint64_t>(arguments[i])); };
  throw Trap{"assert",
             fmt::format("{}:{}: {}: assertion `{}' failed", text(1),
                         value_of<uint32_t>(arguments[2]), text(3), text(0)),
             lane};
}

struct Row {
  std::string_view name;
  SystemCall call;
};
constexpr Row kCalls[] = {{"__assertfail", call_assertfail}, {"vprintf", call_vprintf}};

}  // namespace

SystemCall find_system_call(std::string_view name) {
  for (const Row& row : kCalls) {
    if (row.name == name) return row.call;
  }
  return nullptr;
}

std::string system_call_names() {
  std::string names;
  for (const Row& row : kCalls) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

}  // namespace ptxemu
