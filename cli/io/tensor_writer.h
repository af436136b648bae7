// The bytes of tensor files that are written.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "io/tensor_file.h"

namespace fa4::cli {

struct NamedTensor {
  std::string_view name;
  FileType type = FileType::kF32;  // f2, bf16, f4
  std::vector<int64_t> shape;
  const void* data = nullptr;
};

// Called with consecutive pieces of the file.
using Sink = std::function<void(const void* data, size_t bytes)>;

void write_npy(const NamedTensor& tensor, const Sink& sink);  // bf16 is widened to f4
void write_npy_header(std::string_view descr, const std::vector<int64_t>& shape, const Sink& sink);
void write_safetensors(const std::vector<NamedTensor>& tensors, const Sink& sink);

}  // namespace fa4::cli
