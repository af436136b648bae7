// Copies, zeros and sums of the host's memory and of an emulated device's: the same.
#include "distributed/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace fa4::internal {
namespace {

// A block of memory behind either door, read and written from the host.
class Block {
 public:
  Block(Device* device, std::vector<float> values) : device_(device), values_(std::move(values)) {
    if (device_ == nullptr) return;
    buffer_ = Buffer(*device_, values_.size() * 4);
    device_->copy_to_device(buffer_.data(), values_.data(), values_.size() * 4);
  }
  float* data() {
    return device_ == nullptr ? values_.data() : static_cast<float*>(buffer_.data());
  }
  std::vector<float> read() {
    if (device_ != nullptr) {
      device_->copy_to_host(values_.data(), buffer_.data(), values_.size() * 4);
    }
    return values_;
  }

 private:
  Device* device_;
  std::vector<float> values_;
  Buffer buffer_;
};

class MemoryTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!GetParam()) {
      memory_ = host_memory(std::make_shared<ThreadPool>(2));
      return;
    }
    device_ = Device::open("emulated:h200");
    try {
      memory_ = device_memory(device_, {{.work = SumStep{}}, {.work = CutStep{}}}, nullptr);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCompiler) throw;
      GTEST_SKIP() << error.what();
    }
  }
  Block block(std::vector<float> values) { return Block(device_.get(), std::move(values)); }

  std::shared_ptr<Device> device_;
  std::unique_ptr<const Memory> memory_;
};

TEST_P(MemoryTest, CopiesRows) {
  Block from = block({1, 2, 3, 4, 5, 6, 7, 8}), to = block({0, 0, 0, 0, 0, 0});
  memory_->copy({.to = to.data() + 1,
                 .to_pitch = 12,
                 .from = from.data() + 1,
                 .from_pitch = 16,
                 .width = 8,
                 .rows = 2},
                nullptr);
  EXPECT_EQ(to.read(), (std::vector<float>{0, 2, 3, 0, 6, 7}));
  memory_->copy(
      {.to = to.data(), .to_pitch = 8, .from = from.data(), .from_pitch = 8, .width = 8, .rows = 3},
      nullptr);
  EXPECT_EQ(to.read(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  memory_->zero(to.data() + 1, 8, nullptr);
  EXPECT_EQ(to.read(), (std::vector<float>{1, 0, 0, 4, 5, 6}));
}

// In f32 1e8 + 1 = 1e8: another order is another sum.
TEST_P(MemoryTest, SumsInOrderAndRoundsOnce) {
  std::vector<float> parts(3 * 8, 0.0f);  // three matrices of two rows of four, two of them used
  const float kTerms[3] = {1e8f, 1.0f, -1e8f};
  for (int part = 0; part < 3; ++part) {
    for (const int at : {0, 1, 4, 5}) parts[static_cast<size_t>(8 * part + at)] = kTerms[part];
  }
  parts[8] = 1.0009765625f, parts[0] = parts[16] = 0;  // half a bf16's last place is 2^-8
  Block given = block(parts), floats = block(std::vector<float>(6, 7.0f));
  SumArgs args{.parts = given.data(),
               .part_stride = 32,
               .num_parts = 3,
               .rows = 2,
               .columns = 2,
               .part_pitch = 4,
               .to = floats.data(),
               .to_type = DType::kF32,
               .to_pitch = 3};
  memory_->sum(args, nullptr);
  EXPECT_EQ(floats.read(), (std::vector<float>{1.0009765625f, 0, 7, 0, 0, 7}));
  for (const DType type : {DType::kBF16, DType::kF16}) {
    Block halves = block({0, 0});
    args.to = halves.data();
    args.to_type = type;
    args.to_pitch = 2;
    memory_->sum(args, nullptr);
    const std::vector<float> bits = halves.read();
    EXPECT_EQ(load_as_float(type, bits.data(), 0), type == DType::kBF16 ? 1.0f : 1.0009765625f);
    EXPECT_EQ(load_as_float(type, bits.data(), 3), 0.0f);
  }
}

TEST_P(MemoryTest, SumsInPlaceOfTheFirstAndBackwards) {
  Block given = block({1, 2, 3, 10, 20, 30});
  memory_->sum({.parts = given.data() + 3,
                .part_stride = -12,
                .num_parts = 2,
                .rows = 1,
                .columns = 3,
                .part_pitch = 3,
                .to = given.data() + 3,
                .to_type = DType::kF32,
                .to_pitch = 3},
               nullptr);
  EXPECT_EQ(given.read(), (std::vector<float>{1, 2, 3, 11, 22, 33}));
}

TEST_P(MemoryTest, SumsMoreThanOneCta) {
  constexpr int kColumns = 24, kRows = 130;
  std::vector<float> parts(2 * kRows * kColumns);
  for (size_t i = 0; i < parts.size(); ++i) parts[i] = static_cast<float>(i);
  Block given = block(parts), sums = block(std::vector<float>(kRows * kColumns, 0.0f));
  memory_->sum({.parts = given.data(),
                .part_stride = kRows * kColumns * 4,
                .num_parts = 2,
                .rows = kRows,
                .columns = kColumns,
                .part_pitch = kColumns,
                .to = sums.data(),
                .to_type = DType::kF32,
                .to_pitch = kColumns},
               nullptr);
  const std::vector<float> got = sums.read();
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i], parts[i] + parts[i + got.size()]) << i;
  }
}

