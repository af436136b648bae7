// PTX text, or a fat binary whose header says no more than there is: PTX comes out and is loaded,
// or an error says why not. A CUDA program's fat binaries have no other end than the one they name.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "ptxemu/exec/fatbin.h"
#include "ptxemu/machine.h"

namespace {

constexpr uint8_t kMagic[] = {0x50, 0xed, 0x55, 0xba};
constexpr size_t kHeaderBytes = 16, kHeaderBytesAt = 6, kBytesAt = 8;

// The header names no bytes after the image's end.
void bound(std::vector<uint8_t>* image) {
  uint16_t header = 0;
  uint64_t bytes = 0;
  std::memcpy(&header, image->data() + kHeaderBytesAt, sizeof header);
  header = static_cast<uint16_t>(std::clamp<size_t>(header, kHeaderBytes, image->size()));
  std::memcpy(image->data() + kHeaderBytesAt, &header, sizeof header);
  std::memcpy(&bytes, image->data() + kBytesAt, sizeof bytes);
  bytes = std::min<uint64_t>(bytes, image->size() - header);
  std::memcpy(image->data() + kBytesAt, &bytes, sizeof bytes);
}

void load(std::vector<uint8_t> image) {
  image.resize(std::max(image.size() + 4, kHeaderBytes));  // text ends in NUL
  if (std::equal(std::begin(kMagic), std::end(kMagic), image.begin())) {
    bound(&image);
  } else if (image[0] > 126) {
    return;  // what else an image may be
  }
  const std::vector<ptxemu::exec::FatEntry> entries = ptxemu::exec::read_image(image.data());
  std::string why;
  const ptxemu::exec::FatEntry* entry = ptxemu::exec::choose_ptx(entries, 100, &why);
  if (entry == nullptr) return;
  ptxemu::Machine machine({.device = "emulated:b200", .threads = 1});
  const auto module = machine.load(entry->text);
  for (const std::string& kernel : machine.kernels(module)) machine.parameter_sizes(module, kernel);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    load({data, data + size});
  } catch (const std::runtime_error&) {
  }
  return 0;
}
