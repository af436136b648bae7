// Keys and values stored as bytes with descales: on every backend attention over the numbers that
// they stand for, wherever they lie. What belongs to no sequence is NaN, as in every case.
#include <gtest/gtest.h>

#include <cmath>

#include "backends.h"
#include "core/dtype.h"
#include "problem/tensor_extent.h"
#include "table.h"

namespace fa4::internal {
namespace {

// Three queries a sequence are few rows of a tile on a GPU, seventy are many.
constexpr int64_t kQueries[] = {3, 70};

Case base_case(int64_t seqlen_q, int64_t head_dim, int64_t head_dim_v) {
  Case c;
  ProblemDesc& d = c.desc;
  d.batch = 3;
  d.heads_q = 4;
  d.heads_kv = 2;
  d.seqlen_q = seqlen_q;
  d.seqlen_k = 400;
  d.head_dim = head_dim;
  d.head_dim_v = head_dim_v;
  // Rows of a width that GPUs take, whatever the head dimension.
  const int64_t row = (std::max(head_dim, head_dim_v) + 15) / 16 * 16;
  d.k = d.v = {d.seqlen_k * 2 * row, 2 * row, row};
  d.causal = true;
  d.has_seqused_k = true;
  c.seqused_k = {400, 0, 201};
  c.seed = 53;
  return c;
}

class Quantised : public BackendTest {};

// How many backends ran it. Of few queries a GPU also cuts the keys, and gives the same bits from
// any number of SMs.
int expect_right(const Case& c) {
  const CaseTensors tensors(c);
  const AttentionProblem& p = tensors.problem();
  const Reference reference = reference_forward(p, tensors.args(), 2);
  int ran = 0;
  for (const Backend& backend : backends_that_take(p)) {
    SCOPED_TRACE(backend.name);
    ++ran;
    const Result result = run_on(backend, p, tensors.args());
    expect_accurate(p, tensors.args(), reference, result);
    if (!backend.is_gpu() || p.seqlen_q != kQueries[0]) continue;
    const AttentionProblem fixed = [&] {
      ProblemDesc d = p;
      d.split_keys = 128;
      d.num_splits = 0;
      return AttentionProblem::make(d);
    }();
    const Result one = run_on(with_sms(backend, 1), fixed, tensors.args());
    EXPECT_TRUE(same_bits(one, run_on(backend, fixed, tensors.args()))) << one.kernel;
    expect_accurate(fixed, tensors.args(), reference, one);
  }
  return ran;
}

// On every backend that takes it.
void expect_accurate(const AttentionProblem& p, const ForwardArgs& args) {
  const Reference reference = reference_forward(p, args, 2);
  for (const Backend& backend : backends_that_take(p)) {
    SCOPED_TRACE(backend.name);
    expect_accurate(p, args, reference, run_on(backend, p, args));
  }
}

// Eight queries over whole blocks of keys, with descales of blocks, or of pages.
Case case_of_blocks(DType dtype, int64_t page_size) {
  Case c = base_case(8, 64, 64);
  c.desc.dtype = dtype;
  c.desc.seqlen_k = 512;
  c.seqused_k = {512, 0, 256};
  c.desc.k = c.desc.v = {};
  if (page_size > 0) put_in_pages(c, page_size);
  quantise(c.desc, page_size > 0 ? page_size : kDescaleBlock, Descales::kContiguous);
  return c;
}

// Descales as change(row, descale) has them; a row is a block of a sequence, or a page.
template <class Change>
std::vector<float> changed(const AttentionProblem& p, const float* descales, const Change& change) {
  const TensorExtent extent = descale_extent(p);
  std::vector<float> all(descales, descales + extent.outer * extent.rows * extent.heads);
  for (size_t i = 0; i < all.size(); ++i) {
    const auto row = static_cast<int>(static_cast<int64_t>(i) / extent.heads % extent.rows);
    all[i] = change(row, all[i]);
  }
  return all;
}

TEST_F(Quantised, OfEveryHeadDim) {
  constexpr struct {
    int64_t head_dim, head_dim_v;
  } kDims[] = {{16, 16},   {64, 64},   {72, 40},   {96, 96},
               {128, 128}, {192, 128}, {192, 192}, {256, 256}};
  int ran = 0, index = 0;
  for (const auto& dims : kDims) {
    for (const int64_t queries : kQueries) {
      SCOPED_TRACE(testing::Message() << dims.head_dim << ", " << queries << " queries");
      Case c = base_case(queries, dims.head_dim, dims.head_dim_v);
      c.desc.dtype = ++index % 4 == 0 ? DType::kF16 : DType::kBF16;
      quantise(c.desc, index % 3 == 0 ? 0 : kDescaleBlock, Descales::kContiguous);
      ran += expect_right(c);
    }
  }
  EXPECT_GE(ran, 16);
}

TEST_F(Quantised, InPagesOfEverySize) {
  int ran = 0;
  for (const int64_t page_size : {1, 16, 24, 128}) {
    for (const int64_t descale_block : {int64_t{0}, kDescaleBlock, page_size}) {
      for (const int64_t queries : kQueries) {
        SCOPED_TRACE(testing::Message() << "pages of " << page_size << ", descales of "
                                        << descale_block << " keys, " << queries << " queries");
        const bool wide = page_size == 16 || page_size == 1;
        Case c = wide ? base_case(queries, 128, 128) : base_case(queries, 80, 48);
        put_in_pages(c, page_size);
        quantise(c.desc, descale_block, Descales::kContiguous);
        ran += expect_right(c);
      }
    }
  }
  EXPECT_GE(ran, 24);
}

// Behind 72 and 40 bytes, the last eight of which are half of what a thread copies, stands NaN.
TEST_F(Quantised, HeadsOfPagesThatEndInsideOf16Bytes) {
  int ran = 0;
  for (const int64_t page_size : {1, 57}) {
    for (const int64_t queries : kQueries) {
      SCOPED_TRACE(testing::Message() << "pages of " << page_size << ", " << queries << " queries");
      Case c = base_case(queries, 72, 40);
      put_in_pages(c, page_size);
      c.desc.k = {page_size * 2 * 80, 2 * 80, 80};
      c.desc.v = {page_size * 2 * 48, 2 * 48, 48};
      quantise(c.desc, 0, Descales::kOneNumber);
      ran += expect_right(c);
    }
  }
  EXPECT_GE(ran, 4);
}

TEST_F(Quantised, OnPagesThatAllShare) {
  for (const int64_t page_size : {1, 16, 24}) {
    for (const int64_t descale_block : {kDescaleBlock, page_size}) {
      SCOPED_TRACE(testing::Message() << page_size << ", " << descale_block);
      Case c = base_case(3, 64, 64);
      put_in_pages(c, page_size);
      c.desc.prefix_len = 104;
      c.desc.num_pages += 104 / page_size + 1;
      c.desc.page_table_heads = 2;
      c.seqused_k = {400, 60, 201};
      quantise(c.desc, descale_block, Descales::kContiguous);
      expect_right(c);
    }
  }
}

// As many keys as one page has, but on two of them.
TEST_F(Quantised, FewKeysBehindASharedPage) {
  Case c = base_case(3, 64, 64);
  c.desc.seqlen_k = 15;
  put_in_pages(c, 16);
  c.desc.prefix_len = 5;
  c.desc.num_pages += 1;
  c.seqused_k = {15, 5, 9};
  quantise(c.desc, 16, Descales::kContiguous);
  expect_right(c);
}

struct Variant {
  const char* name;
  std::function<void(Case&)> change;
  std::optional<Descales> descales = Descales::kContiguous;
};
const Variant kVariants[] = {
    {"sink, softcap and window",
     [](Case& c) {
       c.desc.has_sink = true;
       c.desc.softcap = 5;
       c.desc.window = {150, 20};
     }},
    {"window behind the position",
     [](Case& c) {
       c.desc.causal = false;
       c.desc.window = {300, -90, 2};
     }},
    {"negative scale", [](Case& c) { c.desc.softmax_scale = -0.05f; }},
    {"keys left whole", [](Case& c) { c.desc.num_splits = 1; }},
    {"two parts", [](Case& c) { c.desc.num_splits = 2; }},
    {"out in f32", [](Case& c) { c.desc.out_dtype = DType::kF32; }},
    {"wide scores", [](Case& c) { c.amplitude = 30; }},
    {"group of three", [](Case& c) { c.desc.heads_q = 6; }},
    {"one key head", [](Case& c) { c.desc.heads_kv = 1, c.desc.k = c.desc.v = {}; }},
    {"128 query heads of one key head",
     [](Case& c) {
       c.desc.batch = 1;
       c.seqused_k.resize(1);
       c.desc.heads_q = 128, c.desc.heads_kv = 1;
       c.desc.k = c.desc.v = {};
     }},
    {"one number for all", [](Case&) {}, Descales::kOneNumber},
    {"no descales", [](Case& c) { c.desc.kv_dtype = DType::kE4M3; }, std::nullopt},
    {"queries in use",
     [](Case& c) {
       c.desc.has_seqused_q = true;
       c.seqused_q = {2, 1, 0};
     }},
    {"packed",
     [](Case& c) {
       pack(c, {3, 0, 70}, {400, 17, 129});
       c.desc.k = c.desc.v = {};
       c.desc.has_seqused_k = false;
       c.seqused_k.clear();
     }},
    {"40 sequences",
     [](Case& c) {
       c.desc.batch = 40;
       c.seqused_k.assign(40, 0);
       for (int b = 0; b < 40; b += 3) c.seqused_k[static_cast<size_t>(b)] = 9 * b;
     }},
};

TEST_F(Quantised, UnderEveryOption) {
  for (const Variant& variant : kVariants) {
    for (const int64_t queries : kQueries) {
      for (const int64_t block : {int64_t{0}, kDescaleBlock}) {
        if (queries == kQueries[0] && block == 0) continue;  // one kernel takes both
        SCOPED_TRACE(testing::Message()
                     << variant.name << ", " << queries << " queries, " << block);
        Case c = base_case(queries, 64, 64);
        variant.change(c);
        if (variant.descales) quantise(c.desc, block, *variant.descales);
        expect_right(c);
      }
    }
  }
}

// Of keys: negative, 0 (all keys alike), and so small that their products with the scale are none.
TEST_F(Quantised, DescalesOfAnySign) {
  for (const float softcap : {0.0f, 5.0f}) {
    for (const int64_t queries : kQueries) {
      SCOPED_TRACE(testing::Message() << "softcap " << softcap << ", " << queries << " queries");
      Case c = base_case(queries, 128, 64);
      c.desc.softcap = softcap;
      quantise(c.desc, 0, Descales::kContiguous);
      const CaseTensors tensors(c);
      const AttentionProblem& p = tensors.problem();
      ForwardArgs args = tensors.args();
      const std::vector<float> of_keys = {-0.7f, 0.0f, 1.0f, -0.0f, -1e-36f, 0.02f};
      const std::vector<float> of_values = {-1.0f, 0.5f, 1.0f, 0.0f, 1.0f, -3.0f};
      ASSERT_EQ(of_keys.size(), static_cast<size_t>(p.batch * p.heads_kv));
      args.k_descale = of_keys.data();
      args.v_descale = of_values.data();
      expect_accurate(p, args);
    }
  }
}

// Probabilities take the values' descales before they are rounded: f16 has no room for a product of
// them where descales are far from 1, or grow and shrink from block to block.
TEST_F(Quantised, OfDescalesFarFromOne) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (const int64_t page_size : {0, 1, 16}) {
      for (const int by : {-12, 14, 0}) {  // powers of two; 0: rising from block to block
        SCOPED_TRACE(testing::Message() << page_size << ", 2^" << by);
        Case c = case_of_blocks(dtype, page_size);  // no few keys outweigh all others
        c.desc.out_dtype = DType::kF32;
        const CaseTensors tensors(c);
        const AttentionProblem& p = tensors.problem();
        ForwardArgs args = tensors.args();
        const std::vector<float> descales = changed(p, args.v_descale, [&](int row, float descale) {
          return std::ldexp(descale, by != 0 ? by : 9 * (row % 4));
        });
        args.v_descale = descales.data();
        const Reference reference = reference_forward(p, args, 2);
        for (const Backend& backend : backends_that_take(p)) {
          SCOPED_TRACE(backend.name);
          const Result result = run_on(backend, p, args);
          const Accuracy out = check_out(p, args, reference, result.out.data(), result.tile_m);
          EXPECT_TRUE(out.passed) << result.kernel << ": " << out.detail;
        }
      }
    }
  }
}

