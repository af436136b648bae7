#include "emulator/machine/matrix_descriptor.h"

#include <fmt/format.h>

#include "emulator/observe/finding.h"

namespace ptxemu {

namespace {

[[noreturn]] void refuse(const char* operand, uint64_t bits, const std::string& why) {
  throw Trap{"matrix-descriptor",
             fmt::format("descriptor of {}, {:#018x}: {}", operand, bits, why)};
}

uint32_t field(uint64_t bits, int first, int count) {
  return static_cast<uint32_t>(bits >> first) & ((1u << count) - 1);
}

MatrixDescriptor common_fields(uint64_t bits, const char* operand) {
  if (field(bits, 14, 2) != 0) refuse(operand, bits, "bits 14-15 are set; accepted: 0");
  if (field(bits, 30, 2) != 0) refuse(operand, bits, "bits 30-31 are set; accepted: 0");
  if (field(bits, 49, 3) != 0) {
    refuse(operand, bits, "a matrix base offset (bits 49-51) is not supported; accepted: 0");
  }
  MatrixDescriptor matrix;
  matrix.start = field(bits, 0, 14) << 4;
  matrix.leading = field(bits, 16, 14) << 4;
  matrix.stride = field(bits, 32, 14) << 4;
  return matrix;
}

}  // namespace

MatrixDescriptor decode_tcgen05_descriptor(uint64_t bits, const char* operand) {
  MatrixDescriptor matrix = common_fields(bits, operand);
  if (field(bits, 46, 3) != 1) {
    refuse(operand, bits,
           fmt::format("bits 46-48 are {}; accepted: the constant 1", field(bits, 46, 3)));
  }
  if (field(bits, 52, 1) != 0) {
    refuse(operand, bits, "an absolute leading dimension (bit 52) is not supported; accepted: 0");
  }
  if (field(bits, 53, 8) != 0) refuse(operand, bits, "bits 53-60 are set; accepted: 0");
  switch (field(bits, 61, 3)) {
    case 0: matrix.swizzle = MatrixSwizzle::kNone; break;
    case 1: matrix.swizzle = MatrixSwizzle::k128Atom32; break;
    case 2: matrix.swizzle = MatrixSwizzle::k128; break;
    case 4: matrix.swizzle = MatrixSwizzle::k64; break;
    case 6: matrix.swizzle = MatrixSwizzle::k32; break;
    default:
      refuse(operand, bits,
             fmt::format("swizzling mode {} (bits 61-63); accepted: 0, 1, 2, 4, 6",
                         field(bits, 61, 3)));
  }
  return matrix;
}

MatrixDescriptor decode_wgmma_descriptor(uint64_t bits, const char* operand) {
  MatrixDescriptor matrix = common_fields(bits, operand);
  if (field(bits, 46, 3) != 0) refuse(operand, bits, "bits 46-48 are set; accepted: 0");
  if (field(bits, 52, 10) != 0) refuse(operand, bits, "bits 52-61 are set; accepted: 0");
  constexpr MatrixSwizzle kModes[] = {MatrixSwizzle::kNone, MatrixSwizzle::k128, MatrixSwizzle::k64,
                                      MatrixSwizzle::k32};
  matrix.swizzle = kModes[field(bits, 62, 2)];
  return matrix;
}

void check_layout(const MatrixDescriptor& matrix, Major major, ElementType type,
                  const char* operand) {
  const bool is_32_bit = type == ElementType::kTF32;
  const bool atom32 = matrix.swizzle == MatrixSwizzle::k128Atom32;
  if (major == Major::kMN && is_32_bit && !atom32) {
    throw Trap{"matrix-descriptor",
               fmt::format("{} is transposed and of 32-bit elements; accepted: 128-byte swizzling "
                           "with 32-byte atoms",
                           operand)};
  }
  if (atom32 && (major == Major::kK || !is_32_bit)) {
    throw Trap{"matrix-descriptor",
               fmt::format("128-byte swizzling with 32-byte atoms for {}; accepted: transposed "
                           "matrices of 32-bit elements",
                           operand)};
  }
  if (major == Major::kMN && bits_of(type) < 8) {
    throw Trap{"matrix-descriptor",
               fmt::format("{} is transposed and of {}-bit elements, which is not supported",
                           operand, bits_of(type))};
  }
}

}  // namespace ptxemu
