// fa4_merge on GPUs, emulated and real: what the CPU gives for the same parts.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "device_memory.h"
#include "small_attention.h"

namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Parts in host memory; out and lse as each device merges them.
struct Parts {
  Parts(int count, int64_t batch, int64_t seqlen, int64_t heads, int64_t dim, int32_t dtype) {
    args.dtype = dtype;
    args.num_parts = count;
    args.batch = batch;
    args.seqlen = seqlen;
    args.heads = heads;
    args.head_dim = dim;
    element_bytes = dtype == FA4_F32 ? 4 : 2;
    for (int i = 0; i < count; ++i) {
      const std::vector<float> values = small::values(
          static_cast<size_t>(batch * seqlen * heads * dim), 10 + static_cast<uint32_t>(i));
      std::vector<unsigned char> bytes(values.size() * element_bytes);
      for (size_t j = 0; j < values.size(); ++j) {
        const char* value = reinterpret_cast<const char*>(&values[j]);
        // The upper half of a float is a bf16.
        std::memcpy(&bytes[j * element_bytes], value + 4 - element_bytes, element_bytes);
      }
      outs.push_back(bytes);
      lses.push_back(small::values(static_cast<size_t>(batch * seqlen * heads),
                                   50 + static_cast<uint32_t>(i)));
    }
  }

  // What is merged, as bytes of out and then those of lse.
  std::vector<unsigned char> merged_by(fa4_device* device, bool in_place = false) {
    const bool is_cpu = device == cpu.get();
    std::vector<DeviceMemory> memory;
    std::vector<const void*> out_pointers;
    std::vector<const float*> lse_pointers;
    std::vector<std::vector<unsigned char>> own_outs = outs;
    std::vector<std::vector<float>> own_lses = lses;
    const auto place = [&](void* host, size_t bytes) -> void* {
      if (is_cpu) return host;
      memory.emplace_back(device, host, bytes);
      return memory.back().as<void>();
    };
    const size_t out_bytes = outs[0].size(), lse_bytes = lses[0].size() * sizeof(float);
    memory.reserve(outs.size() * 2 + 2);
    for (size_t i = 0; i < outs.size(); ++i) {
      out_pointers.push_back(place(own_outs[i].data(), out_bytes));
      lse_pointers.push_back(static_cast<float*>(place(own_lses[i].data(), lse_bytes)));
    }
    std::vector<unsigned char> result(out_bytes + lse_bytes, 0xff);
    std::vector<float> lse(lses[0].size(), kNan);
    args.part_outs = out_pointers.data();
    args.part_lses = lse_pointers.data();
    args.out = in_place ? const_cast<void*>(out_pointers[1]) : place(result.data(), out_bytes);
    args.lse = in_place ? const_cast<float*>(lse_pointers[1])
                        : static_cast<float*>(place(lse.data(), lse_bytes));
    EXPECT_EQ(fa4_merge(device, &args), FA4_OK) << fa4_last_error();
    if (is_cpu) {
      std::memcpy(&result[out_bytes], args.lse, lse_bytes);
      return result;
    }
    const size_t at = in_place ? 2 : outs.size() * 2;
    memory[at].fetch(result.data());
    memory[at + 1].fetch(&result[out_bytes]);
    return result;
  }

  float element(const std::vector<unsigned char>& merged, size_t index) const {
    const size_t count = outs[0].size() / element_bytes;
    float value = 0;
    if (index >= count || element_bytes == 4) {
      std::memcpy(
          &value,
          &merged[outs[0].size() * (index >= count) + (index >= count ? index - count : index) * 4],
          4);
    } else {
      std::memcpy(reinterpret_cast<char*>(&value) + 2, &merged[index * 2], 2);
    }
    return value;
  }

  // Every number of the GPU's is that of the CPU's, within `tolerance` of its magnitude.
  void expect_as_on_the_cpu(fa4_device* device, float tolerance) {
    const std::vector<unsigned char> wanted = merged_by(cpu.get()), got = merged_by(device);
    const size_t count = outs[0].size() / element_bytes + lses[0].size();
    for (size_t i = 0; i < count; ++i) {
      const float a = element(wanted, i), b = element(got, i);
      if (std::isnan(a) || std::isinf(a)) {
        ASSERT_TRUE(std::isnan(a) ? std::isnan(b) : a == b) << i << ": " << a << ", " << b;
      } else {
        ASSERT_NEAR(a, b, tolerance * (1 + std::fabs(a))) << i;
      }
    }
  }

