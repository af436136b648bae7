#include "io/tensor_writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace fa4::cli {
namespace {

void write_widened(const NamedTensor& tensor, int64_t count, const Sink& sink) {
  constexpr int64_t kPiece = 1 << 16;
  std::vector<float> wide(static_cast<size_t>(std::min(count, kPiece)));
  const auto* bits = static_cast<const uint16_t*>(tensor.data);
  for (int64_t at = 0; at < count; at += kPiece) {
    const int64_t n = std::min(kPiece, count - at);
    for (int64_t i = 0; i < n; ++i) wide[i] = fa4::internal::bf16_to_float(bits[at + i]);
    sink(wide.data(), static_cast<size_t>(n) * sizeof(float));
  }
}

std::string_view safetensors_dtype(FileType type) {
  switch (type) {
    case FileType::kF16: return "F16";
    case FileType::kBF16: return "BF16";
    default: return "F32";
  }
}

// The shape as a Python tuple, of any length. shape_text() would cut a long one.
std::string python_tuple(const std::vector<int64_t>& shape) {
  return fmt::format("({}{})", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
}

}  // namespace

void write_npy_header(std::string_view descr, const std::vector<int64_t>& shape, const Sink& sink) {
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}",
                                   descr, python_tuple(shape));
  // Version 1 says the header's length in two bytes, version 2 in four. The data begin at a
  // multiple of 64 bytes.
  const size_t width = header.size() + 64 <= UINT16_MAX ? 2 : 4;
  header.append(63 - (8 + width + header.size()) % 64, ' ');
  header += '\n';
  char preamble[12] = {'\x93', 'N', 'U', 'M', 'P', 'Y', static_cast<char>(width / 2), 0};
  for (size_t i = 0; i < width; ++i) preamble[8 + i] = static_cast<char>(header.size() >> (8 * i));
  sink(preamble, 8 + width);
  sink(header.data(), header.size());
}

void write_npy(const NamedTensor& tensor, const Sink& sink) {
  write_npy_header(tensor.type == FileType::kF16 ? "<f2" : "<f4", tensor.shape, sink);
  const int64_t count = count_elements(tensor.shape, size_of(tensor.type));
  if (tensor.type == FileType::kBF16) {
    write_widened(tensor, count, sink);
  } else {
    sink(tensor.data, static_cast<size_t>(count) * size_of(tensor.type));
  }
}

void write_safetensors(const std::vector<NamedTensor>& tensors, const Sink& sink) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  size_t at = 0;
  const auto bytes_of = [](const NamedTensor& t) {
    return static_cast<size_t>(count_elements(t.shape, size_of(t.type))) * size_of(t.type);
  };
  for (const NamedTensor& tensor : tensors) {
    header[std::string(tensor.name)] = {{"dtype", safetensors_dtype(tensor.type)},
                                        {"shape", tensor.shape},
                                        {"data_offsets", {at, at + bytes_of(tensor)}}};
    at += bytes_of(tensor);
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  unsigned char length[8];
  for (int i = 0; i < 8; ++i) length[i] = static_cast<unsigned char>(text.size() >> (8 * i));
  sink(length, sizeof length);
  sink(text.data(), text.size());
  for (const NamedTensor& tensor : tensors) sink(tensor.data, bytes_of(tensor));
}

}  // namespace fa4::cli
