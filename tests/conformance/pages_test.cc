// Keys and values in pages: every size of a page, whatever the table's unused entries and the
// pages' unused rows hold, has the bits of the same keys one after the other.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "backends.h"
#include "table.h"

namespace fa4::internal {
namespace {

class Pages : public BackendTest {};

constexpr int32_t kGarbage = 2147480000;  // what engines leave in a table's unused entries

// Its keys lie in pages; spare ones are NaN.
void put_in_pages(Case& c, int64_t page_size, std::vector<int32_t> in_use) {
  ProblemDesc& d = c.desc;
  d.layout_kv = Layout::kPaged;
  d.page_size = page_size;
  d.pages_per_seq = (d.seqlen_k + page_size - 1) / page_size;
  d.num_pages = d.batch * d.pages_per_seq + 2;
  d.has_seqused_k = true;
  c.lengths_k.clear();
  c.seqused_k = std::move(in_use);
}

// A case's tensors with garbage behind the entries of the table that are in use, and the same keys
// without pages.
struct PagedTensors {
  CaseTensors tensors;
  std::vector<int32_t> table;
  std::vector<unsigned char> k, v;  // (batch, seqlen_k, heads_kv, dim), NaN behind what is in use

  explicit PagedTensors(const Case& c) : tensors(c) {
    const AttentionProblem& p = problem();
    const ForwardArgs args = tensors.args();
    table.assign(static_cast<size_t>(p.batch * p.page_table_heads * p.pages_per_seq), kGarbage);
    k = unpaged(args.k, p.k, p.head_dim);
    v = unpaged(args.v, p.v, p.head_dim_v);
    for (int64_t b = 0; b < p.batch; ++b) {
      for (int64_t h = 0; h < p.page_table_heads; ++h) {
        for (int64_t i = 0; i * p.page_size < args.seqused_k[b] - p.prefix_len; ++i) {
          table[(b * p.page_table_heads + h) * p.pages_per_seq + i] = page_of(p, args, b, h, i);
        }
      }
    }
  }

  const AttentionProblem& problem() const { return tensors.problem(); }
  ForwardArgs args() const {
    ForwardArgs args = tensors.args();
    args.page_table = table.data();
    return args;
  }

  AttentionProblem unpaged_problem() const {
    ProblemDesc d = problem();
    d.layout_kv = Layout::kDense;
    d.prefix_len = 0;
    d.k = d.v = d.dk = d.dv = {};
    return AttentionProblem::make(d);
  }
  ForwardArgs unpaged_args() const {
    ForwardArgs args = tensors.args();
    args.page_table = args.prefix_pages = nullptr;
    args.k = k.data();
    args.v = v.data();
    return args;
  }

