#include "jit/hash.h"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

namespace fa4::internal {

Hash128 hash128(const void* data, size_t bytes) {
  const XXH128_hash_t hash = XXH3_128bits(data, bytes);
  return {hash.low64, hash.high64};
}

std::string to_hex(const Hash128& hash) {
  return fmt::format("{:016x}{:016x}", hash.high, hash.low);
}

FieldHasher& FieldHasher::add(std::string_view field) {
  text_ += fmt::format("{}:", field.size());
  text_ += field;
  return *this;
}

std::string FieldHasher::hex() const { return to_hex(hash128(text_.data(), text_.size())); }

}  // namespace fa4::internal
