// fa4_merge: attention over all keys from attention over parts of them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>

#include "small_attention.h"

namespace {

using small::Tensors;

constexpr float kNone = -std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Parts of (1, rows, heads, dim), each in memory of its own.
struct Parts {
  Parts(int count, int64_t rows, int64_t num_heads, int64_t dim) : seqlen(rows), heads(num_heads) {
    for (int i = 0; i < count; ++i) {
      outs.push_back(small::values(static_cast<size_t>(rows * heads * dim), 10 + i));
      lses.push_back(small::values(static_cast<size_t>(rows * heads), 50 + i));
    }
    out.assign(outs[0].size(), kNan);
    lse.assign(lses[0].size(), kNan);
    args.dtype = FA4_F32;
    args.batch = 1;
    args.seqlen = rows;
    args.heads = heads;
    args.head_dim = dim;
    args.out = out.data();
    args.lse = lse.data();
  }

  const fa4::MergeArgs& bound() {
    out_pointers.clear(), lse_pointers.clear();
    for (const auto& part : outs) out_pointers.push_back(part.data());
    for (const auto& part : lses) lse_pointers.push_back(part.data());
    args.num_parts = static_cast<int32_t>(outs.size());
    args.part_outs = out_pointers.data();
    args.part_lses = lse_pointers.data();
    return args;
  }

  // Element d of row i and head h, and its lse, in double precision.
  double wanted(int64_t i, int64_t h, int64_t d) const {
    double sum = 0, total = 0;
    for (size_t part = 0; part < outs.size(); ++part) {
      const double weight = std::exp(static_cast<double>(lses[part][h * seqlen + i]));
      if (weight == 0) continue;
      sum += weight * outs[part][static_cast<size_t>((i * heads + h) * args.head_dim + d)];
      total += weight;
    }
    return total == 0 ? 0 : sum / total;
  }
  double wanted_lse(int64_t i, int64_t h) const {
    double total = 0;
    for (const auto& part : lses) total += std::exp(static_cast<double>(part[h * seqlen + i]));
    return std::log(total);
  }
  void expect_merged() const {
    for (int64_t i = 0; i < seqlen; ++i) {
      for (int64_t h = 0; h < heads; ++h) {
        ASSERT_NEAR(lse[static_cast<size_t>(h * seqlen + i)], wanted_lse(i, h), 1e-6);
        for (int64_t d = 0; d < args.head_dim; ++d) {
          ASSERT_NEAR(out[static_cast<size_t>((i * heads + h) * args.head_dim + d)],
                      wanted(i, h, d), 1e-6)
              << "row " << i << ", head " << h << ", column " << d;
        }
      }
    }
  }