// Five sequences, of which two are empty: of rows 4 to 10 as queries and 2 to 9 as keys the second
// has three and five, the fourth three and two.
TEST_P(MemoryTest, CutsSequences) {
  const auto block_of = [&](const std::vector<int32_t>& numbers) {
    std::vector<float> bits(numbers.size());
    std::memcpy(bits.data(), numbers.data(), numbers.size() * 4);
    return block(bits);
  };
  const auto numbers_of = [](Block& of) {
    const std::vector<float> bits = of.read();
    std::vector<int32_t> numbers(bits.size());
    std::memcpy(numbers.data(), bits.data(), bits.size() * 4);
    return numbers;
  };
  const auto pointer = [](Block& of) { return reinterpret_cast<int32_t*>(of.data()); };
  Block whole = block_of({0, 0, 7, 7, 12, 15});
  Block shard_q = block_of(std::vector<int32_t>(7, 99)), shard_k = block_of({9, 9, 9, 9, 9, 9, 9});
  memory_->cut({.cu_seqlens_q = pointer(whole),
                .cu_seqlens_k = pointer(whole),
                .shard_q = pointer(shard_q),
                .shard_k = pointer(shard_k),
                .count = 6,
                .first_query = 4,
                .end_query = 10,
                .first_key = 2,
                .end_key = 9},
               nullptr);
  EXPECT_EQ(numbers_of(shard_q), (std::vector<int32_t>{0, 0, 3, 3, 6, 6, 99}));
  EXPECT_EQ(numbers_of(shard_k), (std::vector<int32_t>{0, 0, 5, 5, 7, 7, 9}));
}

// More than a CTA's numbers.
TEST_P(MemoryTest, CutsManySequences) {
  constexpr int kCount = 1000;
  std::vector<float> bits(kCount);
  for (int32_t i = 0; i < kCount; ++i) std::memcpy(&bits[static_cast<size_t>(i)], &i, 4);
  Block whole = block(bits), shard_q = block(bits), shard_k = block(bits);
  const auto pointer = [](Block& of) { return reinterpret_cast<int32_t*>(of.data()); };
  memory_->cut({.cu_seqlens_q = pointer(whole),
                .cu_seqlens_k = pointer(whole),
                .shard_q = pointer(shard_q),
                .shard_k = pointer(shard_k),
                .count = kCount,
                .first_query = 300,
                .end_query = 900,
                .first_key = 100,
                .end_key = 950},
               nullptr);
  const std::vector<float> q = shard_q.read(), k = shard_k.read();
  for (int32_t i = 0; i < kCount; ++i) {
    int32_t of_q, of_k;
    std::memcpy(&of_q, &q[static_cast<size_t>(i)], 4);
    std::memcpy(&of_k, &k[static_cast<size_t>(i)], 4);
    ASSERT_EQ(of_q, std::clamp(i, 300, 900) - 300) << i;
    ASSERT_EQ(of_k, std::clamp(i, 100, 950) - 100) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Memories, MemoryTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "emulated" : "host"; });

}  // namespace
}  // namespace fa4::internal
