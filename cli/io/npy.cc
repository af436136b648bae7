// The .npy format, versions 1 to 3 (numpy.lib.format).
#include <fmt/format.h>

#include <cctype>
#include <cstring>
#include <limits>
#include <optional>

#include "failure.h"
#include "io/tensor_file.h"

namespace fa4::cli {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

// The header: a Python dictionary of three literals.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  void parse() {
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      const bool again = (key == "descr" && descr) || (key == "fortran_order" && fortran_order) ||
                         (key == "shape" && shape);
      if (again) {
        throw bad_input(fmt::format("gives {} twice in its .npy header; accepted: once", key));
      }
      if (key == "descr") {
        descr = string();
      } else if (key == "fortran_order") {
        fortran_order = boolean();
      } else if (key == "shape") {
        shape = tuple();
      } else {
        fail();
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (at_ != text_.size() || !descr || !fortran_order || !shape) fail();
  }

  std::optional<std::string> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<int64_t>> shape;

 private:
  [[noreturn]] static void fail() {
    throw bad_input(
        "has a .npy header that cannot be read; accepted: the keys descr (a string, no "
        "structure), fortran_order and shape");
  }
  void skip_space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool accept(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail();
  }
  std::string string() {
    const char quote = accept('\'') ? '\'' : '"';
    if (quote == '"') expect('"');
    const size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) fail();
    const std::string value(text_.substr(at_, end - at_));
    at_ = end + 1;
    return value;
  }
  bool boolean() {
    skip_space();
    for (const bool value : {true, false}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return value;
      }
    }
    fail();
  }
  std::vector<int64_t> tuple() {
    std::vector<int64_t> dims;
    expect('(');
    while (!accept(')')) {
      dims.push_back(integer());
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return dims;
  }
  int64_t integer() {
    skip_space();
    int64_t value = 0;
    const size_t begin = at_;
    if (accept('-')) refuse_size(begin);
    for (; at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])); ++at_) {
      if (__builtin_mul_overflow(value, 10, &value) ||
          __builtin_add_overflow(value, text_[at_] - '0', &value)) {
        refuse_size(begin);
      }
    }
    if (at_ == begin) fail();
    return value;
  }
  [[noreturn]] void refuse_size(size_t begin) const {
    const std::string_view rest = text_.substr(begin);
    const size_t end = rest.find_first_not_of("-0123456789");
    throw bad_input(fmt::format("has a size of {} in its shape; accepted: 0 to {}",
                                rest.substr(0, end), std::numeric_limits<int64_t>::max()));
  }

  std::string_view text_;
  size_t at_ = 0;
};

FileType parse_descr(const std::string& descr, Holds holds) {
  const std::string_view accepted =
      holds == Holds::kIndices
          ? "accepted: little-endian i4, i8"
          : "accepted: little-endian f2, f4, f8, u2 or V2 for bf16, and u1 for e4m3";
  if (descr == "<f2") return FileType::kF16;
  if (descr == "<f4") return FileType::kF32;
  if (descr == "<f8") return FileType::kF64;
  if (descr == "<u2") return FileType::kBits16;
  if (descr == "<V2" || descr == "|V2") return FileType::kVoid16;
  if (descr == "|u1" || descr == "<u1") return FileType::kBits8;
  if (descr == "<i4") return FileType::kI32;
  if (descr == "<i8") return FileType::kI64;
  if (descr.starts_with('>')) {
    throw bad_input(fmt::format("is big-endian (dtype {}); {}", descr, accepted));
  }
  throw bad_input(fmt::format("has dtype {}; {}", descr, accepted));
}

// Where the header's text begins and how long it says it is.
struct Preamble {
  size_t begin = 0;
  size_t length = 0;
};