  int64_t seqlen, heads;
  std::vector<std::vector<float>> outs, lses;
  std::vector<float> out, lse;
  std::vector<const void*> out_pointers;
  std::vector<const float*> lse_pointers;
  fa4::MergeArgs args;
};

std::string refusal(const fa4::Device& device, const fa4::MergeArgs& args) {
  return fa4_merge(device.get(), &args) == FA4_OK ? "accepted" : fa4_last_error();
}

TEST(Merge, PartsOfTheKeysGiveAttention) {
  const fa4::Device device("cpu");
  const int64_t rows = 9, keys = 40;
  Tensors whole(rows, keys, 1);
  fa4::forward(device, small::dense_problem(1, rows, keys, false), whole.args());
  Parts parts(3, rows, small::kHeadsQ, small::kHeadDim);
  const int64_t cuts[] = {0, 13, 14, 40};
  for (int i = 0; i < 3; ++i) {
    fa4::ForwardArgs args = whole.args();
    args.k = &whole.k[static_cast<size_t>(cuts[i] * small::kHeadsKV * small::kHeadDim)];
    args.v = &whole.v[static_cast<size_t>(cuts[i] * small::kHeadsKV * small::kHeadDim)];
    args.out = parts.outs[i].data();
    args.lse = parts.lses[i].data();
    fa4::forward(device, small::dense_problem(1, rows, cuts[i + 1] - cuts[i], false), args);
  }
  fa4::merge(device, parts.bound());
  for (size_t i = 0; i < whole.out.size(); ++i) ASSERT_NEAR(parts.out[i], whole.out[i], 1e-6);
  for (size_t i = 0; i < whole.lse.size(); ++i) ASSERT_NEAR(parts.lse[i], whole.lse[i], 1e-6);
}

TEST(Merge, AnyNumberOfPartsAndAnyHeadDim) {
  const fa4::Device device("cpu");
  for (const int count : {1, 2, 7, 300}) {
    for (const int64_t dim : {1, 64, 257, 520}) {
      Parts parts(count, 3, 2, dim);
      fa4::merge(device, parts.bound());
      parts.expect_merged();
    }
  }
}

TEST(Merge, ManyRowsAreSharedByThreads) {
  const fa4::Device device("cpu");
  Parts parts(3, 2000, 3, 128);
  fa4::merge(device, parts.bound());
  parts.expect_merged();
  const std::vector<float> first = parts.out;
  fa4::merge(device, parts.bound());
  EXPECT_EQ(std::memcmp(first.data(), parts.out.data(), first.size() * sizeof(float)), 0);
}

// What a part that counts for nothing holds reaches nothing.
TEST(Merge, PartsOfLseMinusInfinityCountForNothing) {
  const fa4::Device device("cpu");
  Parts parts(3, 2, 1, 8);
  for (int d = 0; d < 8; ++d) parts.outs[1][d] = d % 2 == 0 ? kNan : -kNone;
  parts.lses[1][0] = kNone;
  for (auto& lse : parts.lses) lse[1] = kNone;
  for (int d = 8; d < 16; ++d) parts.outs[2][d] = kNan;
  fa4::merge(device, parts.bound());
  for (int d = 0; d < 8; ++d) {
    EXPECT_NEAR(parts.out[d], parts.wanted(0, 0, d), 1e-6);
    EXPECT_EQ(parts.out[8 + d], 0);
  }
  EXPECT_NEAR(parts.lse[0], parts.wanted_lse(0, 0), 1e-6);
  EXPECT_EQ(parts.lse[1], kNone);
}

TEST(Merge, WhatCountsIsNeverLost) {
  const fa4::Device device("cpu");
  Parts parts(2, 1, 1, 8);
  parts.outs[1][3] = kNan;
  parts.outs[1][4] = -kNone;
  parts.lses[0][0] = 0;
  parts.lses[1][0] = -2000;  // its weight underflows
  fa4::merge(device, parts.bound());
  EXPECT_EQ(parts.out[0], parts.outs[0][0]);
  EXPECT_TRUE(std::isnan(parts.out[3]));
  EXPECT_EQ(parts.out[4], -kNone);
  for (const float bad : {kNan, -kNone}) {
    parts.lses[1][0] = bad;
    fa4::merge(device, parts.bound());
    EXPECT_TRUE(std::isnan(parts.out[0]) && std::isnan(parts.lse[0]));
  }
}

// The same numbers in other memory: parts side by side in one buffer, the lse of a row's heads side
// by side, and a merged out with room between rows.
TEST(Merge, TakesStrides) {
  const fa4::Device device("cpu");
  const int64_t rows = 4, heads = 3, dim = 8;
  Parts parts(2, rows, heads, dim);
  fa4::merge(device, parts.bound());
  std::vector<float> side_by_side(parts.out.size() * 2), turned(parts.lse.size() * 2);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int part = 0; part < 2; ++part) {
        std::copy_n(&parts.outs[part][(i * heads + h) * dim], dim,
                    &side_by_side[((i * heads + h) * 2 + part) * dim]);
        turned[(i * heads + h) * 2 + part] = parts.lses[part][h * rows + i];
      }
    }
  }
  const void* outs[] = {side_by_side.data(), &side_by_side[dim]};
  const float* lses[] = {turned.data(), &turned[1]};
  std::vector<float> wide(parts.out.size() * 2, kNan);
  fa4::MergeArgs args = parts.args;
  args.part_outs = outs;
  args.part_lses = lses;
  args.part_out_strides[1] = heads * dim * 2, args.part_out_strides[2] = dim * 2;
  args.part_lse_strides[1] = heads * 2, args.part_lse_strides[2] = 2;
  args.out_strides[1] = heads * dim * 2, args.out_strides[2] = dim;
  args.out = wide.data();
  args.lse = nullptr;
  fa4::merge(device, args);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t d = 0; d < heads * dim; ++d) {
      EXPECT_EQ(wide[i * heads * dim * 2 + d], parts.out[i * heads * dim + d]);
      EXPECT_TRUE(std::isnan(wide[i * heads * dim * 2 + heads * dim + d]));
    }
  }
}

TEST(Merge, TakesSixteenBitsAndGivesWhatIsAsked) {
  const fa4::Device device("cpu");
  const uint16_t halves[] = {0x3c00, 0x4000, 0x4200};   // f16: 1, 2, 3
  const uint16_t bfloats[] = {0x3f80, 0x4000, 0x4040};  // bf16: the same
  const float lse[] = {0, 0, 0};
  for (const int32_t dtype : {FA4_F16, FA4_BF16}) {
    const uint16_t* values = dtype == FA4_F16 ? halves : bfloats;
    const void* outs[] = {values, values + 1, values + 2};
    const float* lses[] = {lse, lse + 1, lse + 2};
    float merged = 0;
    uint16_t rounded = 0;
    fa4::MergeArgs args;
    args.dtype = dtype;
    args.num_parts = 3;
    args.batch = args.seqlen = args.heads = args.head_dim = 1;
    args.part_outs = outs;
    args.part_lses = lses;
    args.out = &rounded;
    fa4::merge(device, args);
    EXPECT_EQ(rounded, values[1]);
    args.out_dtype = FA4_F32;
    args.out = &merged;
    args.num_parts = 2;
    fa4::merge(device, args);
    EXPECT_EQ(merged, 1.5f);
  }
}

