// Tensors in files: FILE.npy, or FILE.safetensors:NAME (the last ".safetensors:" splits).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "io/mapped_file.h"

namespace fa4::cli {

// kBits8 is a byte (npy u1; safetensors U8 and F8_E4M3): e4m3 when the user says so.
// kBits16 and kVoid16 are 16-bit patterns without a type of their own (npy u2 and V2): bf16 when
// the user says so.
enum class FileType { kF16, kBF16, kF32, kF64, kBits8, kBits16, kVoid16, kI32, kI64 };
size_t size_of(FileType type);
std::string_view name_of(FileType type);  // "f2", "bf16", "f4", "f8", "u1", "u2", "i4", "i8"

// A tensor where it lies in its file: C order, little endian, maybe unaligned.
struct FileTensor {
  FileType type = FileType::kF32;
  std::vector<int64_t> shape;
  const unsigned char* data = nullptr;
  std::shared_ptr<const MappedFile> file;
  int64_t elements() const;
};

// How a tensor is named on the command line.
inline constexpr const char* kTensorFile = "FILE.npy|FILE.safetensors:NAME";

// Where a tensor is, or will be.
struct TensorPath {
  std::string file;
  std::string name;  // in a safetensors file; empty: .npy
  bool in_safetensors() const { return !name.empty(); }
};

// Throws Failure{kBadInput} for "x.safetensors" without a name.
TensorPath parse_tensor_path(const std::string& text);

// What a tensor is read for: a file of any other type is refused with the types of these.
enum class Holds { kNumbers, kIndices };

// Checks every size in the file against the file's own before it is believed.
// Throws Failure{kBadInput} with what is wrong and what is accepted.
FileTensor read_tensor(const std::string& path, Holds holds = Holds::kNumbers);
FileTensor read_npy(std::shared_ptr<const MappedFile> file, Holds holds);
FileTensor read_safetensors(std::shared_ptr<const MappedFile> file, const std::string& name,
                            Holds holds);

// A .npy of any fixed-size little-endian elements, taken as bytes.
struct NpyArray {
  std::string descr;  // numpy's: "<f4", "|u1"
  size_t item_bytes = 0;
  std::vector<int64_t> shape;
  const unsigned char* data = nullptr;
  std::shared_ptr<const MappedFile> file;
};
// Throws as read_npy does.
NpyArray read_npy_array(std::shared_ptr<const MappedFile> file);

// For a message: "(2, 3)", "(4,)", and of more than eight dimensions "(1, 2, ...) of 9 dimensions".
std::string shape_text(const std::vector<int64_t>& shape);
// Elements of `shape`, or -1 when they and `element_size` overflow 63 bits.
int64_t count_elements(const std::vector<int64_t>& shape, size_t element_size);

}  // namespace fa4::cli