// Nearly all weight on the keys whose values have the smallest descales by far: of blocks, and of
// pages in a block.
TEST_F(Quantised, SmallestDescalesOfTheLikeliestKeys) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (const int64_t page_size : {0, 1, 16}) {
      SCOPED_TRACE(testing::Message() << page_size);
      const CaseTensors tensors(case_of_blocks(dtype, page_size));
      const AttentionProblem& p = tensors.problem();
      ForwardArgs args = tensors.args();
      const std::vector<float> of_keys = changed(p, args.k_descale, [](int row, float descale) {
        return row % 4 == 0 ? 60 * descale : descale;
      });
      const std::vector<float> of_values = changed(p, args.v_descale, [&](int row, float descale) {
        return std::ldexp(descale, (page_size > 0 ? 4 : 11) * (row % 4));
      });
      args.k_descale = of_keys.data();
      args.v_descale = of_values.data();
      expect_accurate(p, args);
    }
  }
}

// Rows of q of any magnitude side by side, each of which GPUs take for f16 times a power of two.
// The descales of keys make the scores of the largest those of 1. A row of NaN is its own affair.
TEST_F(Quantised, QueriesOfEveryMagnitude) {
  constexpr struct {
    int64_t head_dim, head_dim_v, queries, descale_block;
    float softcap = 0.0f;
  } kCases[] = {{64, 64, 8, kDescaleBlock},  {128, 64, 8, kDescaleBlock},
                {192, 64, 8, kDescaleBlock}, {64, 64, 150, 0},
                {128, 128, 150, 0},          {128, 64, 70, 0, 5.0f}};
  for (const auto& [head_dim, head_dim_v, queries, descale_block, softcap] : kCases) {
    SCOPED_TRACE(testing::Message() << head_dim << ", " << queries << " queries");
    Case c = base_case(queries, head_dim, head_dim_v);
    c.desc.softcap = softcap;
    quantise(c.desc, descale_block, Descales::kContiguous);
    const CaseTensors tensors(c);
    const AttentionProblem& p = tensors.problem();
    ForwardArgs args = tensors.args();
    const auto* given = static_cast<const uint16_t*>(args.q);
    std::vector<uint16_t> q(given, given + p.batch * p.seqlen_q * p.heads_q * head_dim);
    for (size_t i = 0; i < q.size(); ++i) {
      const auto row = static_cast<int>(static_cast<int64_t>(i) / head_dim % 7);
      q[i] = float_to_bf16(std::ldexp(bf16_to_float(q[i]), 60 - 25 * row));
    }
    q[3 * head_dim + 5] = float_to_bf16(std::numeric_limits<float>::quiet_NaN());
    args.q = q.data();
    const std::vector<float> descales =
        changed(p, args.k_descale, [](int, float descale) { return std::ldexp(descale, -60); });
    args.k_descale = descales.data();
    expect_accurate(p, args);
  }
}