// Merges into the `place`th part, and expects what a place of its own gets. `change`: of the call.
void expect_in_place(int count, size_t place, const std::function<void(fa4::MergeArgs&)>& change) {
  const fa4::Device device("cpu");
  Parts parts(count, 50, 2, 64);
  fa4::merge(device, parts.bound());
  Parts same(count, 50, 2, 64);
  fa4::MergeArgs args = same.bound();
  args.out = same.outs[place].data();
  args.lse = same.lses[place].data();
  change(args);
  fa4::merge(device, args);
  EXPECT_EQ(same.outs[place], parts.out);
  EXPECT_EQ(same.lses[place], parts.lse);
}

TEST(Merge, MayTakeThePlaceOfAPart) {
  expect_in_place(3, 1, [](fa4::MergeArgs&) {});
}

TEST(Merge, TakesThePlaceOfAPartWhateverTheStrideOfOneElement) {
  expect_in_place(1, 0, [](fa4::MergeArgs& args) {
    const int64_t strides[] = {7, 2 * 64, 64};
    std::copy(std::begin(strides), std::end(strides), args.out_strides);
  });
}

TEST(Merge, RowsMayBeNone) {
  const fa4::Device device("cpu");
  Parts parts(2, 3, 1, 8);
  fa4::MergeArgs args = parts.bound();
  args.seqlen = 0;
  args.out = args.lse = nullptr;
  args.part_outs = nullptr;
  args.part_lses = nullptr;
  EXPECT_EQ(refusal(device, args), "accepted");
}

TEST(Merge, RefusesWhatItCannotTake) {
  const fa4::Device device("cpu");
  Parts parts(2, 3, 2, 8);
  const fa4::MergeArgs good = parts.bound();
  const auto expect = [&](auto change, const std::string& wanted) {
    fa4::MergeArgs args = good;
    change(args);
    EXPECT_EQ(refusal(device, args).substr(0, wanted.size()), wanted);
  };
  expect([](auto& a) { a.dtype = 0; }, "dtype 0; accepted: 1 (f32), 2 (f16), 3 (bf16)");
  expect([](auto& a) { a.out_dtype = 7; }, "out_dtype 7; accepted: 0 (dtype, f32), 1 (f32)");
  expect([](auto& a) { a.num_parts = 0; }, "num_parts 0; accepted: 1 to");
  expect([](auto& a) { a.batch = -1; }, "batch -1; accepted: 0 to");
  expect([](auto& a) { a.heads = 0; }, "num_heads 0; accepted: 1 to 65536");
  expect([](auto& a) { a.head_dim = 0; }, "head_dim 0; accepted: 1 to 65536");
  expect([](auto& a) { a.part_outs = nullptr; }, "part_outs is NULL; accepted: 2 pointers");
  expect([](auto& a) { a.part_lses = nullptr; }, "part_lses is NULL; accepted: 2 pointers");
  expect([](auto& a) { a.out = nullptr; }, "out is NULL");
  expect([](auto& a) { a.out = static_cast<char*>(a.out) + 2; }, "out 0x");
  expect([](auto& a) { a.out_strides[1] = 8; }, "strides (0, 8, 0) of out overlap");
  expect([](auto& a) { a.part_out_strides[0] = INT64_MAX, a.batch = 3; },
         "strides (9223372036854775807, 0, 0) of part_outs reach too far");
  expect([&](auto& a) { a.out = parts.outs[1].data() + 1; }, "out 0x");
  expect([&](auto& a) { a.out = parts.lses[1].data(); }, "out 0x");
  expect([&](auto& a) { a.lse = parts.outs[0].data(); }, "lse 0x");
  expect([](auto& a) { a.lse = static_cast<float*>(a.out); }, "lse 0x");
  expect([](auto& a) { a.stream = &a; }, "stream 0x");
  const std::string overlap = [&] {
    fa4::MergeArgs args = good;
    args.out = parts.outs[1].data() + 1;
    return refusal(device, args);
  }();
  EXPECT_NE(overlap.find("overlaps part_outs[1]"), std::string::npos) << overlap;
  parts.out_pointers[1] = nullptr;
  EXPECT_EQ(refusal(device, good).substr(0, 21), "part_outs[1] is NULL;");
  EXPECT_EQ(fa4_merge(nullptr, &good), FA4_INVALID_ARGUMENT);
  EXPECT_EQ(fa4_merge(device.get(), nullptr), FA4_INVALID_ARGUMENT);
}

}  // namespace