 private:
  std::vector<unsigned char> unpaged(const void* pages, const Strides& strides, int64_t dim) const {
    const AttentionProblem& p = problem();
    const ForwardArgs args = tensors.args();
    const int64_t bytes = size_of(p.dtype), row = p.heads_kv * dim;
    std::vector<unsigned char> rows(
        static_cast<size_t>(std::max<int64_t>(1, p.batch * p.seqlen_k * row) * bytes), 0xff);
    for (int64_t b = 0; b < p.batch; ++b) {
      for (int64_t n = 0; n < args.seqused_k[b]; ++n) {
        for (int64_t h = 0; h < p.heads_kv; ++h) {
          const PageRow at = page_row_of(p, args, b, h, n);
          const int64_t from = at.page * strides.batch + at.row * strides.seqlen + h * strides.head;
          std::memcpy(rows.data() + ((b * p.seqlen_k + n) * row + h * dim) * bytes,
                      static_cast<const unsigned char*>(pages) + from * bytes,
                      static_cast<size_t>(dim * bytes));
        }
      }
    }
    return rows;
  }
};

// Each backend that takes it has the oracle's answer and the bits of the keys without pages.
int expect_bits_of_contiguous(const Case& c) {
  const PagedTensors paged(c);
  const AttentionProblem& p = paged.problem();
  const Reference reference = reference_forward(p, paged.args(), 2);
  int ran = 0;
  for (const Backend& backend : backends_that_take(p)) {
    SCOPED_TRACE(backend.name);
    ++ran;
    const Result result = run_on(backend, p, paged.args());
    expect_accurate(p, paged.args(), reference, result);
    const Result contiguous = run_on(backend, paged.unpaged_problem(), paged.unpaged_args());
    EXPECT_TRUE(same_bits(result, contiguous)) << result.kernel << ", " << contiguous.kernel;
  }
  return ran;
}

constexpr int64_t kKeyHeads = 2;

Case base_case(int64_t head_dim) {
  Case c;
  ProblemDesc& d = c.desc;
  d.batch = 3;
  d.heads_q = 4;
  d.heads_kv = kKeyHeads;
  d.seqlen_q = 70;
  d.seqlen_k = 544;
  d.head_dim = head_dim;
  d.causal = true;
  c.seed = 31;
  return c;
}

constexpr int64_t kSizes[] = {1, 2, 4, 8, 16, 24, 48, 57, 64, 128, 272, 544};

TEST_F(Pages, OfEverySizeHaveTheBitsOfNone) {
  int ran = 0;
  for (const int64_t page_size : kSizes) {
    SCOPED_TRACE(page_size);
    Case c = base_case(page_size % 3 == 0 ? 128 : 64);
    put_in_pages(c, page_size, {544, 0, 301});
    ran += expect_bits_of_contiguous(c);
  }
  EXPECT_GE(ran, 12);
}

// Engines hand out columns and rows of larger tables.
TEST_F(Pages, OfTablesThatAreSlices) {
  int ran = 0;
  for (const int64_t page_size : {1, 16}) {
    SCOPED_TRACE(page_size);
    Case c = base_case(64);
    put_in_pages(c, page_size, {544, 0, 301});
    const PagedTensors paged(c);
    ProblemDesc d = paged.problem();
    d.page_table = {2 * d.pages_per_seq + 5, 2, 0};
    const AttentionProblem problem = AttentionProblem::make(d);
    std::vector<int32_t> table(static_cast<size_t>(d.batch * d.page_table.batch), kGarbage);
    for (int64_t b = 0; b < d.batch; ++b) {
      for (int64_t i = 0; i < d.pages_per_seq; ++i) {
        table[b * d.page_table.batch + 2 * i] = paged.table[b * d.pages_per_seq + i];
      }
    }
    ForwardArgs args = paged.args();
    args.page_table = table.data();
    for (const Backend& backend : backends_that_take(problem)) {
      SCOPED_TRACE(backend.name);
      ++ran;
      EXPECT_TRUE(run_on(backend, problem, args).out ==
                  run_on(backend, paged.problem(), paged.args()).out);
    }
  }
  EXPECT_GE(ran, 2);
}

// The first keys of all sequences on pages that they share: whole pages, a part of the last, fewer
// than a page, more keys than a sequence has.
TEST_F(Pages, OfSharedPrefixes) {
  int ran = 0;
  for (const int64_t page_size : {1, 16, 24, 64}) {
    for (const int64_t prefix_len : {5, 64, 130, 304}) {
      SCOPED_TRACE(testing::Message() << prefix_len << " on pages of " << page_size);
      Case c = base_case(prefix_len % 4 == 0 ? 128 : 64);
      put_in_pages(c, page_size, {544, 60, 301});
      c.desc.prefix_len = prefix_len;
      c.desc.num_pages += (prefix_len + page_size - 1) / page_size;
      ran += expect_bits_of_contiguous(c);
    }
  }
  EXPECT_GE(ran, 16);
}

// A key head may keep other keys than another one.
TEST_F(Pages, OfEachHead) {
  int ran = 0;
  for (const int64_t page_size : {4, 16}) {
    SCOPED_TRACE(page_size);
    Case c = base_case(96);
    put_in_pages(c, page_size, {544, 0, 301});
    c.desc.page_table_heads = c.desc.heads_kv;
    ran += expect_bits_of_contiguous(c);
    c.desc.prefix_len = 40;
    c.desc.num_pages += 40 / page_size + 1;
    ran += expect_bits_of_contiguous(c);
  }
  EXPECT_GE(ran, 4);
}

TEST_F(Pages, OfEveryHeadDim) {
  constexpr struct {
    int64_t head_dim, head_dim_v;
  } kDims[] = {{8, 8}, {96, 96}, {72, 40}, {192, 128}, {192, 192}, {256, 256}};
  for (const auto& dims : kDims) {
    for (const int64_t page_size : {1, 24, 64}) {
      SCOPED_TRACE(testing::Message() << dims.head_dim << ", pages of " << page_size);
      Case c = base_case(dims.head_dim);
      c.desc.head_dim_v = dims.head_dim_v;
      c.desc.dtype = page_size == 64 ? DType::kF16 : DType::kBF16;
      c.desc.causal = page_size == 64;
      put_in_pages(c, page_size, {544, 129, 7});
      expect_bits_of_contiguous(c);
    }
  }
}

// Warpgroups of Hopper that visit blocks of their own (num_splits 1 asks for such tiles, however
// few they are), also under windows. Those that copy rows of 64 columns have tiles of half as many
// rows.
TEST_F(Pages, OfIndependentWarpgroups) {
  for (const int64_t head_dim : {64, 96, 128}) {
    for (const int64_t page_size : {3, 16}) {
      SCOPED_TRACE(testing::Message() << head_dim << ", pages of " << page_size);
      Case c = base_case(head_dim);
      c.desc.batch = 2;
      c.desc.seqlen_q = 400;
      c.desc.num_splits = 1;
      if (head_dim > 64) c.desc.window = {150, 0};
      if (head_dim == 96) c.desc.seqlen_k = 3104;
      put_in_pages(c, page_size, {static_cast<int32_t>(c.desc.seqlen_k), 301});
      expect_bits_of_contiguous(c);
    }
  }
}

// From 2048 keys on tiles have other shapes; three consumer warpgroups on Hopper. Boxes of 8 rows
// are found four blocks at a time.
TEST_F(Pages, OfLongSequences) {
  for (const int64_t head_dim : {64, 128}) {
    for (const int64_t page_size : {4, 24, 32, 256}) {
      SCOPED_TRACE(page_size);
      Case c = base_case(head_dim);
      c.desc.seqlen_q = 200;
      c.desc.seqlen_k = 2304;
      c.desc.batch = 1;
      c.desc.causal = false;
      put_in_pages(c, page_size, {2130});
      expect_bits_of_contiguous(c);
    }
  }
}

struct Variant {
  const char* name;
  std::function<void(ProblemDesc&)> change;
};
const Variant kVariants[] = {
    {"window",
     [](ProblemDesc& d) {
       d.causal = false;
       d.window = {100, 20};
     }},
    {"window behind the position",
     [](ProblemDesc& d) {
       d.causal = false;
       d.window = {300, -90, 2};
     }},
    {"softcap", [](ProblemDesc& d) { d.softcap = 9; }},
    {"negative scale", [](ProblemDesc& d) { d.softmax_scale = -0.1f; }},
    {"sink", [](ProblemDesc& d) { d.has_sink = true; }},
    {"one query", [](ProblemDesc& d) { d.seqlen_q = 1; }},
    {"four queries, group of 8",
     [](ProblemDesc& d) {
       d.seqlen_q = 4;
       d.heads_q = 16;
     }},
    {"more queries than keys", [](ProblemDesc& d) { d.seqlen_q = 700; }},
};

TEST_F(Pages, UnderEveryOption) {
  for (const Variant& variant : kVariants) {
    for (const int64_t page_size : {2, 48}) {
      SCOPED_TRACE(testing::Message() << variant.name << ", pages of " << page_size);
      Case c = base_case(64);
      variant.change(c.desc);
      put_in_pages(c, page_size, {544, 250, 31});
      expect_bits_of_contiguous(c);
    }
  }
}

// What engines send: packed queries over a cache.
TEST_F(Pages, OfPackedQueries) {
  for (const int64_t page_size : {1, 16, 128}) {
    SCOPED_TRACE(page_size);
    Case c = base_case(128);
    pack(c, {70, 0, 1, 129, 64}, {80, 17, 40, 300, 64});
    put_in_pages(c, page_size, {80, 17, 40, 300, 64});
    expect_bits_of_contiguous(c);
    c.desc.has_seqused_q = true;
    c.seqused_q = {33, 0, 1, 100, 0};
    expect_bits_of_contiguous(c);
  }
}

// Heads outside a page's rows, K beside V in each page, pages a row apart, which no groups of rows
// count, pages of V farther apart than those of K, and pages 16 bytes apart, which are no rows of a
// matrix that TMA could gather from.
TEST_F(Pages, OfOtherStrides) {
  for (const int64_t page_size : {16, 24, 3}) {
    for (const int64_t dim : {64, 128}) {
      const int64_t row = kKeyHeads * dim, page = page_size * row;
      const Strides heads_first{page, dim, page_size * dim}, beside{2 * page, row, dim},
          heads_first_beside{2 * page, dim, page_size * dim}, row_apart{page + row, row, dim},
          far_apart{3 * page, row, dim}, a_little_apart{page + 8, row, dim};
      const struct {
        Strides k, v;
      } cases[] = {
          {heads_first, heads_first}, {beside, beside},    {heads_first_beside, heads_first_beside},
          {row_apart, row_apart},     {beside, far_apart}, {a_little_apart, a_little_apart}};
      for (const auto& [k, v] : cases) {
        SCOPED_TRACE(testing::Message() << page_size << " x " << dim << ", strides " << k.batch
                                        << " " << k.seqlen << ", " << v.batch);
        Case c = base_case(dim);
        put_in_pages(c, page_size, {544, 250, 31});
        c.desc.k = k;
        c.desc.v = v;
        expect_bits_of_contiguous(c);
      }
    }
  }
}

// Two SMs: every ring goes round, from tile to tile, and tiles of one block or none come one after
// the other. Without splits a row's bits do not depend on the number of SMs.
TEST_F(Pages, OfManyTilesACta) {
  int ran = 0;
  for (const int64_t head_dim : {64, 128, 192, 256}) {
    for (const int64_t page_size : {1, 16, 256}) {
      SCOPED_TRACE(testing::Message() << head_dim << ", pages of " << page_size);
      Case c = base_case(head_dim);
      c.desc.batch = 6;
      c.desc.num_splits = 1;
      c.desc.seqlen_q = 150;
      c.desc.seqlen_k = 256;
      put_in_pages(c, page_size, {200, 0, 7, 130, 64, 256});
      const PagedTensors paged(c);
      for (const Backend& backend : backends_that_take(paged.problem())) {
        if (!backend.is_gpu()) continue;
        SCOPED_TRACE(backend.name);
        const Result wide = run_on(backend, paged.problem(), paged.args());
        const Result narrow = run_on(with_sms(backend, 2), paged.problem(), paged.args());
        EXPECT_TRUE(same_bits(narrow, wide)) << narrow.kernel;
        ++ran;
      }
    }
  }
  if (ran == 0) GTEST_SKIP() << "no GPU here";
}

// A GPU does not check the table: it clamps, and an emulated one would report an access outside the
// pages. Nor is there anything to read where there are no pages.
TEST_F(Pages, EntriesThatLieAreClamped) {
  bool any = false;
  for (const Backend& backend : tested_backends()) {
    if (!backend.is_gpu()) continue;
    any = true;
    SCOPED_TRACE(backend.name);
    for (const int64_t page_size : {1, 16, 128}) {
      Case c = base_case(64);
      put_in_pages(c, page_size, {544, 544, 544});
      PagedTensors paged(c);
      if (!unsupported(backend, paged.problem()).empty()) continue;
      const ForwardArgs args = paged.args();
      std::vector<int32_t> clamped = paged.table;
      const auto last = static_cast<int32_t>(c.desc.num_pages - 1);
      for (size_t i = 0; i < clamped.size(); i += 3) {
        paged.table[i] = i % 2 == 0 ? -1 - static_cast<int32_t>(i) : kGarbage;
        clamped[i] = i % 2 == 0 ? 0 : last;
      }
      const Result lies = run_on(backend, paged.problem(), args);
      paged.table = clamped;
      EXPECT_TRUE(run_on(backend, paged.problem(), paged.args()).out == lies.out);
      constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
      const std::vector<int32_t> lengths = {kMost, -7, kMost};
      ForwardArgs longer = paged.args();
      longer.seqused_k = lengths.data();
      EXPECT_NO_THROW(run_on(backend, paged.problem(), longer));

      Case none = base_case(64);
      put_in_pages(none, page_size, {0, 0, 0});
      none.desc.num_pages = 0;
      const CaseTensors empty(none);
      longer = empty.args();
      longer.page_table = paged.table.data();
      longer.seqused_k = lengths.data();
      const Result nothing = run_on(backend, empty.problem(), longer);
      EXPECT_TRUE(std::all_of(nothing.out.begin(), nothing.out.end(),
                              [](unsigned char byte) { return byte == 0; }));
    }
  }
  if (!any) GTEST_SKIP() << "no GPU here";
}

}  // namespace
}  // namespace fa4::internal
