// CUtensorMap: the 128 bytes that describe a tensor to the copy engine ("Tensor-map"; PTX ISA
// 5.5.8). The layout was measured on an H200 by varying every argument of cuTensorMapEncodeTiled.
//
// u32 words: 0-1 address. 2: rank - 1 in bits 4-6, type 7-10, interleave 11-12, swizzle 13-14, NaN
// fill 15, tf32 16, L2 promotion 17-18, swizzle atoms of 32 bytes 19 (a guess: on an H200 the
// driver makes no map with such atoms); bits 0-3 and 21 carry nothing that a copy depends on. 3-6:
// strides of dimensions 1-4 in 16 bytes, low 32 bits; 7: bits 32-35 of those, a nibble each. 8-12:
// sizes - 1. 13: element strides - 1 in 3 bits each, box 0 - 1 in bits 24-31. 14: boxes 1-4 - 1, a
// byte each. The second 64 bytes are not read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ptxemu {

// In the order of the tensormap.replace table ("Data Movement and Conversion Instructions:
// tensormap.replace", table 33).
enum class TensorType : uint8_t {
  kU8,
  kU16,
  kU32,
  kS32,
  kU64,
  kS64,
  kF16,
  kF32,
  kF32Ftz,
  kF64,
  kBF16,
  kTF32,
  kTF32Ftz,
};
inline constexpr int kTensorTypes = 13;
uint32_t bytes_of(TensorType type);
std::string_view name_of(TensorType type);  // "bf16", "f32_ftz"

enum class Interleave : uint8_t { kNone, k16B, k32B };
// How a box lies in shared memory. k128BAtom32B moves pieces of 32 bytes, the others of 16.
enum class TmaSwizzle : uint8_t { kNone, k32B, k64B, k128B, k128BAtom32B };
// Bytes after which the pattern of a row begins anew; 16 for none.
uint32_t span_of(TmaSwizzle swizzle);

struct TensorMap {
  static constexpr int kBytes = 128;
  static constexpr int kMaxRank = 5;

  uint64_t address = 0;
  uint32_t rank = 1;
  TensorType type = TensorType::kU8;
  Interleave interleave = Interleave::kNone;
  TmaSwizzle swizzle = TmaSwizzle::kNone;
  bool nan_fill = false;
  uint32_t l2_promotion = 0;  // none, 64, 128, 256 bytes
  // Innermost first; dimensions past the rank are 1 long.
  std::array<uint64_t, kMaxRank> dims{1, 1, 1, 1, 1};     // 1 to 2^32
  std::array<uint64_t, kMaxRank> strides{0, 0, 0, 0, 0};  // bytes; [0] is not stored
  std::array<uint32_t, kMaxRank> box{1, 1, 1, 1, 1};
  std::array<uint32_t, kMaxRank> element_strides{1, 1, 1, 1, 1};

  // Elements that a box takes of dimension `d`.
  uint32_t box_elements(int d) const {
    return (box[d] + element_strides[d] - 1) / element_strides[d];
  }
  uint32_t row_bytes() const { return box_elements(0) * bytes_of(type); }
  uint64_t box_rows() const;

  std::array<std::byte, kBytes> encode() const;
  // False when a field has a value that nobody has seen; *why then says which and what is known.
  static bool decode(const std::byte* bytes, TensorMap* map, std::string* why);
  // What cuTensorMapEncodeTiled would refuse: names the argument, its value and what is accepted;
  // empty when nothing.
  std::string check() const;
};

}  // namespace ptxemu
