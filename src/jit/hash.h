// XXH3, 128 bits, as text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fa4::internal {

struct Hash128 {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const Hash128&) const = default;
};

Hash128 hash128(const void* data, size_t bytes);
std::string to_hex(const Hash128& hash);  // 32 digits

// Feeds on fields, each with its length, so that ("ab", "c") and ("a", "bc") differ.
class FieldHasher {
 public:
  FieldHasher& add(std::string_view field);
  std::string hex() const;

 private:
  std::string text_;
};

}  // namespace fa4::internal
