#include "table.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "jit/hash.h"
#include "plan/forward_plan.h"

namespace fa4::internal {
namespace {

Case base(DType dtype) {
  Case c;
  c.desc.dtype = dtype;
  c.desc.batch = 2;
  c.desc.heads_q = c.desc.heads_kv = 2;
  c.desc.seqlen_q = 150;
  c.desc.seqlen_k = 210;
  c.desc.head_dim = 64;
  c.seed = 3;
  return c;
}

void set_lengths(Case& c, int64_t seqlen_q, int64_t seqlen_k) {
  c.desc.seqlen_q = seqlen_q;
  c.desc.seqlen_k = seqlen_k;
}

void page(Case& c, int64_t page_size) {
  ProblemDesc& d = c.desc;
  d.layout_kv = Layout::kPaged;
  d.page_size = page_size;
  d.pages_per_seq = (d.seqlen_k + page_size - 1) / page_size;
  d.seqlen_k = d.pages_per_seq * page_size;
  d.num_pages = d.batch * d.pages_per_seq + 1;
  d.has_seqused_k = true;
  c.seqused_k = {static_cast<int32_t>(d.seqlen_k - 3), static_cast<int32_t>(d.seqlen_k / 2)};
}

const Row kRows[] = {
    {"dense", [](Case&) {}},
    {"causal", [](Case& c) { c.desc.causal = true; }},
    {"causal, more queries than keys",
     [](Case& c) {
       set_lengths(c, 210, 150);
       c.desc.causal = true;
     }},
    {"window",
     [](Case& c) {
       c.desc.window = {40, 20};
     }},
    {"window of the diagonal",
     [](Case& c) {
       c.desc.window = {0, 0};
     }},
    {"window, left only",
     [](Case& c) {
       c.desc.window = {33, -1};
     }},
    {"window, right only",
     [](Case& c) {
       c.desc.window = {-1, 7};
     }},
    {"window and causal",
     [](Case& c) {
       c.desc.causal = true;
       c.desc.window = {64, 5};
     }},
    {"window that ends before the position",
     [](Case& c) {
       c.desc.window = {70, -20, 2};
     }},
    {"window that ends before the position, without a beginning",
     [](Case& c) {
       set_lengths(c, 260, 150);
       c.desc.window = {-1, -33, 2};
       c.desc.causal = true;
       c.desc.has_sink = true;
     }},
    {"window that begins after the position",
     [](Case& c) {
       c.desc.window = {-5, 100, 1};
       c.desc.heads_q = 6;
     }},
    {"window that begins after the position, without an end",
     [](Case& c) {
       c.desc.window = {-140, -1, 1};
     }},
    {"window before the position, packed",
     [](Case& c) {
       pack(c, {130, 0, 20, 200}, {100, 17, 300, 140});
       c.desc.window = {-1, -1, 2};
     }},
    {"window that holds nothing",
     [](Case& c) {
       c.desc.window = {3, -5, 3};
       c.desc.has_sink = true;
     }},
    {"softcap", [](Case& c) { c.desc.softcap = 8; }},
    // FLT_MAX / x * x is no float for x of 17 log2(e): rows whose first block hides all of them.
    {"softcap, causal",
     [](Case& c) {
       set_lengths(c, 210, 150);
       c.desc.softcap = 17;
       c.desc.causal = true;
     }},
    {"softcap, rows that see nothing",
     [](Case& c) {
       set_lengths(c, 210, 150);
       c.desc.causal = true;
       c.desc.softcap = 34;
     }},
    {"large scale, rows that see nothing",
     [](Case& c) {
       set_lengths(c, 210, 150);
       c.desc.causal = true;
       c.desc.softmax_scale = 1.3f;
     }},
    {"own scale", [](Case& c) { c.desc.softmax_scale = 0.3f; }},
    {"negative scale", [](Case& c) { c.desc.softmax_scale = -0.2f; }},
    {"scale 0", [](Case& c) { c.desc.softmax_scale = 0.0f; }},
    {"wide scores", [](Case& c) { c.amplitude = 8; }},
    {"grouped heads",
     [](Case& c) {
       c.desc.heads_q = 6;
       c.desc.causal = true;
     }},
    {"one key head",
     [](Case& c) {
       c.desc.heads_q = 8;
       c.desc.heads_kv = 1;
     }},
    {"one query, group of 7",
     [](Case& c) {
       set_lengths(c, 1, 210);
       c.desc.heads_q = 14;
     }},
    {"group of 3, causal",
     [](Case& c) {
       set_lengths(c, 19, 150);
       c.desc.heads_q = 6;
       c.desc.causal = true;
       c.desc.has_sink = true;
     }},
    {"group of 96",
     [](Case& c) {
       set_lengths(c, 3, 150);
       c.desc.heads_q = 96;
       c.desc.heads_kv = 1;
     }},
    {"group of 128, packed",
     [](Case& c) {
       pack(c, {1, 0, 2, 3}, {80, 17, 0, 140});
       c.desc.heads_q = 128;
       c.desc.heads_kv = 1;
       c.desc.causal = true;
     }},
    {"group of 12, packed",
     [](Case& c) {
       pack(c, {1, 0, 17, 3}, {80, 17, 40, 140});
       c.desc.heads_q = 24;
     }},
    {"sink",
     [](Case& c) {
       c.desc.has_sink = true;
       c.desc.causal = true;
       set_lengths(c, 200, 130);
     }},
    {"sink in bf16",
     [](Case& c) {
       c.desc.has_sink = true;
       c.desc.sink_dtype = DType::kBF16;
       c.desc.causal = true;
       set_lengths(c, 200, 130);
     }},
    {"sink in f16, odd heads",
     [](Case& c) {
       c.desc.heads_q = c.desc.heads_kv = 3;
       c.desc.has_sink = true;
       c.desc.sink_dtype = DType::kF16;
     }},
    {"head_dim 8", [](Case& c) { c.desc.head_dim = 8; }},
    {"head_dim 40, 72",
     [](Case& c) {
       c.desc.head_dim = 40;
       c.desc.head_dim_v = 72;
     }},
    {"head_dim 96", [](Case& c) { c.desc.head_dim = 96; }},
    {"head_dim 128", [](Case& c) { c.desc.head_dim = 128; }},
    {"head_dim 192, 128",
     [](Case& c) {
       c.desc.head_dim = 192;
       c.desc.head_dim_v = 128;
     }},
    {"head_dim 256", [](Case& c) { c.desc.head_dim = 256; }},
    {"one query, many keys",
     [](Case& c) {
       set_lengths(c, 1, 1500);
       c.desc.heads_q = 8;
     }},
    {"one key", [](Case& c) { set_lengths(c, 70, 1); }},
    {"no keys", [](Case& c) { set_lengths(c, 70, 0); }},
    {"no keys but a sink",
     [](Case& c) {
       set_lengths(c, 70, 0);
       c.desc.has_sink = true;
     }},
    {"no queries", [](Case& c) { set_lengths(c, 0, 70); }},
    {"no sequences", [](Case& c) { c.desc.batch = 0; }},
    {"keys in use",
     [](Case& c) {
       c.desc.has_seqused_k = true;
       c.desc.causal = true;
       c.seqused_k = {0, 130};
     }},
    {"queries in use",
     [](Case& c) {
       c.desc.has_seqused_q = true;
       c.desc.causal = true;
       c.seqused_q = {0, 130};
     }},
    {"packed, queries and keys in use",
     [](Case& c) {
       pack(c, {100, 0, 1, 129, 64}, {80, 17, 0, 300, 64});
       c.desc.has_seqused_q = c.desc.has_seqused_k = true;
       c.desc.causal = true;
       c.seqused_q = {100, 0, 0, 77, 33};
       c.seqused_k = {31, 17, 0, 300, 64};
     }},
    {"packed",
     [](Case& c) {
       pack(c, {100, 0, 1, 129, 64}, {80, 17, 0, 300, 64});
     }},
    {"packed, causal",
     [](Case& c) {
       pack(c, {100, 0, 1, 129, 64}, {80, 17, 0, 300, 64});
       c.desc.causal = true;
     }},
    {"packed, room behind",
     [](Case& c) {
       pack(c, {50, 70}, {60, 90});
       c.desc.total_q += 33;
       c.desc.total_k += 200;
     }},
    {"packed, all empty",
     [](Case& c) {
       pack(c, {0, 0}, {0, 0});
     }},
    {"pages of 1", [](Case& c) { page(c, 1); }},
    {"pages of 16", [](Case& c) { page(c, 16); }},
    {"pages of 48",
     [](Case& c) {
       page(c, 48);
       c.desc.causal = true;
     }},
    {"strided",
     [](Case& c) {
       ProblemDesc& d = c.desc;
       d.q = {150 * 256, 256, 64};
       d.k = {2 * 64 * 210, 64, 64 * 210};
       d.v = {210 * 136, 136, 64};
       d.out = {2 * 64 * 150, 64, 64 * 150};
     }},
};

}  // namespace

void pack(Case& c, std::vector<int32_t> lengths_q, std::vector<int32_t> lengths_k) {
  ProblemDesc& d = c.desc;
  d.layout_q = d.layout_kv = Layout::kPacked;
  d.batch = static_cast<int64_t>(lengths_q.size());
  d.seqlen_q = d.seqlen_k = d.total_q = d.total_k = 0;
  for (const int32_t n : lengths_q) {
    d.seqlen_q = std::max<int64_t>(d.seqlen_q, n);
    d.total_q += n;
  }
  for (const int32_t n : lengths_k) {
    d.seqlen_k = std::max<int64_t>(d.seqlen_k, n);
    d.total_k += n;
  }
  c.lengths_q = std::move(lengths_q);
  c.lengths_k = std::move(lengths_k);
}

void put_in_pages(Case& c, int64_t page_size) {
  ProblemDesc& d = c.desc;
  d.layout_kv = Layout::kPaged;
  d.page_size = page_size;
  d.pages_per_seq = (d.seqlen_k + page_size - 1) / page_size;
  d.num_pages = d.batch * d.pages_per_seq + 2;
  d.k = d.v = {};
}

std::span<const Row> conformance_rows() { return kRows; }

Case make_row(const Row& row, DType dtype) {
  Case c = base(dtype);
  row.change(c);
  return c;
}

std::vector<Backend> emulated_backends(const std::string& name) {
  std::vector<Backend> backends;
  backends.push_back({name, cli::open_device(name), std::nullopt});
  try {
    const CaseTensors tensors(make_row(kRows[0], DType::kBF16));
    run_on(backends.front(), tensors.problem(), tensors.args());
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCompiler) throw;
    backends.clear();
  }
  return backends;
}

int expect_answers(const Row& row, DType dtype, std::span<const Backend> backends) {
  const CaseTensors tensors(make_row(row, dtype));
  const AttentionProblem& p = tensors.problem();
  const Reference reference = reference_forward(p, tensors.args(), 2);
  int ran = 0;
  for (const Backend& backend : backends) {
    if (!unsupported(backend, p).empty()) continue;
    SCOPED_TRACE(std::string(row.name) + ", " + std::string(name_of(dtype)) + ", " + backend.name);
    const Result result = run_on(backend, p, tensors.args());
    ++ran;
    expect_accurate(p, tensors.args(), reference, result);
    testing::Test::RecordProperty(
        fmt::format("{}, {}, {}", row.name, name_of(dtype), backend.name),
        to_hex(hash128(result.out.data(), result.out.size())) + " " +
            to_hex(hash128(result.lse.data(), result.lse.size() * sizeof(float))));
  }
  return ran;
}

int expect_all_answers(std::span<const Backend> backends) {
  int ran = 0;
  for (const Row& row : kRows) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      ran += expect_answers(row, dtype, backends);
    }
  }
  return ran;
}

}  // namespace fa4::internal
