// Launches one behind the other on a GPU: each may begin while the one before it ends (programmatic
// dependent launch), and must see all that it wrote: lengths, page tables, queries. On emulated
// GPUs the checker makes an access that does not wait for it an error, whatever it finds there.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "device_memory.h"

namespace {

constexpr int64_t kBatch = 4, kRows = 400;  // keys of a sequence, at most, and of a page
constexpr std::array<int32_t, kBatch> kLengths = {400, 0, 129, 384}, kPages = {2, 0, 3, 1};
constexpr std::array<int32_t, kBatch> kLast = {399, 0, 128, 383};    // key of each
constexpr std::array<int32_t, kBatch> kStarts = {0, 130, 131, 132};  // of packed queries
constexpr int64_t kPacked = 134;                                     // of them

// Of so many keys, at most, that a GPU makes two launches of them, which run side by side: every
// page of a sequence is the same.
void pack_queries(fa4::Problem& p) {
  p.layout_q = FA4_PACKED;
  p.seqlen_q = 130;
  p.total_q = kPacked;
  p.causal = 1;
  if (p.layout_kv != FA4_PAGED) return;
  p.pages_per_seq = 20;
  p.seqlen_k = p.pages_per_seq * p.page_size;
  p.page_table_strides[0] = 1;
}

struct Kind {
  const char* name;
  std::function<void(fa4::Problem&)> change;
};
const Kind kKinds[] = {
    {"whole tiles of few rows", [](fa4::Problem& p) { p.num_splits = 1; }},
    {"parts that a cluster puts together", [](fa4::Problem& p) { p.split_keys = 128; }},
    {"parts that a second kernel puts together",
     [](fa4::Problem& p) {
       p.split_keys = 128;
       p.head_dim = 256;
     }},
    {"causal tiles of many rows",
     [](fa4::Problem& p) {
       p.seqlen_q = 150;
       p.causal = 1;
     }},
    {"keys of bytes", [](fa4::Problem& p) { p.kv_dtype = FA4_E4M3; }},
    {"keys of bytes in parts",
     [](fa4::Problem& p) {
       p.kv_dtype = FA4_E4M3;
       p.split_keys = 128;
     }},
    {"prompts and decoding",
     [](fa4::Problem& p) {
       pack_queries(p);
       p.num_splits = 1;
     }},
    {"prompts and decoding in parts", [](fa4::Problem& p) { pack_queries(p); }},
    {"prompts and decoding, keys of bytes",
     [](fa4::Problem& p) {
       pack_queries(p);
       p.num_splits = 1;
       p.kv_dtype = FA4_E4M3;
     }},
    {"prompts and decoding in parts, keys of bytes",
     [](fa4::Problem& p) {
       pack_queries(p);
       p.kv_dtype = FA4_E4M3;
     }},
};

fa4::Problem problem_of(const Kind& kind, bool paged) {
  fa4::Problem p;
  p.dtype = FA4_BF16;
  p.batch = kBatch;
  p.seqlen_q = 1;
  p.seqlen_k = kRows;
  p.heads_q = 4;
  p.heads_kv = 2;
  p.head_dim = 64;
  if (paged) {
    p.layout_kv = FA4_PAGED;
    p.page_size = kRows;
    p.pages_per_seq = 1;
    p.num_pages = kBatch;
    p.has_seqused_k = 1;
  }
  kind.change(p);
  return p;
}

// Lengths and a page table lie as two rows of eight numbers of 16 bits, which fa4_append copies.
void copy_indices(const fa4::Device& device, const DeviceMemory& lengths, const DeviceMemory& pages,
                  const DeviceMemory& to_lengths, const DeviceMemory& to_pages,
                  const DeviceMemory& position) {
  fa4::Problem p;
  p.dtype = FA4_BF16;
  p.batch = p.seqlen_q = p.seqlen_k = p.heads_q = p.heads_kv = 1;
  p.head_dim = 8;
  fa4::AppendArgs args;
  args.k = lengths.as<void>();
  args.v = pages.as<void>();
  args.k_cache = to_lengths.as<void>();
  args.v_cache = to_pages.as<void>();
  args.positions = position.as<int32_t>();
  fa4::append(device, p, args);
}

// The last key of each sequence.
void append_keys(const fa4::Device& device, fa4::Problem p, const DeviceMemory& rows,
                 const DeviceMemory& k, const DeviceMemory& v, const DeviceMemory& pages,
                 const DeviceMemory& positions) {
  p.layout_q = FA4_DENSE;
  p.seqlen_q = 1;
  p.total_q = 0;
  p.causal = 0;
  p.num_splits = p.split_keys = 0;
  fa4::AppendArgs args;
  args.k = args.v = rows.as<void>();
  args.k_cache = k.as<void>();
  args.v_cache = v.as<void>();
  args.positions = positions.as<int32_t>();
  if (p.layout_kv == FA4_PAGED) args.page_table = pages.as<int32_t>();
  fa4::append(device, p, args);
}

class LaunchOrder : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    fa4_device* device = nullptr;
    if (fa4_open_device(GetParam(), &device) != FA4_OK) GTEST_SKIP() << fa4_last_error();
    fa4_close_device(device);
  }

  // Keys are written, then lengths and a page table where there are any, then attention three
  // times, each of the out before it, the last one in the place of the first's. Waits for each
  // launch's end but where `chained`.
  static Bytes run(const fa4::Device& device, const fa4::Problem& p, bool chained) {
    const fa4::Plan plan(device, p);
    const fa4::ForwardOp op(plan);
    const auto rows_of = [&](int64_t rows, int64_t heads, uint32_t seed) {
      return numbers(static_cast<size_t>(rows * heads * p.head_dim), seed);
    };
    const auto rows = [&](int64_t of_a_sequence, int64_t heads, uint32_t seed) {
      return rows_of(kBatch * of_a_sequence, heads, seed);
    };
    const bool packed = p.layout_q == FA4_PACKED;
    const std::vector<uint16_t> q = rows_of(packed ? kPacked : kBatch * p.seqlen_q, p.heads_q, 1);
    const auto copy_of = [&](const auto& data) {
      return DeviceMemory(device.get(), data.data(), data.size() * sizeof data[0]);
    };
    std::vector<uint16_t> keys = rows(kRows, p.heads_kv, 2);
    if (p.kv_dtype == FA4_E4M3) {
      for (uint16_t& two : keys) two &= 0xbfbf;  // below 2: no byte is a NaN
    }
    const std::vector<uint16_t> nothing(q.size(), 0);
    const std::vector<int32_t> zeros(kBatch, 0);
    const std::vector<unsigned char> scratch(std::max<size_t>(plan.workspace_bytes(), 256), 0xff);
    const auto queries = copy_of(q), k = copy_of(keys);
    const auto v = copy_of(keys), new_keys = copy_of(rows(1, p.heads_kv, 3));
    const auto first = copy_of(nothing), second = copy_of(nothing), workspace = copy_of(scratch);
    const auto lengths = copy_of(zeros), pages = copy_of(zeros), position = copy_of(zeros);
    const auto from_lengths = copy_of(kLengths), from_pages = copy_of(kPages);
    const auto last = copy_of(kLast), from_starts = copy_of(kStarts);
    std::vector<int32_t> only_end(kBatch + 1, 0);
    only_end.back() = kPacked;
    const auto starts = copy_of(only_end), unused = copy_of(zeros);
    const auto end_launch = [&] {
      if (!chained) static_cast<void>(lengths.fetch());
    };

    append_keys(device, p, new_keys, k, v, from_pages, last);
    end_launch();
    if (p.layout_kv == FA4_PAGED) {  // else the new keys are what is waited for
      copy_indices(device, from_lengths, from_pages, lengths, pages, position);
      end_launch();
    }
    if (packed) {
      copy_indices(device, from_starts, from_pages, starts, unused, position);
      end_launch();
    }
    fa4::ForwardArgs args;
    args.cu_seqlens_q = packed ? starts.as<int32_t>() : nullptr;
    args.k = k.as<void>();
    args.v = v.as<void>();
    if (p.layout_kv == FA4_PAGED) {
      args.seqused_k = lengths.as<int32_t>();
      args.page_table = pages.as<int32_t>();
    }
    args.workspace = workspace.as<void>();
    args.workspace_bytes = scratch.size();
    const DeviceMemory* const chain[] = {&queries, &first, &second, &first};
    for (int i = 0; i < 3; ++i) {
      args.q = chain[i]->as<void>();
      args.out = chain[i + 1]->as<void>();
      op.execute(args);
      end_launch();
    }
    return first.fetch();
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, LaunchOrder,
                         testing::Values("emulated:h200", "emulated:b200", "cuda:0"),
                         [](const auto& info) {
                           const std::string name = info.param;
                           return name.substr(name.find(':') + 1);
                         });

TEST_P(LaunchOrder, ACallSeesWhatTheLaunchesBeforeItWrote) {
  const fa4::Device device(GetParam());
  const int rounds = std::string(GetParam()) == "cuda:0" ? 50 : 1;
  for (const Kind& kind : kKinds) {
    for (const bool paged : {false, true}) {
      SCOPED_TRACE(std::string(kind.name) + (paged ? ", in pages" : ""));
      const fa4::Problem p = problem_of(kind, paged);
      if (p.layout_q == FA4_PACKED && !paged) continue;  // few keys: one launch
      const bool two = fa4::Plan(device, p).describe().find("few queries") != std::string::npos;
      EXPECT_EQ(two, p.layout_q == FA4_PACKED);
      const Bytes wanted = run(device, p, false);
      EXPECT_NE(wanted, Bytes(wanted.size(), 0));
      for (int round = 0; round < rounds; ++round) EXPECT_EQ(run(device, p, true), wanted);
    }
  }
}

}  // namespace