// One key a sequence, whose weight is 1: out is the numbers of its bytes, which all 16-bit types
// hold; NaN stays NaN.
TEST_F(Quantised, EveryByteIsItsNumber) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    ProblemDesc d;
    d.dtype = dtype;
    d.kv_dtype = DType::kE4M3;
    d.batch = d.seqlen_q = d.seqlen_k = d.heads_q = d.heads_kv = 1;
    d.head_dim = d.head_dim_v = 256;
    const AttentionProblem p = AttentionProblem::make(d);
    const std::vector<uint16_t> q(256);
    const std::vector<unsigned char> k(256);
    std::vector<unsigned char> v(256);
    for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<unsigned char>(i);
    ForwardArgs args;
    args.q = q.data();
    args.k = k.data();
    args.v = v.data();
    for (const Backend& backend : backends_that_take(p)) {
      SCOPED_TRACE(backend.name);
      const Result result = run_on(backend, p, args);
      for (int i = 0; i < 256; ++i) {
        const float expected = e4m3_to_float(static_cast<uint8_t>(i));
        const float found = load_as_float(dtype, result.out.data(), i);
        EXPECT_TRUE(found == expected || (std::isnan(found) && std::isnan(expected)))
            << "byte " << i << ": " << found << ", not " << expected;
      }
    }
  }
}