  static const fa4::Device cpu;
  size_t element_bytes;
  std::vector<std::vector<unsigned char>> outs;
  std::vector<std::vector<float>> lses;
  fa4::MergeArgs args;
};
const fa4::Device Parts::cpu("cpu");

class MergeOnGpu : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (fa4_open_device(GetParam(), &device_) != FA4_OK) GTEST_SKIP() << fa4_last_error();
    Parts probe(1, 1, 1, 1, 1, FA4_F32);
    void* memory = nullptr;
    ASSERT_EQ(fa4_device_alloc(device_, 256, &memory), FA4_OK);
    float* at = static_cast<float*>(memory);
    const void* outs[] = {at};
    const float* lses[] = {at + 16};
    const float zeros[64] = {};
    ASSERT_EQ(fa4_device_copy(device_, memory, zeros, 256, FA4_TO_DEVICE), FA4_OK);
    probe.args.part_outs = outs;
    probe.args.part_lses = lses;
    probe.args.out = at + 32;
    const fa4_status status = fa4_merge(device_, &probe.args);
    fa4_device_free(device_, memory);
    if (status == FA4_COMPILER) GTEST_SKIP() << fa4_last_error();
    ASSERT_EQ(status, FA4_OK) << fa4_last_error();
  }
  void TearDown() override { fa4_close_device(device_); }

  fa4_device* device_ = nullptr;
};

TEST_P(MergeOnGpu, ShapesAndTypes) {
  for (const int count : {1, 2, 7, 128}) {
    for (const int64_t dim : {1, 64, 130, 520}) {
      Parts(count, 2, 3, 2, dim, FA4_F32).expect_as_on_the_cpu(device_, 1e-6f);
    }
  }
  Parts bf16(3, 1, 9, 2, 128, FA4_BF16);
  bf16.expect_as_on_the_cpu(device_, 1e-2f);
  Parts many(3, 1, 700, 3, 16, FA4_F32);
  many.expect_as_on_the_cpu(device_, 1e-6f);
  EXPECT_EQ(many.merged_by(device_), many.merged_by(device_)) << "the same bits";
}

TEST_P(MergeOnGpu, MorePartsThanASmallParameterHolds) {
  Parts(129, 1, 3, 2, 33, FA4_F32).expect_as_on_the_cpu(device_, 1e-6f);
  Parts(2000, 1, 1, 1, 8, FA4_F32).expect_as_on_the_cpu(device_, 1e-5f);
}

TEST_P(MergeOnGpu, WhatCountsAndWhatDoesNot) {
  Parts parts(3, 1, 4, 1, 8, FA4_F32);
  const auto value = [&](int part, int index) {
    return reinterpret_cast<float*>(parts.outs[static_cast<size_t>(part)].data()) + index;
  };
  for (int d = 0; d < 8; ++d) *value(1, d) = d % 2 == 0 ? kNan : -kNone;
  parts.lses[1][0] = kNone;  // counts for nothing in row 0
  for (auto& lse : parts.lses) lse[1] = kNone;
  *value(2, 9) = kNan;  // row 1: nothing counts
  parts.lses[0][2] = 0;
  parts.lses[1][2] = -2000;  // its weight underflows
  *value(1, 16) = kNan;
  *value(1, 17) = -kNone;
  parts.lses[2][3] = -kNone;  // row 3 is NaN
  parts.expect_as_on_the_cpu(device_, 1e-6f);
}

TEST_P(MergeOnGpu, MayTakeThePlaceOfAPart) {
  Parts parts(3, 1, 50, 2, 64, FA4_F32);
  EXPECT_EQ(parts.merged_by(device_, true), parts.merged_by(device_));
}

TEST_P(MergeOnGpu, RefusesMorePartsThanAKernelTakes) {
  Parts parts(2001, 1, 1, 1, 1, FA4_F32);
  std::vector<const void*> outs(2001, parts.outs[0].data());
  std::vector<const float*> lses(2001, parts.lses[0].data());
  float out = 0;
  parts.args.part_outs = outs.data();
  parts.args.part_lses = lses.data();
  parts.args.out = &out;
  EXPECT_EQ(fa4_merge(device_, &parts.args), FA4_NOT_SUPPORTED);
  EXPECT_STREQ(fa4_last_error(), "num_parts 2001; accepted on a GPU: 1 to 2000");
}

INSTANTIATE_TEST_SUITE_P(Devices, MergeOnGpu,
                         testing::Values("emulated:h200", "emulated:b200", "cuda:0"),
                         [](const auto& given) {
                           std::string name = given.param;
                           for (char& c : name) c = std::isalnum(c) != 0 ? c : '_';
                           return name;
                         });

}  // namespace
