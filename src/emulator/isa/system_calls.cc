#include "emulator/isa/system_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "emulator/machine/exec.h"

namespace ptxemu {

namespace {

template <class T>
T value_of(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

std::string read_string(const Exec& exec, int lane, uint64_t address) {
  std::string text;
  while (text.size() < 4096) {
    const auto c =
        static_cast<char>(*resolve(exec, lane, Space::kGeneric, address++, 1, AccessKind::kRead));
    if (c == 0) break;
    text += c;
  }
  return text;
}

// One conversion of a printf format, with its argument at `address`: 4 bytes for int and what is
// narrower, else 8, aligned to their size (how vprintf's buffer is laid out).
class Conversion {
 public:
  Conversion(const Exec& exec, int lane, uint64_t* address)
      : exec_(exec), lane_(lane), address_(address) {}

  std::string format(const std::string& spec) {
    const char kind = spec.back();
    char out[512];
    if (kind == 's') {
      const std::string text = read_string(exec_, lane_, next<uint64_t>());
      std::snprintf(out, sizeof out, spec.c_str(), text.c_str());
    } else if (std::strchr("eEfFgGaA", kind) != nullptr) {
      std::snprintf(out, sizeof out, spec.c_str(), next<double>());
    } else if (kind == 'p') {
      std::snprintf(out, sizeof out, "%#llx", static_cast<unsigned long long>(next<uint64_t>()));
    } else if (kind == 'c') {
      std::snprintf(out, sizeof out, spec.c_str(), next<int32_t>());
    } else if (spec.find('l') != std::string::npos || spec.find('z') != std::string::npos ||
               spec.find('j') != std::string::npos) {
      std::snprintf(out, sizeof out, spec.c_str(), next<int64_t>());
    } else {
      std::snprintf(out, sizeof out, spec.c_str(), next<int32_t>());
    }
    return out;
  }

 private:
  template <class T>
  T next() {
    *address_ = (*address_ + sizeof(T) - 1) / sizeof(T) * sizeof(T);
    const std::byte* at =
        resolve(exec_, lane_, Space::kGeneric, *address_, sizeof(T), AccessKind::kRead);
    *address_ += sizeof(T);
    return value_of<T>(at);
  }
  const Exec& exec_;
  int lane_;
  uint64_t* address_;
};

void call_vprintf(Exec& exec, int lane, std::span<std::byte* const> arguments, std::byte* result) {
  if (arguments.size() < 2) throw Trap{"call-arguments", "vprintf takes a format and a buffer"};
  const std::string format = read_string(exec, lane, value_of<uint64_t>(arguments[0]));
  uint64_t buffer = value_of<uint64_t>(arguments[1]);
  Conversion conversion(exec, lane, &buffer);
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out += format[i];
      continue;
    }
    const size_t end = format.find_first_of("%diouxXeEfFgGaAcsp", i + 1);
    if (end == std::string::npos) break;
    const std::string spec = format.substr(i, end - i + 1);
    out += spec.back() == '%' ? "%" : conversion.format(spec);
    i = end;
  }
  exec.launch->printed += out;
  const auto length = static_cast<int32_t>(out.size());
  if (result != nullptr) std::memcpy(result, &length, sizeof length);
}

// message, file, line, function, size of a character.
void call_assertfail(Exec& exec, int lane, std::span<std::byte* const> arguments, std::byte*) {
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
