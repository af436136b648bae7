#include "emulator/machine/tensor_map.h"

#include <fmt/format.h>

#include <cstring>

namespace ptxemu {
namespace {

constexpr uint32_t kTf32Bit = 1u << 16;
constexpr uint32_t kIgnoredBits = 0xFu | 1u << 21;
constexpr uint32_t kAtom32Bit = 1u << 19;
constexpr uint32_t kKnownBits = 0x000FFFF0u;  // 4 to 19
constexpr uint64_t kStrideLimit = uint64_t{1} << 40;

struct TypeFacts {
  std::string_view name;
  uint32_t bytes;
};
constexpr TypeFacts kTypes[kTensorTypes] = {
    {"u8", 1},  {"u16", 2},     {"u32", 4}, {"s32", 4},  {"u64", 8},  {"s64", 8},     {"f16", 2},
    {"f32", 4}, {"f32_ftz", 4}, {"f64", 8}, {"bf16", 2}, {"tf32", 4}, {"tf32_ftz", 4}};

uint32_t swizzle_bits(TmaSwizzle swizzle) {
  if (swizzle != TmaSwizzle::k128BAtom32B) return static_cast<uint32_t>(swizzle) << 13;
  return static_cast<uint32_t>(TmaSwizzle::k128B) << 13 | kAtom32Bit;
}

std::string check_dimension(const TensorMap& map, uint32_t d) {
  const uint64_t align = map.interleave == Interleave::k32B ? 32 : 16;
  if (map.dims[d] < 1 || map.dims[d] > uint64_t{1} << 32) {
    return fmt::format("dims[{}] is {}: 1 to 2^32 are accepted", d, map.dims[d]);
  }
  if (map.box[d] < 1 || map.box[d] > 256) {
    return fmt::format("box[{}] is {}: 1 to 256 are accepted", d, map.box[d]);
  }
  if (map.element_strides[d] < 1 || map.element_strides[d] > 8) {
    return fmt::format("element_strides[{}] is {}: 1 to 8 are accepted", d, map.element_strides[d]);
  }
  if (d > 0 && (map.strides[d] % align != 0 || map.strides[d] >= kStrideLimit)) {
    return fmt::format("strides_bytes[{}] is {}: a multiple of {} below 2^40 is accepted", d - 1,
                       map.strides[d], align);
  }
  return "";
}

}  // namespace

uint32_t span_of(TmaSwizzle swizzle) {
  return swizzle == TmaSwizzle::k128BAtom32B ? 128 : 16u << static_cast<int>(swizzle);
}

uint32_t bytes_of(TensorType type) { return kTypes[static_cast<int>(type)].bytes; }
std::string_view name_of(TensorType type) { return kTypes[static_cast<int>(type)].name; }

uint64_t TensorMap::box_rows() const {
  uint64_t rows = 1;
  for (uint32_t d = 1; d < rank; ++d) rows *= box_elements(static_cast<int>(d));
  return rows;
}

std::array<std::byte, TensorMap::kBytes> TensorMap::encode() const {
  uint32_t w[kBytes / 4] = {};
  const bool is_tf32 = type >= TensorType::kTF32;
  // tf32 and tf32.ftz are written as f32 and f32.ftz with a bit of their own.
  const uint32_t code = static_cast<uint32_t>(type) - (is_tf32 ? 4 : 0);
  w[0] = static_cast<uint32_t>(address);
  w[1] = static_cast<uint32_t>(address >> 32);
  w[2] = (rank - 1) << 4 | code << 7 | static_cast<uint32_t>(interleave) << 11 |
         swizzle_bits(swizzle) | (nan_fill ? 1u << 15 : 0) | (is_tf32 ? kTf32Bit : 0) |
         l2_promotion << 17;
  for (uint32_t d = 0; d < rank; ++d) {
    w[8 + d] = static_cast<uint32_t>(dims[d] - 1);
    w[13] |= (element_strides[d] - 1) << (3 * d);
    if (d == 0) {
      w[13] |= (box[0] - 1) << 24;
      continue;
    }
    const uint64_t stride = strides[d] >> 4;
    w[2 + d] = static_cast<uint32_t>(stride);
    w[7] |= static_cast<uint32_t>(stride >> 32 & 0xF) << (4 * (d - 1));
    w[14] |= (box[d] - 1) << (8 * (d - 1));
  }
  std::array<std::byte, kBytes> bytes;
  std::memcpy(bytes.data(), w, kBytes);
  return bytes;
}

bool TensorMap::decode(const std::byte* bytes, TensorMap* map, std::string* why) {
  uint32_t w[16];
  std::memcpy(w, bytes, sizeof w);
  const uint32_t unknown = w[2] & ~kKnownBits & ~kIgnoredBits;
  if (unknown != 0) {
    *why = fmt::format(
        "word 2 of the tensor map is 0x{:08x}: what bits 0x{:x} mean is not known "
        "(swizzle atoms of 64 bytes, 4- and 6-bit types?)",
        w[2], unknown);
    return false;
  }
  *map = TensorMap{};
  map->address = w[0] | uint64_t{w[1]} << 32;
  map->rank = (w[2] >> 4 & 7) + 1;
  const uint32_t code = w[2] >> 7 & 15, interleave = w[2] >> 11 & 3;
  const bool is_tf32 = (w[2] & kTf32Bit) != 0;
  const bool wide_atoms = (w[2] & kAtom32Bit) != 0;
  if (wide_atoms && (w[2] >> 13 & 3) != static_cast<uint32_t>(TmaSwizzle::k128B)) {
    *why = "a tensor map with swizzle atoms of 32 bytes and no swizzle of 128";
    return false;
  }
  if (map->rank > kMaxRank || interleave > 2 || code > 10 || (is_tf32 && code != 7 && code != 8)) {
    *why = fmt::format(
        "no tensor map: rank {} (1 to 5), type {}{} (0 to 10), interleave {} "
        "(0 to 2)",
        map->rank, code, is_tf32 ? " with the tf32 bit" : "", interleave);
    return false;
  }
  map->type = static_cast<TensorType>(code + (is_tf32 ? 4 : 0));
  map->interleave = static_cast<Interleave>(interleave);
  map->swizzle = wide_atoms ? TmaSwizzle::k128BAtom32B : static_cast<TmaSwizzle>(w[2] >> 13 & 3);
  map->nan_fill = (w[2] >> 15 & 1) != 0;
  map->l2_promotion = w[2] >> 17 & 3;
  for (uint32_t d = 0; d < map->rank; ++d) {
    map->dims[d] = uint64_t{w[8 + d]} + 1;
    map->element_strides[d] = (w[13] >> (3 * d) & 7) + 1;
    map->box[d] = d == 0 ? (w[13] >> 24) + 1 : (w[14] >> (8 * (d - 1)) & 0xFF) + 1;
    if (d == 0) continue;
    map->strides[d] = (w[2 + d] | uint64_t{w[7] >> (4 * (d - 1)) & 0xF} << 32) << 4;
  }
  // The engine takes dimension 0 element by element unless it is interleaved.
  if (map->interleave == Interleave::kNone) map->element_strides[0] = 1;
  return true;
}

std::string TensorMap::check() const {
  if (rank < 1 || rank > kMaxRank) {
    return fmt::format("the rank is {}: 1 to {} dimensions are accepted", rank, kMaxRank);
  }
  if (interleave != Interleave::kNone && rank < 3) {
    return fmt::format("interleave with rank {}: 3 to 5 are accepted", rank);
  }
  const uint64_t align = interleave == Interleave::k32B ? 32 : 16;
  if (address % align != 0) {
    return fmt::format("address is 0x{:x}: a multiple of {} is accepted", address, align);
  }
  for (uint32_t d = 0; d < rank; ++d) {
    if (std::string why = check_dimension(*this, d); !why.empty()) return why;
  }
  const uint32_t inner = box[0] * bytes_of(type);
  if (interleave == Interleave::kNone && inner % 16 != 0) {
    return fmt::format("box[0] is {} elements of {} bytes: a multiple of 16 bytes is accepted",
                       box[0], bytes_of(type));
  }
  if (interleave == Interleave::kNone && swizzle != TmaSwizzle::kNone && inner > span_of(swizzle)) {
    return fmt::format(
        "box[0] is {} bytes wide: with a swizzle of {} bytes at most so many are "
        "accepted",
        inner, span_of(swizzle));
  }
  const bool is_integer = type <= TensorType::kS64;
  if (nan_fill && is_integer) {
    return fmt::format("oob is nan with dtype {}: only floating-point types are accepted",
                       name_of(type));
  }
  return "";
}

}  // namespace ptxemu
