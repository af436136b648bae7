// Layouts of matrices in shared memory against the exact layouts that the manual prints
// ("Canonical Layouts", PTX ISA 9.7.16.3.3), and the fields of both descriptors.
#include "emulator/machine/matrix_descriptor.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "emulator/machine/instruction_descriptor.h"
#include "emulator/observe/finding.h"

namespace ptxemu {
namespace {

// A layout as the manual writes it: shapes and strides (in elements) of one coordinate.
using Modes = std::vector<std::pair<uint32_t, uint32_t>>;

uint32_t at(const Modes& modes, uint32_t coordinate) {
  uint32_t offset = 0;
  for (const auto& [shape, stride] : modes) {
    offset += coordinate % shape * stride;
    coordinate /= shape;
  }
  return offset;
}

// Swizzle<bits, 4, 3> of a byte offset.
uint32_t swizzle(uint32_t offset, uint32_t bits) {
  return offset ^ ((offset & (((1u << bits) - 1) << 7)) >> 3);
}

void expect_layout(const MatrixDescriptor& matrix, Major major, uint32_t element_bytes,
                   uint32_t mns, uint32_t ks, const Modes& mn_modes, const Modes& k_modes,
                   uint32_t bits) {
  const int chunk = static_cast<int>(16 / element_bytes);
  for (uint32_t mn = 0; mn < mns; ++mn) {
    for (uint32_t k = 0; k < ks; ++k) {
      const uint32_t in_chunk = (major == Major::kK ? k : mn) % static_cast<uint32_t>(chunk);
      const uint32_t got = chunk_offset(matrix, major, chunk, mn, k) + in_chunk * element_bytes;
      const uint32_t want =
          swizzle(matrix.start + (at(mn_modes, mn) + at(k_modes, k)) * element_bytes, bits);
      ASSERT_EQ(got, want) << "mn " << mn << " k " << k;
    }
  }
}

TEST(MatrixDescriptor, LayoutsOfTheManual) {
  const uint32_t start = 0x2000;
  // K-major, no swizzling, tf32: ((8,2),(4,4)):((4,32),(1,64)).
  expect_layout({start, 64 * 4, 32 * 4, MatrixSwizzle::kNone}, Major::kK, 4, 16, 16,
                {{8, 4}, {2, 32}}, {{4, 1}, {4, 64}}, 0);
  // K-major, 32B, tf32: Swizzle<1,4,3> o ((8,2),(4,4)):((8,64),(1,4)); two chunks are an atom.
  expect_layout({start, 16, 64 * 4, MatrixSwizzle::k32}, Major::kK, 4, 16, 8, {{8, 8}, {2, 64}},
                {{4, 1}, {2, 4}}, 1);
  // MN-major, no swizzling, bf16: ((8,1,2),(8,2)):((1,8,64),(8,128)).
  expect_layout({start, 128 * 2, 64 * 2, MatrixSwizzle::kNone}, Major::kMN, 2, 16, 16,
                {{8, 1}, {2, 64}}, {{8, 8}, {2, 128}}, 0);
  // MN-major, 32B, bf16: Swizzle<1,4,3> o ((8,2,2),(8,2)):((1,8,128),(16,256)).
  expect_layout({start, 128 * 2, 256 * 2, MatrixSwizzle::k32}, Major::kMN, 2, 32, 16,
                {{8, 1}, {2, 8}, {2, 128}}, {{8, 16}, {2, 256}}, 1);
  // MN-major, 64B, bf16: Swizzle<2,4,3> o ((8,4,2),(8,2)):((1,8,256),(32,512)).
  expect_layout({start, 256 * 2, 512 * 2, MatrixSwizzle::k64}, Major::kMN, 2, 64, 16,
                {{8, 1}, {4, 8}, {2, 256}}, {{8, 32}, {2, 512}}, 2);
}

// 128B, both majors, from the canonical forms: ((8,m),(T,2k)):((8T,SBO),(1,T)) and
// ((T,8,m),(8,k)):((1,T,LBO),(8T,SBO)), T = 8.
TEST(MatrixDescriptor, LayoutsOfThe128ByteSwizzle) {
  expect_layout({0x4000, 16, 1024, MatrixSwizzle::k128}, Major::kK, 2, 64, 64, {{8, 64}, {8, 512}},
                {{8, 1}, {8, 8}}, 3);
  expect_layout({0x4000, 2048, 1024, MatrixSwizzle::k128}, Major::kMN, 2, 128, 16,
                {{8, 1}, {8, 8}, {2, 1024}}, {{8, 64}, {2, 512}}, 3);
  // A start inside the atom: K advanced by 32 bytes.
  const MatrixDescriptor advanced = {0x4020, 16, 1024, MatrixSwizzle::k128};
  EXPECT_EQ(chunk_offset(advanced, Major::kK, 8, 1, 0), 0x40B0u);  // row 1: chunk 2 at 2 ^ 1
}

TEST(MatrixDescriptor, FieldsOfTcgen05) {
  const uint64_t bits = (uint64_t{2} << 61) | (uint64_t{1} << 46) | (uint64_t{64} << 32) |
                        (uint64_t{1} << 16) | (0x8400 >> 4);
  const MatrixDescriptor matrix = decode_tcgen05_descriptor(bits, "A");
  EXPECT_EQ(matrix.start, 0x8400u);
  EXPECT_EQ(matrix.leading, 16u);
  EXPECT_EQ(matrix.stride, 1024u);
  EXPECT_EQ(matrix.swizzle, MatrixSwizzle::k128);
  EXPECT_EQ(decode_tcgen05_descriptor((uint64_t{6} << 61) | (uint64_t{1} << 46), "A").swizzle,
            MatrixSwizzle::k32);
}

TEST(MatrixDescriptor, FieldsOfWgmma) {
  const uint64_t bits = (uint64_t{3} << 62) | (uint64_t{16} << 32) | (0x400 >> 4);
  const MatrixDescriptor matrix = decode_wgmma_descriptor(bits, "B");
  EXPECT_EQ(matrix.start, 0x400u);
  EXPECT_EQ(matrix.stride, 256u);
  EXPECT_EQ(matrix.swizzle, MatrixSwizzle::k32);
}

template <class F>
std::string refusal(F f) {
  try {
    f();
  } catch (const Trap& trap) {
    return trap.message;
  }
  return "accepted";
}

void expect_refusal(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(MatrixDescriptor, RefusesWhatItDoesNotKnow) {
  const uint64_t good = (uint64_t{2} << 61) | (uint64_t{1} << 46);
  const auto tcgen05 = [](uint64_t bits) {
    return refusal([&] { decode_tcgen05_descriptor(bits, "A"); });
  };
  EXPECT_EQ(tcgen05(good), "accepted");
  expect_refusal(tcgen05(good ^ (uint64_t{1} << 46)), "bits 46-48");
  expect_refusal(tcgen05(good | (uint64_t{1} << 49)), "base offset");
  expect_refusal(tcgen05(good | (uint64_t{1} << 52)), "bit 52");
  expect_refusal(tcgen05(good | (uint64_t{1} << 60)), "bits 53-60");
  expect_refusal(tcgen05(good | (uint64_t{1} << 61)), "swizzling mode 3");
  expect_refusal(tcgen05(good | (1u << 14)), "bits 14-15");
  expect_refusal(refusal([&] { decode_wgmma_descriptor(uint64_t{1} << 46, "B"); }), "bits 46-48");
  expect_refusal(refusal([&] { check_layout({}, Major::kMN, ElementType::kTF32, "A"); }),
                 "32-byte atoms");
  EXPECT_EQ(
      refusal([&] {
        check_layout({0, 0, 0, MatrixSwizzle::k128Atom32}, Major::kMN, ElementType::kTF32, "A");
      }),
      "accepted");
}

// Table 42: f16 kind, f32 accumulators, bf16, B transposed, N 64, M 128.
TEST(InstructionDescriptor, Fields) {
  const uint32_t bits =
      1u << 4 | 1u << 7 | 1u << 10 | 1u << 16 | (64u / 8) << 17 | (128u / 16) << 24;
  const InstructionDescriptor d = decode_instruction_descriptor(bits, MmaKind::kF16, 1);
  EXPECT_EQ(d.m, 128);
  EXPECT_EQ(d.n, 64);
  EXPECT_EQ(d.k, 16);
  EXPECT_EQ(d.a, ElementType::kBF16);
  EXPECT_EQ(d.b, ElementType::kBF16);
  EXPECT_EQ(d.d, Accumulator::kF32);
  EXPECT_FALSE(d.transpose_a);
  EXPECT_TRUE(d.transpose_b);
  EXPECT_FALSE(d.negate_a || d.negate_b);
}

std::string idesc_refusal(uint32_t bits, MmaKind kind, int cta_group) {
  return refusal([&] { decode_instruction_descriptor(bits, kind, cta_group); });
}

TEST(InstructionDescriptor, RefusalsNameTheField) {
  const auto shape = [](uint32_t m, uint32_t n) {
    return 1u << 4 | (n / 8) << 17 | (m / 16) << 24;
  };
  const MmaKind f16 = MmaKind::kF16;
  EXPECT_EQ(idesc_refusal(shape(128, 8), f16, 1), "accepted");
  EXPECT_EQ(idesc_refusal(shape(64, 248), f16, 1), "accepted");
  EXPECT_EQ(idesc_refusal(shape(256, 256), f16, 2), "accepted");
  expect_refusal(idesc_refusal(shape(256, 64), f16, 1), "M (bits 24-28, times 16) is 256");
  expect_refusal(idesc_refusal(shape(64, 64), f16, 2), "accepted: 128, 256");
  expect_refusal(idesc_refusal(shape(128, 24), f16, 2), "N (bits 17-22, times 8) is 24");
  expect_refusal(idesc_refusal(shape(128, 0), f16, 1), "N (");
  expect_refusal(idesc_refusal(shape(128, 64) | 4, f16, 1), "sparsity");
  expect_refusal(idesc_refusal(shape(128, 64) | 1u << 30, f16, 1), "maximum shift");
  expect_refusal(idesc_refusal(shape(128, 64) | 2u << 7, f16, 1), "atype");
  expect_refusal(idesc_refusal(shape(128, 64), MmaKind::kTF32, 1), "2 (tf32)");
  expect_refusal(idesc_refusal(shape(128, 64) | 8, f16, 1), "saturate");
  expect_refusal(idesc_refusal(1u << 7 | 1u << 10 | (64u / 8) << 17 | (128u / 16) << 24, f16, 1),
                 "dtype");
  // Transposed 8-bit B: N in steps of 16 (Table 52).
  expect_refusal(idesc_refusal(shape(128, 24) | 1u << 16, MmaKind::kF8F6F4, 1), "steps of 16");
  EXPECT_EQ(idesc_refusal(shape(128, 24), MmaKind::kF8F6F4, 1), "accepted");
  // Integers: steps of 16 above 32.
  const uint32_t i8 = 2u << 4;
  EXPECT_EQ(idesc_refusal(i8 | 3u << 17 | 8u << 24, MmaKind::kI8, 1), "accepted");
  expect_refusal(idesc_refusal(i8 | 5u << 17 | 8u << 24, MmaKind::kI8, 1), "N (");
}

}  // namespace
}  // namespace ptxemu
