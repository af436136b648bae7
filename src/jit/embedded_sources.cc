#include "jit/embedded_sources.h"

#include "jit/hash.h"

namespace fa4::internal {

std::string hash_of(std::span<const EmbeddedFile> files) {
  FieldHasher hasher;
  for (const EmbeddedFile& file : files) hasher.add(file.name).add({file.text, file.bytes});
  return hasher.hex();
}

}  // namespace fa4::internal
