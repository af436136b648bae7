#include "io/tensor_file.h"

#include <fmt/format.h>

#include <span>

#include "failure.h"

namespace fa4::cli {

size_t size_of(FileType type) {
  switch (type) {
    case FileType::kBits8: return 1;
    case FileType::kF16:
    case FileType::kBF16:
    case FileType::kBits16:
    case FileType::kVoid16: return 2;
    case FileType::kF32:
    case FileType::kI32: return 4;
    case FileType::kF64:
    case FileType::kI64: return 8;
  }
  return 0;
}

std::string_view name_of(FileType type) {
  switch (type) {
    case FileType::kF16: return "f2";
    case FileType::kBF16: return "bf16";
    case FileType::kF32: return "f4";
    case FileType::kF64: return "f8";
    case FileType::kBits8: return "u1";
    case FileType::kBits16: return "u2";
    case FileType::kVoid16: return "V2";
    case FileType::kI32: return "i4";
    case FileType::kI64: return "i8";
  }
  return "?";
}

int64_t FileTensor::elements() const { return count_elements(shape, size_of(type)); }

TensorPath parse_tensor_path(const std::string& text) {
  static constexpr std::string_view kMark = ".safetensors:";
  const size_t mark = text.rfind(kMark);
  if (mark != std::string::npos) {
    TensorPath path{text.substr(0, mark + kMark.size() - 1), text.substr(mark + kMark.size())};
    if (path.name.empty()) throw bad_input("names no tensor; accepted: FILE.safetensors:NAME");
    return path;
  }
  if (text.ends_with(".safetensors")) {
    throw bad_input("names no tensor; accepted: FILE.safetensors:NAME");
  }
  if (text.empty()) throw bad_input("is empty; accepted: FILE.npy or FILE.safetensors:NAME");
  return {text, ""};
}

FileTensor read_tensor(const std::string& text, Holds holds) {
  const TensorPath path = parse_tensor_path(text);
  auto file = std::make_shared<const MappedFile>(path.file);
  return path.in_safetensors() ? read_safetensors(std::move(file), path.name, holds)
                               : read_npy(std::move(file), holds);
}

std::string shape_text(const std::vector<int64_t>& shape) {
  constexpr size_t kMost = 8;  // no tensor here has more
  if (shape.size() > kMost) {
    const std::span<const int64_t> first(shape.data(), kMost);
    return fmt::format("({}, ...) of {} dimensions", fmt::join(first, ", "), shape.size());
  }
  return fmt::format("({}{})", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
}

int64_t count_elements(const std::vector<int64_t>& shape, size_t element_size) {
  int64_t bytes = static_cast<int64_t>(element_size);
  bool overflow = false, empty = false;
  for (const int64_t dim : shape) {
    if (dim < 0) return -1;
    if (dim == 0) {
      empty = true;
    } else {
      overflow |= __builtin_mul_overflow(bytes, dim, &bytes);
    }
  }
  if (overflow) return -1;
  return empty ? 0 : bytes / static_cast<int64_t>(element_size);
}

}  // namespace fa4::cli
