#include "io/convert.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "failure.h"
#include "verify/rounding.h"

namespace fa4::cli {

using fa4::internal::DType;

namespace {

template <class T>
T load(const FileTensor& tensor, int64_t index) {
  T value;
  std::memcpy(&value, tensor.data + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

double load_double(const FileTensor& tensor, int64_t i) {
  switch (tensor.type) {
    case FileType::kF16: return fa4::internal::f16_to_float(load<uint16_t>(tensor, i));
    case FileType::kBits16:
    case FileType::kVoid16:
    case FileType::kBF16: return fa4::internal::bf16_to_float(load<uint16_t>(tensor, i));
    case FileType::kF32: return load<float>(tensor, i);
    case FileType::kF64: return load<double>(tensor, i);
    case FileType::kBits8:
    case FileType::kI32:
    case FileType::kI64: break;
  }
  throw bad_input(fmt::format("has dtype {}; accepted: f2, f4, f8, bf16", name_of(tensor.type)));
}

// The element type whose bits the file holds as they are.
std::optional<DType> stored_type(const FileTensor& tensor) {
  switch (tensor.type) {
    case FileType::kF16: return DType::kF16;
    case FileType::kBF16:
    case FileType::kBits16:
    case FileType::kVoid16: return DType::kBF16;
    case FileType::kF32: return DType::kF32;
    case FileType::kBits8: return DType::kE4M3;
    default: return std::nullopt;
  }
}

void check_bits(const FileTensor& tensor, std::optional<DType> asked) {
  const bool raw = tensor.type == FileType::kBits16 || tensor.type == FileType::kVoid16;
  if (raw && asked != DType::kBF16) {
    throw bad_input(fmt::format(
        "has dtype {0}, raw 16-bit patterns; accepted: {0} with --dtype bf16, f2, f4, f8",
        name_of(tensor.type)));
  }
  if (tensor.type == FileType::kBits8) {
    throw bad_input("has dtype u1; accepted: u1 of k and v with --kv-dtype e4m3, f2, f4, f8, bf16");
  }
}

}  // namespace

FileType file_type_of(DType dtype) {
  return dtype == DType::kF32   ? FileType::kF32
         : dtype == DType::kF16 ? FileType::kF16
                                : FileType::kBF16;
}

DType element_type(const FileTensor& tensor, std::optional<DType> asked) {
  check_bits(tensor, asked);
  if (tensor.type == FileType::kI32 || tensor.type == FileType::kI64) {
    throw bad_input(fmt::format("has dtype {}; accepted: f2, f4, f8, bf16", name_of(tensor.type)));
  }
  if (asked) return *asked;
  if (tensor.type == FileType::kF64) {
    throw bad_input("has dtype f8; accepted: f8 with --dtype f32, f16 or bf16");
  }
  return *stored_type(tensor);
}

std::vector<unsigned char> as_elements(const FileTensor& tensor, DType dtype) {
  const int64_t count = tensor.elements();
  std::vector<unsigned char> result(static_cast<size_t>(count) * fa4::internal::size_of(dtype));
  if (stored_type(tensor) == dtype) {
    if (count > 0) std::memcpy(result.data(), tensor.data, result.size());
    return result;
  }
  const fa4::internal::Rounding round(dtype);
  for (int64_t i = 0; i < count; ++i) {
    const float value = static_cast<float>(round(load_double(tensor, i)));
    fa4::internal::store_from_float(dtype, result.data(), i, value);
  }
  return result;
}

std::vector<double> as_doubles(const FileTensor& tensor, std::optional<DType> asked) {
  check_bits(tensor, asked);
  std::vector<double> result(static_cast<size_t>(tensor.elements()));
  for (size_t i = 0; i < result.size(); ++i) {
    result[i] = load_double(tensor, static_cast<int64_t>(i));
  }
  return result;
}

std::vector<float> as_floats(const FileTensor& tensor, std::optional<DType> asked) {
  const std::vector<double> wide = as_doubles(tensor, asked);
  for (size_t i = 0; i < wide.size(); ++i) {
    if (std::isfinite(wide[i]) && std::isinf(static_cast<float>(wide[i]))) {
      throw bad_input(fmt::format("entry {} is {}; accepted: numbers that f32 holds", i, wide[i]));
    }
  }
  return {wide.begin(), wide.end()};
}

std::vector<int64_t> as_integers(const FileTensor& tensor) {
  if (tensor.type != FileType::kI32 && tensor.type != FileType::kI64) {
    throw bad_input(fmt::format("has dtype {}; accepted: i4, i8", name_of(tensor.type)));
  }
  std::vector<int64_t> result(static_cast<size_t>(tensor.elements()));
  for (size_t i = 0; i < result.size(); ++i) {
    const int64_t at = static_cast<int64_t>(i);
    result[i] =
        tensor.type == FileType::kI32 ? load<int32_t>(tensor, at) : load<int64_t>(tensor, at);
  }
  return result;
}

std::vector<int32_t> as_indices(const FileTensor& tensor) {
  const std::vector<int64_t> wide = as_integers(tensor);
  for (size_t i = 0; i < wide.size(); ++i) {
    if (wide[i] < INT32_MIN || wide[i] > INT32_MAX) {
      throw bad_input(fmt::format("entry {} is {}; accepted: numbers of 32 bits", i, wide[i]));
    }
  }
  return {wide.begin(), wide.end()};
}

}  // namespace fa4::cli
