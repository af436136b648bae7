// The kernels' sources, as files inside the library.
#pragma once

#include <span>
#include <string>

namespace fa4::internal {

struct EmbeddedFile {
  const char* name;  // as an #include names it: a path below src/, "kernels/ptx/wgmma.cuh"
  const char* text;  // ends in NUL
  size_t bytes;      // without that NUL
};

// Every header below src/kernels, sorted by name. The memory lives as long as the process.
std::span<const EmbeddedFile> embedded_sources();

// 32 hexadecimal digits that change when a name or a text changes.
std::string hash_of(std::span<const EmbeddedFile> files);

}  // namespace fa4::internal