// The same with a descale that 16 bits round: a weight that took it would be rounded with it, and
// out once more. Of heads, and of 128 keys and of a page, which are all of a short sequence.
TEST_F(Quantised, OneKeysNumbersAreRoundedOnce) {
  constexpr int64_t kPage = 16;
  for (const int64_t block : {int64_t{0}, kDescaleBlock, kPage}) {
    for (const float descale : {1.0029f, -0.6886f, 1.41e-12f}) {
      ProblemDesc d;
      d.dtype = DType::kBF16;
      d.kv_dtype = DType::kE4M3;
      d.batch = d.seqlen_q = d.seqlen_k = d.heads_q = d.heads_kv = 1;
      d.head_dim = d.head_dim_v = 128;
      d.has_descales = true;
      d.descale_block = block;
      if (block == kPage) {
        d.layout_kv = Layout::kPaged;
        d.page_size = kPage;
        d.num_pages = d.pages_per_seq = 1;
      }
      const AttentionProblem p = AttentionProblem::make(d);
      const std::vector<uint16_t> q(128);
      const std::vector<unsigned char> k(kPage * 128);
      std::vector<unsigned char> v(kPage * 128);
      for (size_t i = 0; i < 127; ++i) v[i] = static_cast<unsigned char>(i);  // 127 is NaN
      const float one = 1.0f;
      const int32_t first_page = 0, one_key = 1;
      ForwardArgs args;
      args.q = q.data();
      args.k = k.data();
      args.v = v.data();
      args.k_descale = &one;
      args.v_descale = &descale;
      if (block == kPage) args.page_table = &first_page, args.seqused_k = &one_key;
      for (const Backend& backend : backends_that_take(p)) {
        SCOPED_TRACE(testing::Message() << backend.name << ", " << block << ", " << descale);
        const Result result = run_on(backend, p, args);
        for (int i = 0; i < 127; ++i) {
          const float exact = e4m3_to_float(static_cast<uint8_t>(i)) * descale;
          const float expected = bf16_to_float(float_to_bf16(exact));
          EXPECT_EQ(load_as_float(p.dtype, result.out.data(), i), expected) << "byte " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace fa4::internal
