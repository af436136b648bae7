// Tensor memory: its allocation rules, and where registers lie in it.
#include "emulator/machine/tensor_memory.h"

#include <gtest/gtest.h>

#include <bit>
#include <set>
#include <utility>
#include <vector>

#include "emulator/machine/fragment.h"
#include "emulator/machine/tensor_transfer.h"
#include "emulator/observe/finding.h"

namespace ptxemu {
namespace {

TEST(TensorMemory, AllocatesTheLowestColumnsThatFit) {
  TensorMemory memory;
  EXPECT_EQ(memory.find_free(512), 0u);
  memory.take(0, 128, 1);
  memory.take(128, 64, 2);
  EXPECT_EQ(memory.find_free(256), 192u);
  EXPECT_EQ(memory.find_free(512), TensorMemory::kColumns);
  EXPECT_TRUE(memory.release(0, 128));
  EXPECT_EQ(memory.find_free(32), 0u);
  EXPECT_EQ(memory.find_free(256), 192u);
  EXPECT_FALSE(memory.release(128, 32)) << "half of an allocation";
  EXPECT_EQ(memory.live().size(), 1u);
}

TEST(TensorMemory, APairTakesWhatIsFreeInBoth) {
  TensorMemory a, b;
  a.take(0, 64, 1);
  b.take(96, 32, 1);
  EXPECT_EQ(TensorMemory::find_free(a, b, 32), 64u);
  EXPECT_EQ(TensorMemory::find_free(a, b, 64), 128u);
}

std::string rule_of(const TensorMemory& memory, uint32_t column, uint32_t columns) {
  try {
    memory.check(column, columns, "a test");
  } catch (const Trap& trap) {
    return trap.rule;
  }
  return "";
}

TEST(TensorMemory, TellsWhyAnAccessIsWrong) {
  TensorMemory memory;
  memory.take(0, 64, 1);
  memory.take(64, 32, 2);
  EXPECT_EQ(rule_of(memory, 0, 96), "");
  EXPECT_EQ(rule_of(memory, 90, 8), "tmem-unallocated");
  EXPECT_EQ(rule_of(memory, 508, 8), "tmem-out-of-bounds");
  EXPECT_TRUE(memory.release(64, 32));
  EXPECT_EQ(rule_of(memory, 64, 1), "tmem-after-release");
}

TEST(TensorMemory, AddressesAreLaneAndColumn) {
  const TensorAddress at = TensorAddress::of(0x00600123);
  EXPECT_EQ(at.lane, 96u);
  EXPECT_EQ(at.column, 0x123u);
  EXPECT_EQ(TensorAddress::of(0x00A00000).lane, 32u) << "lane 160 of a pair is lane 32";
}

// The layouts that CuTe's host code publishes for tcgen05.ld (Copy_Traits<SM100_TMEM_LOAD_*>): bit
// strides of the thread's and the register's modes, rows `row_bits` apart.
struct Modes {
  TransferShape shape;
  uint32_t row_bits;
  std::vector<std::pair<uint32_t, uint32_t>> thread, reg;
};

uint32_t bits_at(const std::vector<std::pair<uint32_t, uint32_t>>& modes, uint32_t i) {
  uint32_t bits = 0;
  for (const auto& [extent, stride] : modes) {
    bits += i % extent * stride;
    i /= extent;
  }
  return bits;
}

TEST(TensorTransfer, LayoutsAreThePublishedOnes) {
  const Modes layouts[] = {
      {TransferShape::k32x32b, 32, {{32, 32}}, {{1, 0}}},
      {TransferShape::k16x64b, 64, {{2, 512}, {2, 32}, {8, 64}}, {{1, 0}}},
      {TransferShape::k16x128b, 128, {{4, 32}, {8, 128}}, {{2, 1024}}},
      {TransferShape::k16x256b, 256, {{4, 64}, {8, 256}}, {{2, 32}, {2, 2048}}},
  };
  for (const Modes& layout : layouts) {
    for (uint32_t thread = 0; thread < 32; ++thread) {
      for (uint32_t reg = 0; reg < registers_of(layout.shape); ++reg) {
        const uint32_t bits = bits_at(layout.thread, thread) + bits_at(layout.reg, reg);
        const TensorCell cell = tensor_cell(layout.shape, thread, reg, 0);
        EXPECT_EQ(cell.row, bits / layout.row_bits) << thread << ' ' << reg;
        EXPECT_EQ(cell.column, bits % layout.row_bits / 32) << thread << ' ' << reg;
      }
    }
  }
}

TEST(TensorTransfer, EveryCellIsReadOnce) {
  for (const TransferShape shape :
       {TransferShape::k32x32b, TransferShape::k16x64b, TransferShape::k16x128b,
        TransferShape::k16x256b, TransferShape::k16x32bx2}) {
    std::set<std::pair<uint32_t, uint32_t>> cells;
    const uint32_t registers = 4 * registers_of(shape);
    for (uint32_t thread = 0; thread < 32; ++thread) {
      for (uint32_t reg = 0; reg < registers; ++reg) {
        const TensorCell cell = tensor_cell(shape, thread, reg, 64);
        EXPECT_LT(cell.row, rows_of(shape));
        cells.insert({cell.row, cell.column});
      }
    }
    EXPECT_EQ(cells.size(), 32 * registers);
  }
}

TEST(TensorTransfer, Reductions) {
  const auto f = [](float x) { return std::bit_cast<uint32_t>(x); };
  TransferReduction reduction;
  reduction.kind = TransferReduction::Kind::kFloat;
  reduction.maximum = true;
  EXPECT_EQ(reduce_pair(reduction, f(-2.0f), f(1.0f)), f(1.0f));
  EXPECT_EQ(reduce_pair(reduction, f(-0.0f), f(0.0f)), f(0.0f));
  EXPECT_EQ(reduce_pair(reduction, 0x7FC00000, f(-3.0f)), f(-3.0f)) << "a NaN is passed over";
  reduction.keeps_nan = true;
  EXPECT_EQ(reduce_pair(reduction, 0x7FC00000, f(-3.0f)), 0x7FFFFFFFu);
  reduction.maximum = false;
  EXPECT_EQ(reduce_pair(reduction, f(0.0f), f(-0.0f)), f(-0.0f));
  reduction.kind = TransferReduction::Kind::kSigned;
  EXPECT_EQ(reduce_pair(reduction, 0xFFFFFFFF, 1), 0xFFFFFFFFu);
  reduction.kind = TransferReduction::Kind::kUnsigned;
  EXPECT_EQ(reduce_pair(reduction, 0xFFFFFFFF, 1), 1u);
}

// "Matrix Fragments for mma.m16n8k16": the manual's formulas, element by element.
TEST(Fragment, AreThoseOfTheManual) {
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane >> 2, thread = lane % 4;
    for (int i = 0; i < 8; ++i) {  // A, two elements a register
      const FragmentElement at = a_element(lane, i / 2, 2);
      EXPECT_EQ(at.row, (i < 2 || (i >= 4 && i < 6)) ? group : group + 8);
      EXPECT_EQ(at.column + i % 2, thread * 2 + (i & 1) + (i >= 4 ? 8 : 0));
    }
    for (int i = 0; i < 4; ++i) {  // C
      const FragmentElement at = accumulator_element(lane, i);
      EXPECT_EQ(at.row, i < 2 ? group : group + 8);
      EXPECT_EQ(at.column, thread * 2 + (i & 1));
    }
    for (int i = 0; i < 8; ++i) {  // B of m16n8k32, four elements a register
      const FragmentElement at = b_element(lane, i / 4, 4);
      EXPECT_EQ(at.row + i % 4, thread * 4 + (i & 3) + (i >= 4 ? 16 : 0));
      EXPECT_EQ(at.column, group);
    }
  }
}

}  // namespace
}  // namespace ptxemu
