// Out in f32 of GPUs' whole tiles: what is rounded where out has the inputs' type.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "backends.h"
#include "table.h"

namespace fa4::internal {
namespace {

class OutF32 : public BackendTest {
 protected:
  void SetUp() override {
    BackendTest::SetUp();
    if (!IsSkipped() && tested_gpus().empty()) GTEST_SKIP() << "no GPU here";
  }
};

// Elements that are not the same where both are numbers, or are one there and none here.
int64_t differing(const Result& floats, const Result& rounded, DType dtype) {
  const auto count = static_cast<int64_t>(rounded.out.size()) / size_of(dtype);
  int64_t found = 0;
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits = 0;
    store_from_float(dtype, &bits, 0, load_as_float(DType::kF32, floats.out.data(), i));
    const float here = load_as_float(dtype, &bits, 0);
    const float there = load_as_float(dtype, rounded.out.data(), i);
    found += std::isnan(here) ? !std::isnan(there) : here != there;
  }
  return found;
}

// `of_tiles` counts those that whole tiles computed.
void expect_what_is_rounded(const Backend& backend, const Row& row, DType dtype, int* of_tiles) {
  Case c = make_row(row, dtype);
  const CaseTensors rounded(c);
  c.desc.out_dtype = DType::kF32;
  const CaseTensors floats(c);
  const AttentionProblem& p = floats.problem();
  if (!unsupported(backend, p).empty() || !unsupported(backend, rounded.problem()).empty()) return;
  SCOPED_TRACE(testing::Message() << row.name << ", " << name_of(dtype));
  const Result got = run_on(backend, p, floats.args());
  const Reference reference = reference_forward(p, floats.args(), 2);
  expect_accurate(p, floats.args(), reference, got);
  if (got.kernel.find("_out_f32") == std::string::npos) return;
  ++*of_tiles;
  const Result wanted = run_on(backend, rounded.problem(), rounded.args());
  EXPECT_EQ(differing(got, wanted, dtype), 0) << got.kernel << " and " << wanted.kernel;
  ASSERT_EQ(got.lse.size(), wanted.lse.size());  // NaN where nothing is written
  EXPECT_EQ(std::memcmp(got.lse.data(), wanted.lse.data(), got.lse.size() * 4), 0);
}

TEST_F(OutF32, IsWhatIsRoundedElse) {
  for (const Backend& backend : tested_gpus()) {
    int of_tiles = 0;
    for (const Row& row : conformance_rows()) {
      expect_what_is_rounded(backend, row, DType::kBF16, &of_tiles);
    }
    EXPECT_GE(of_tiles, 30) << backend.name;
  }
}

// Each variant, by CTAs that take more than one tile.
TEST_F(OutF32, OfEveryHeadDimension) {
  struct Dims {
    int64_t head_dim, head_dim_v;
  };
  for (const Backend& backend : tested_gpus()) {
    int of_tiles = 0;
    for (const Dims& dims :
         {Dims{64, 64}, {96, 96}, {40, 24}, {128, 128}, {192, 128}, {192, 192}, {256, 256}}) {
      for (const bool causal : {false, true}) {
        const Row row{"330 rows", [&](Case& c) {
                        c.desc.batch = 1;
                        c.desc.heads_q = 3;
                        c.desc.heads_kv = 1;
                        c.desc.seqlen_q = c.desc.seqlen_k = 330;
                        c.desc.head_dim = dims.head_dim;
                        c.desc.head_dim_v = dims.head_dim_v;
                        c.desc.causal = causal;
                      }};
        const DType dtype = causal ? DType::kBF16 : DType::kF16;
        expect_what_is_rounded(with_sms(backend, 2), row, dtype, &of_tiles);
      }
    }
    EXPECT_EQ(of_tiles, 14) << backend.name;
  }
}

// Warpgroups of Hopper that visit blocks of their own; elsewhere other tiles of these problems.
TEST_F(OutF32, OfIndependentWarpgroups) {
  for (const Backend& backend : tested_gpus()) {
    int of_tiles = 0;
    for (const int64_t head_dim : {64, 96, 128}) {
      const Row row{"400 rows, a window", [&](Case& c) {
                      c.desc.seqlen_q = 400;
                      c.desc.seqlen_k = head_dim == 96 ? 3100 : 400;
                      c.desc.head_dim = head_dim;
                      c.desc.window = {150, 0};
                      c.desc.num_splits = 1;
                    }};
      expect_what_is_rounded(with_sms(backend, 2), row, DType::kBF16, &of_tiles);
    }
    EXPECT_EQ(of_tiles, 3) << backend.name;
  }
}

}  // namespace
}  // namespace fa4::internal
