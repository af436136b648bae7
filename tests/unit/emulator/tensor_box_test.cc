// Boxes of tensors in shared memory, against what an H200 (driver 580.159) left there.
#include "emulator/machine/tensor_box.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "emulator/observe/finding.h"

namespace ptxemu {
namespace {

constexpr std::byte kUntouched{0xAB};

class TensorBoxTest : public testing::Test {
 protected:
  TensorBoxTest() : memory_(uint64_t{1} << 24) {}
  // A 2-D tensor of `type`, filled with `data`.
  template <class T>
  TensorMap make(TensorType type, uint64_t columns, const std::vector<T>& data, uint32_t box0,
                 uint32_t box1, TmaSwizzle swizzle = TmaSwizzle::kNone) {
    TensorMap map;
    map.address = memory_.allocate(data.size() * sizeof(T), "tensor");
    std::memcpy(memory_.find(map.address, data.size() * sizeof(T)), data.data(),
                data.size() * sizeof(T));
    map.rank = 2;
    map.type = type;
    map.swizzle = swizzle;
    map.dims = {columns, data.size() / columns, 1, 1, 1};
    map.strides[1] = columns * sizeof(T);
    map.box = {box0, box1, 1, 1, 1};
    return map;
  }
  std::vector<std::byte> load(const TensorMap& map, int32_t x, int32_t y, size_t bytes) {
    std::vector<std::byte> shared(bytes, kUntouched);
    const int32_t start[] = {x, y};
    const TensorBox box(map, start, memory_);
    box.load(0, box.rows() / 2, shared.data(), 0);
    box.load(box.rows() / 2, box.rows(), shared.data(), 0);
    return shared;
  }
  GlobalMemory memory_;
};

TEST_F(TensorBoxTest, AtAddressZeroIsNotOutsideTheTensor) {
  TensorMap map = make(TensorType::kU32, 16, std::vector<uint32_t>(16 * 8), 16, 1);
  map.address = 0;
  const int32_t start[] = {0, 0};
  EXPECT_THROW(TensorBox(map, start, memory_), Trap);
}

std::vector<uint8_t> chunk_numbers(size_t bytes) {
  std::vector<uint8_t> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<uint8_t>(i / 16);
  return data;
}

// The first bytes of the 16-byte chunks of shared memory, as captured.
struct Layout {
  uint32_t inner;  // bytes of a box row
  TmaSwizzle swizzle;
  std::vector<uint8_t> chunks;
};

TEST_F(TensorBoxTest, SwizzlesAndTheirGapsLieAsOnTheHardware) {
  constexpr uint8_t x = 0xAB;
  const Layout layouts[] = {
      {128, TmaSwizzle::kNone, {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,
                                10, 11, 12, 13, 14, 15, 16, 17, 18, 19}},
      {128, TmaSwizzle::k128B, {0,  1,  2,  3,  4,  5,  6,  7,  9,  8,  11, 10, 13, 12, 15, 14,
                                18, 19, 16, 17, 22, 23, 20, 21, 27, 26, 25, 24, 31, 30, 29, 28}},
      {64, TmaSwizzle::k64B, {0,  1,  2,  3,  4,  5,  6,  7,  9,  8,  11, 10, 13, 12, 15, 14,
                              18, 19, 16, 17, 22, 23, 20, 21, 27, 26, 25, 24, 31, 30, 29, 28}},
      {32, TmaSwizzle::k32B, {0,  1,  2,  3,  4,  5,  6,  7,  9,  8,  11, 10, 13, 12, 15, 14,
                              16, 17, 18, 19, 20, 21, 22, 23, 25, 24, 27, 26, 29, 28, 31, 30}},
      {64, TmaSwizzle::k128B, {0,  1,  2, 3, x,  x,  x,  x,  5,  4,  7,  6,  x,  x,  x,  x,
                               10, 11, 8, 9, x,  x,  x,  x,  15, 14, 13, 12, x,  x,  x,  x,
                               x,  x,  x, x, 16, 17, 18, 19, x,  x,  x,  x,  21, 20, 23, 22}},
      {32, TmaSwizzle::k64B, {0, 1, x, x, 2, 3, x,  x,  5, 4, x,  x,  7, 6, x,  x,
                              x, x, 8, 9, x, x, 10, 11, x, x, 13, 12, x, x, 15, 14}},
      {16, TmaSwizzle::k32B, {0, x, 1, x, 2, x, 3, x, x, 4, x, 5, x, 6, x, 7, 8, x, 9, x}},
  };
  for (const Layout& layout : layouts) {
    const TensorMap map = make(TensorType::kU8, layout.inner, chunk_numbers(4096), layout.inner,
                               512 / layout.inner, layout.swizzle);
    const auto shared = load(map, 0, 0, 4096);
    for (size_t i = 0; i < layout.chunks.size(); ++i) {
      EXPECT_EQ(static_cast<uint8_t>(shared[16 * i]), layout.chunks[i])
          << layout.inner << " bytes, swizzle " << static_cast<int>(layout.swizzle) << ", chunk "
          << i;
    }
    const int32_t start[] = {0, 0};
    EXPECT_EQ(TensorBox(map, start, memory_).bytes(), 512u);
  }
}

// CUTLASS gives this mode the layout Swizzle<2, 5, 2> (include/cute/arch/copy_sm90_desc.hpp and
// mma_sm100_desc.hpp): pieces of 32 bytes, their number within the row added to the row's.
TEST_F(TensorBoxTest, AtomsOf32Bytes) {
  const TensorMap map =
      make(TensorType::kU8, 128, chunk_numbers(1024), 128, 8, TmaSwizzle::k128BAtom32B);
  const uint8_t want[] = {0,  1,  2,  3,  4,  5,  6,  7,  10, 11, 8,  9,  14, 15, 12, 13, 20, 21,
                          22, 23, 16, 17, 18, 19, 30, 31, 28, 29, 26, 27, 24, 25, 32, 33, 34, 35};
  const auto shared = load(map, 0, 0, 1024);
  for (size_t i = 0; i < std::size(want); ++i) {
    EXPECT_EQ(static_cast<uint8_t>(shared[i * 16]), want[i]) << i;
  }
  TensorMap read;
  std::string why;
  ASSERT_TRUE(TensorMap::decode(map.encode().data(), &read, &why)) << why;
  EXPECT_EQ(read.swizzle, TmaSwizzle::k128BAtom32B);
}

TEST_F(TensorBoxTest, WhatIsOutsideIsFilled) {
  std::vector<uint16_t> data(4 * 16);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint16_t>(i + 1);
  for (bool nan : {false, true}) {
    TensorMap map = make(TensorType::kBF16, 16, data, 16, 4);
    map.nan_fill = nan;
    const auto shared = load(map, -3, 2, 128);
    uint16_t got[64];
    std::memcpy(got, shared.data(), sizeof got);
    const uint16_t fill = nan ? 0x7FF7 : 0;
    for (int row = 0; row < 4; ++row) {
      for (int column = 0; column < 16; ++column) {
        const bool inside = row < 2 && column >= 3;
        EXPECT_EQ(got[16 * row + column], inside ? data[16 * (row + 2) + column - 3] : fill)
            << row << ", " << column;
      }
    }
  }
}

TEST_F(TensorBoxTest, ElementStridesSkipRows) {
  TensorMap map = make(TensorType::kU8, 16, chunk_numbers(1024), 16, 7);
  map.element_strides[1] = 2;
  const auto from_zero = load(map, 0, 0, 256), from_before = load(map, 0, -1, 256);
  const uint8_t rows[] = {0, 2, 4, 6}, rows_before[] = {0, 1, 3, 5};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(static_cast<uint8_t>(from_zero[16 * i]), rows[i]);
    EXPECT_EQ(static_cast<uint8_t>(from_before[16 * i]), rows_before[i]);
  }
  EXPECT_EQ(from_zero[64], kUntouched);
  const int32_t start[] = {0, 0};
  EXPECT_EQ(TensorBox(map, start, memory_).bytes(), 64u);
}

TEST_F(TensorBoxTest, Tf32IsRoundedOnTheWayIn) {
  const std::vector<uint32_t> in{0x3F801000, 0x3F801001, 0x3F803000, 0x3F800FFF,
                                 0x00001FFF, 0x80002000, 0x7F800001, 0x7FFFFFFF,
                                 0x7F800000, 0x3F801FFF, 0x007FFFFF, 0x7F7FFFFF,
                                 0xFF801000, 0x00000001, 0xBF803000, 0xBF801000};
  const uint32_t wanted[] = {0x3f800000, 0x3f802000, 0x3f804000, 0x3f800000, 0x00002000, 0x80002000,
                             0x7fffe000, 0x7fffe000, 0x7f800000, 0x3f802000, 0x00800000, 0x7f800000,
                             0x7fffe000, 0x00000000, 0xbf804000, 0xbf800000};
  for (TensorType type : {TensorType::kTF32, TensorType::kTF32Ftz}) {
    const auto shared = load(make(type, 16, in, 16, 1), 0, 0, 64);
    uint32_t got[16];
    std::memcpy(got, shared.data(), sizeof got);
    for (int i = 0; i < 16; ++i) EXPECT_EQ(got[i], wanted[i]) << i;
  }
  for (TensorType type : {TensorType::kF32, TensorType::kF32Ftz}) {
    const auto shared = load(make(type, 16, in, 16, 1), 0, 0, 64);
    EXPECT_EQ(std::memcmp(shared.data(), in.data(), 64), 0);
  }
}

TEST_F(TensorBoxTest, StoresDropWhatIsOutside) {
  const TensorMap map =
      make(TensorType::kU8, 32, std::vector<uint8_t>(32 * 4, 1), 32, 4, TmaSwizzle::k32B);
  std::vector<std::byte> shared(128, std::byte{7}), buffer(128);
  const int32_t start[] = {-16, 3};
  const TensorBox box(map, start, memory_);
  box.read_shared(0, 4, shared.data(), 0, buffer.data());
  box.store(0, 4, buffer.data(), nullptr);
  const std::byte* tensor = memory_.find(map.address, 128);
  for (int i = 0; i < 128; ++i) {
    EXPECT_EQ(tensor[i], i >= 96 && i < 112 ? std::byte{7} : std::byte{1}) << i;
  }
}

TEST_F(TensorBoxTest, ATensorLargerThanItsAllocationIsFound) {
  TensorMap map = make(TensorType::kU8, 16, chunk_numbers(256), 16, 8);
  map.dims[1] = 64;
  const int32_t start[] = {0, 12};
  try {
    const TensorBox box(map, start, memory_);
    FAIL() << "accepted";
  } catch (const Trap& trap) {
    EXPECT_EQ(trap.rule, "out-of-bounds");
    EXPECT_NE(trap.message.find("tensor (256 bytes)"), std::string::npos) << trap.message;
  }
}

// --- Reductions
// -----------------------------------------------------------------------------------

template <class T>
std::vector<T> reduce(ReduceOp op, Type type, bool flush, std::vector<T> memory,
                      const std::vector<T>& values) {
  const Reducer reducer = find_reducer(op, type, flush);
  EXPECT_NE(reducer.apply, nullptr);
  EXPECT_EQ(reducer.bytes, sizeof(T));
  reducer.apply(reinterpret_cast<std::byte*>(memory.data()),
                reinterpret_cast<const std::byte*>(values.data()), nullptr, memory.size());
  return memory;
}

// cp.reduce.async.bulk.tensor on an H200.
TEST(Reduce, RoundsAsTheHardware) {
  using W = std::vector<uint32_t>;
  using H = std::vector<uint16_t>;
  const W f32{3, 0x00800000, 0x00800001, 0x80000003, 0x7f800001, 0x3f800000};
  const W to_add{5, 0x80000001, 0x80800000, 0x80000000, 0, 0x33800000};
  EXPECT_EQ(reduce(ReduceOp::kAdd, Type::kF32, false, f32, to_add),
            (W{8, 0x7fffff, 1, 0x80000003, 0x7fffffff, 0x3f800000}));
  EXPECT_EQ(reduce(ReduceOp::kAdd, Type::kF32, true, f32, to_add),
            (W{0, 0x800000, 0, 0x80000000, 0x7fffffff, 0x3f800000}));
  EXPECT_EQ(reduce(ReduceOp::kAdd, Type::kF16, false, H{1, 0x7e01, 0x3c00, 0x0400},
                   H{2, 0, 0x7c01, 0x8001}),
            (H{3, 0x7fff, 0x7fff, 0x3ff}));
  EXPECT_EQ(reduce(ReduceOp::kAdd, Type::kBF16, false, H{1, 0x7fc1, 0x3f80, 0x0080},
                   H{2, 0, 0x7f81, 0x8001}),
            (H{3, 0x7fff, 0x7fff, 0x7f}));
  const H halves{0x7e01, 0x3c00, 0x8000, 0}, others{0x3c00, 0x7e01, 0, 0x8000};
  EXPECT_EQ(reduce(ReduceOp::kMin, Type::kF16, false, halves, others),
            (H{0x3c00, 0x3c00, 0x8000, 0x8000}));
  EXPECT_EQ(reduce(ReduceOp::kMax, Type::kF16, false, halves, others), (H{0x3c00, 0x3c00, 0, 0}));
  EXPECT_EQ(reduce(ReduceOp::kInc, Type::kU32, false, W{3, 5, 7}, W{5, 5, 5}), (W{4, 0, 0}));
  EXPECT_EQ(reduce(ReduceOp::kDec, Type::kU32, false, W{0, 5, 7}, W{5, 5, 5}), (W{5, 4, 5}));
  EXPECT_EQ(reduce(ReduceOp::kMin, Type::kS32, false, W{0, ~0u, 7}, W{5, 5, 5}), (W{0, ~0u, 5}));
  EXPECT_EQ(find_reducer(ReduceOp::kInc, Type::kU64, false).apply, nullptr);
  EXPECT_EQ(find_reducer(ReduceOp::kAnd, Type::kF32, false).apply, nullptr);
}

// Four rows of a matrix follow each other; the swizzle goes by where they lie, not by which rows
// they are.
TEST_F(TensorBoxTest, RowsAreGatheredAndScattered) {
  std::vector<uint32_t> data(8 * 8);
  for (uint32_t i = 0; i < data.size(); ++i) data[i] = i;
  const TensorMap map = make(TensorType::kU32, 8, data, 8, 1, TmaSwizzle::k32B);
  const int32_t rows[] = {6, -1, 2, 6};
  const TensorBox box(map, 0, rows, memory_);
  EXPECT_EQ(box.rows(), 4u);
  EXPECT_EQ(box.bytes(), 128u);
  std::vector<uint32_t> shared(64, ~0u);
  box.load(0, 4, reinterpret_cast<std::byte*>(shared.data()), 128);
  const uint32_t* lines = shared.data() + 32;
  for (uint32_t i = 0; i < 8; ++i) {  // line 1 of 128 bytes: halves of each row change places
    EXPECT_EQ(lines[i ^ 4], 48 + i);
    EXPECT_EQ(lines[8 + i], 0u);
    EXPECT_EQ(lines[16 + (i ^ 4)], 16 + i);
    EXPECT_EQ(lines[24 + (i ^ 4)], 48 + i);
  }
  std::vector<uint32_t> buffer(32);
  for (uint32_t i = 0; i < 32; ++i) buffer[i] = 100 + i;
  box.store(0, 4, reinterpret_cast<const std::byte*>(buffer.data()), nullptr);
  std::memcpy(data.data(), memory_.find(map.address, 256), 256);
  EXPECT_EQ(data[16], 116u);
  EXPECT_EQ(data[48], 124u);  // the later of two
  EXPECT_EQ(data[8], 8u);
  TensorMap tall = map;
  tall.box[1] = 4;
  EXPECT_THROW(TensorBox(tall, 0, rows, memory_), Trap);
}

}  // namespace
}  // namespace ptxemu
