// The PTX in what nvcc and ptxas put into programs: fat binaries, PTX text, machine code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ptxemu::exec {

struct FatEntry {
  enum class Kind { kPtx, kMachineCode, kOther };
  Kind kind = Kind::kOther;
  uint32_t architecture = 0;  // 90, 100
  std::string text;           // of PTX
};

// `image` is what __cudaRegisterFatBinary (a wrapper), cuModuleLoadData or cuLibraryLoadData get: a
// wrapper, a fat binary, an ELF file, or PTX text that ends in NUL. Throws std::runtime_error.
std::vector<FatEntry> read_image(const void* image);

// The PTX that a device of compute capability `architecture` (90, 100) runs, the newest it can; in
// `why` why there is none, when null is returned.
const FatEntry* choose_ptx(const std::vector<FatEntry>& entries, uint32_t architecture,
                           std::string* why);

// One LZ4 block. Throws std::runtime_error when it is broken.
std::string decompress_lz4(const unsigned char* data, size_t bytes, size_t uncompressed);

}  // namespace ptxemu::exec