Preamble read_preamble(const MappedFile& file) {
  if (file.size() < 10 || std::memcmp(file.data(), kMagic.data(), kMagic.size()) != 0) {
    throw bad_input("is not a .npy file; accepted: FILE.npy or FILE.safetensors:NAME");
  }
  const int major = file.data()[6], minor = file.data()[7];
  if (major < 1 || major > 3 || minor != 0) {
    throw bad_input(fmt::format("is .npy version {}.{}; accepted: 1.0, 2.0, 3.0", major, minor));
  }
  const size_t width = major == 1 ? 2 : 4;
  size_t length = 0;
  if (file.size() < 8 + width)
    throw bad_input("is truncated inside the .npy header; accepted: a whole FILE.npy");
  for (size_t i = 0; i < width; ++i) length |= static_cast<size_t>(file.data()[8 + i]) << (8 * i);
  if (length > file.size() - 8 - width) {
    throw bad_input(
        fmt::format("is truncated: its .npy header says it is {} bytes long, the file holds {} "
                    "after it begins; "
                    "accepted: a whole FILE.npy",
                    length, file.size() - 8 - width));
  }
  return {8 + width, length};
}

// Bytes of one element of a plain type: a letter of numpy's and its size.
size_t item_bytes_of(const std::string& descr) {
  static constexpr std::string_view kAccepted =
      "accepted: little-endian f2, f4, f8, i1 to i8, u1 to u8, b1, V2";
  if (descr.starts_with('>')) {
    throw bad_input(fmt::format("is big-endian (dtype {}); {}", descr, kAccepted));
  }
  static constexpr std::string_view kPlain[] = {"f2", "f4", "f8", "i1", "i2", "i4", "i8",
                                                "u1", "u2", "u4", "u8", "b1", "V2"};
  const bool marked = descr.starts_with('<') || descr.starts_with('|');
  for (const std::string_view plain : kPlain) {
    if (marked && std::string_view(descr).substr(1) == plain) return plain[1] - '0';
  }
  throw bad_input(fmt::format("has dtype {}; {}", descr, kAccepted));
}

// What a header says; `item_bytes` judges its dtype.
template <class ItemBytes>
NpyArray read_array(std::shared_ptr<const MappedFile> file, const ItemBytes& item_bytes) {
  const Preamble preamble = read_preamble(*file);
  HeaderParser header(
      {reinterpret_cast<const char*>(file->data()) + preamble.begin, preamble.length});
  header.parse();
  NpyArray array;
  array.descr = *header.descr;
  array.item_bytes = item_bytes(array.descr);
  array.shape = *header.shape;
  if (*header.fortran_order) {
    throw bad_input("is in Fortran order; accepted: C order (numpy.ascontiguousarray)");
  }
  const size_t available = file->size() - preamble.begin - preamble.length;
  const int64_t elements = count_elements(array.shape, array.item_bytes);
  const size_t wanted = elements < 0 ? 0 : static_cast<size_t>(elements) * array.item_bytes;
  if (elements < 0 || wanted != available) {
    throw bad_input(fmt::format(
        "{}: its header says shape {} of {} ({} bytes), the file holds {} bytes of data; accepted: "
        "as many as the header says",
        elements >= 0 && wanted < available ? "is longer than its header says" : "is truncated",
        shape_text(array.shape), array.descr.substr(1),
        elements < 0 ? "more than 2^63" : std::to_string(wanted), available));
  }
  array.data = file->data() + preamble.begin + preamble.length;
  array.file = std::move(file);
  return array;
}

}  // namespace

NpyArray read_npy_array(std::shared_ptr<const MappedFile> file) {
  return read_array(std::move(file), item_bytes_of);
}

FileTensor read_npy(std::shared_ptr<const MappedFile> file, Holds holds) {
  FileType type{};
  NpyArray array = read_array(std::move(file), [&](const std::string& descr) {
    type = parse_descr(descr, holds);
    return size_of(type);
  });
  return {type, std::move(array.shape), array.data, std::move(array.file)};
}

}  // namespace fa4::cli
