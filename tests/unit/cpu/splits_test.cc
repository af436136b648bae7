// Keys cut into parts: right, and with bits that depend on where they are cut alone.
#include <cmath>
#include <limits>
#include <utility>

#include "cpu_run.h"

namespace fa4::internal {
namespace {

class CpuSplits : public CpuPathTest {};
INSTANTIATE_TEST_SUITE_P(Paths, CpuSplits, testing::ValuesIn(kAllPaths), path_name);

// Decoding: sequences of several lengths, one of them empty.
Case decode_case(DType dtype, int64_t seqlen_q = 1) {
  Case c;
  c.desc.dtype = dtype;
  c.desc.batch = 3;
  c.desc.seqlen_q = seqlen_q;
  c.desc.seqlen_k = 1500;
  c.desc.heads_q = 4;
  c.desc.heads_kv = 2;
  c.desc.head_dim = 72;
  c.desc.head_dim_v = 40;
  c.desc.causal = true;
  c.desc.has_seqused_k = true;
  c.seqused_k = {1500, 0, 771};
  c.seed = static_cast<uint64_t>(seqlen_q);
  return c;
}

CpuResult check_case(const Case& c, CpuIsa isa, int threads = 2) {
  const CaseTensors tensors(c);
  const AttentionProblem& p = tensors.problem();
  const CpuResult result = run_cpu(p, tensors.args(), isa, threads);
  expect_accurate(p, tensors.args(), reference_forward(p, tensors.args(), 2), result);
  return result;
}

TEST_P(CpuSplits, EveryNumberOfPartsIsAccurate) {
  for (DType dtype : dtypes()) {
    for (const int64_t splits : {0, 1, 2, 3, 7, 1000}) {
      Case c = decode_case(dtype, splits % 2 == 0 ? 1 : 5);
      c.desc.num_splits = splits;
      check_case(c, GetParam());
    }
  }
}

TEST_P(CpuSplits, MasksSoftcapAndSinks) {
  for (DType dtype : dtypes()) {
    for (const int64_t seqlen_q : {1, 4, 70}) {  // direct loops, and tiles of rows
      Case c = decode_case(dtype, seqlen_q);
      c.desc.split_keys = 256;
      c.desc.window = {300, 20};
      c.desc.causal = false;
      c.desc.softcap = 5;
      check_case(c, GetParam());
      c.desc.has_sink = true;
      c.desc.softcap = 0;
      check_case(c, GetParam());
      c.desc.window = {-400, -1, 1};  // behind the position: most rows see nothing
      check_case(c, GetParam());
    }
  }
}

// Scores so far apart that whole parts count for nothing.
TEST_P(CpuSplits, PartsThatUnderflow) {
  for (DType dtype : dtypes()) {
    Case c = decode_case(dtype, 2);
    c.desc.split_keys = 128;
    c.amplitude = 30;
    check_case(c, GetParam());
  }
}

// Heads apart from each other are tasks where there are too few of them, heads side by side always.
TEST_P(CpuSplits, ThreadsAndTasksChangeNoBit) {
  for (DType dtype : dtypes()) {
    for (const auto& [seqlen_q, apart] : {std::pair(1, false), {1, true}, {40, false}}) {
      Case c = decode_case(dtype, seqlen_q);
      c.desc.split_keys = 384;
      if (apart) c.desc.k = c.desc.v = {2 * 1500 * 72, 72, 1500 * 72};
      const CpuResult one = check_case(c, GetParam(), 1);
      EXPECT_EQ(one.spec.parts_are_tasks, one.spec.direct && !apart);
      bool tasks = false;
      for (const int threads : {2, 7, 64}) {
        const CpuResult other = check_case(c, GetParam(), threads);
        EXPECT_TRUE(one == other) << name_of(dtype) << ", " << threads << " threads";
        tasks |= other.spec.parts_are_tasks;
        // Both ways to go through the heads of a part.
        const bool together = threads == 2 && other.spec.direct && !apart;
        EXPECT_EQ(other.spec.heads_together, together ? 2 : 1);
      }
      EXPECT_EQ(tasks, seqlen_q == 1 && GetParam() != CpuIsa::kScalar);
    }
  }
}

// A sequence alone, and in a batch of any size whose plan has room for more keys.
TEST_P(CpuSplits, TheBatchChangesNoBit) {
  for (DType dtype : dtypes()) {
    for (const bool given : {false, true}) {
      Case c = decode_case(dtype);
      if (given) c.desc.split_keys = 256;
      const CaseTensors tensors(c);
      const CpuResult together = run_cpu(tensors.problem(), tensors.args(), GetParam());
      for (int64_t b = 0; b < c.desc.batch; ++b) {
        ProblemDesc d = c.desc;
        d.batch = 1;
        d.seqlen_k = c.seqused_k[b];
        d.has_seqused_k = false;
        ForwardArgs args = tensors.args();
        const int64_t bytes = size_of(dtype);
        args.q = static_cast<const char*>(args.q) + b * tensors.problem().q.batch * bytes;
        args.k = static_cast<const char*>(args.k) + b * tensors.problem().k.batch * bytes;
        args.v = static_cast<const char*>(args.v) + b * tensors.problem().v.batch * bytes;
        args.seqused_k = nullptr;
        const CpuResult alone = run_cpu(AttentionProblem::make(d), args, GetParam(), 3);
        const size_t size = alone.out.size();
        EXPECT_EQ(std::memcmp(alone.out.data(), together.out.data() + b * size, size), 0)
            << name_of(dtype) << ", sequence " << b;
        EXPECT_TRUE(std::equal(alone.lse.begin(), alone.lse.end(),
                               together.lse.begin() + b * alone.lse.size()));
      }
    }
  }
}

// The same keys on pages in disorder.
TEST_P(CpuSplits, PagesChangeNoBit) {
  for (DType dtype : dtypes()) {
    const Case dense = decode_case(dtype, 3);
    const CaseTensors tensors(dense);
    const CpuResult wanted = run_cpu(tensors.problem(), tensors.args(), GetParam());
    Case c = dense;
    c.desc.layout_kv = Layout::kPaged;
    c.desc.page_size = 100;
    c.desc.pages_per_seq = 15;
    c.desc.num_pages = 45;
    const AttentionProblem& p = tensors.problem();
    // Page i of the dense tensors' rows is page (i * 7) % 45 of these.
    std::vector<int32_t> table(45);
    std::vector<unsigned char> k(extents_of(p).k * size_of(dtype)),
        v(extents_of(p).v * size_of(dtype));
    const auto copy = [&](const void* from, std::vector<unsigned char>& to, int page) {
      const size_t bytes = to.size() / 45;
      std::memcpy(to.data() + bytes * table[page], static_cast<const char*>(from) + bytes * page,
                  bytes);
    };
    for (int i = 0; i < 45; ++i) {
      table[i] = i * 7 % 45;
      copy(tensors.args().k, k, i);
      copy(tensors.args().v, v, i);
    }
    ForwardArgs args = tensors.args();
    args.k = k.data();
    args.v = v.data();
    args.page_table = table.data();
    EXPECT_TRUE(run_cpu(AttentionProblem::make(c.desc), args, GetParam()) == wanted)
        << name_of(dtype);
  }
}

// Keys that all sequences share, on pages of their own or among each sequence's.
TEST_P(CpuSplits, ASharedPrefixChangesNoBit) {
  for (DType dtype : dtypes()) {
    Case c = decode_case(dtype, 3);
    c.desc.layout_kv = Layout::kPaged;
    c.desc.page_size = 16;
    c.desc.prefix_len = 480;  // whole pages, so that each sequence's table can hold them too
    c.desc.pages_per_seq = 70;
    c.desc.num_pages = 250;
    c.seqused_k = {1500, 480, 300};  // one without keys of its own, one with a part of the prefix
    const CaseTensors tensors(c);
    const CpuResult shared = run_cpu(tensors.problem(), tensors.args(), GetParam());
    expect_accurate(tensors.problem(), tensors.args(),
                    reference_forward(tensors.problem(), tensors.args(), 2), shared);
    ProblemDesc d = c.desc;
    d.prefix_len = 0;
    d.pages_per_seq = 100;
    ForwardArgs args = tensors.args();
    std::vector<int32_t> table;
    for (int64_t b = 0; b < 3; ++b) {
      table.insert(table.end(), args.prefix_pages, args.prefix_pages + 30);
      table.insert(table.end(), args.page_table + b * 70, args.page_table + (b + 1) * 70);
    }
    args.prefix_pages = nullptr;
    args.page_table = table.data();
    EXPECT_TRUE(run_cpu(AttentionProblem::make(d), args, GetParam()) == shared) << name_of(dtype);
  }
}

// The last key is hidden from the first of two rows; an infinity of a part whose weights underflow
// beside the next part's is still one.
TEST_P(CpuSplits, WhatIsNotFiniteReachesTheRowsThatSeeIt) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (DType dtype : dtypes()) {
    for (const float bad : {infinity, std::nanf("")}) {
      for (const bool hidden : {false, true}) {
        Case c = decode_case(dtype, 2);
        c.desc.batch = 1;
        c.seqused_k = {700};
        c.desc.split_keys = 128;
        c.amplitude = 30;
        const CaseTensors tensors(c);
        const AttentionProblem& p = tensors.problem();
        const int64_t key = hidden ? 699 : 3;
        store_from_float(dtype, const_cast<void*>(tensors.args().v), key * p.v.seqlen + 5, bad);
        store_from_float(dtype, const_cast<void*>(tensors.args().v), 700 * p.v.seqlen, bad);
        const CpuResult result = run_cpu(p, tensors.args(), GetParam());
        for (int64_t h = 0; h < 4; ++h) {
          const auto out = [&](int64_t i, int64_t d) {
            return load_as_float(dtype, result.out.data(), i * p.out.seqlen + h * p.out.head + d);
          };
          const bool of_head = h < 2;  // those of the key head that holds it
          EXPECT_EQ(std::isfinite(out(0, 5)), !of_head || hidden);
          EXPECT_EQ(std::isfinite(out(1, 5)), !of_head);
          EXPECT_EQ(std::isnan(out(1, 5)), of_head && std::isnan(bad));
          EXPECT_TRUE(std::isfinite(out(0, 0)) && std::isfinite(out(1, 0)));
        }
      }
    }
  }
}

// What the plan chooses for a machine: the same cut for any number of threads.
TEST(CpuSplitPlan, DependsOnRowsAlone) {
  DeviceSpec device = host_cpu_spec();
  ProblemDesc d = decode_case(DType::kBF16).desc;
  d.num_splits = 0;
  for (const int threads : {1, 4, 256}) {
    for (const int64_t batch : {1, 1000}) {
      d.batch = batch;
      d.seqlen_q = 1;
      EXPECT_EQ(plan_cpu(AttentionProblem::make(d), device, threads).split_keys, 1024);
      d.seqlen_q = 100;
      EXPECT_EQ(plan_cpu(AttentionProblem::make(d), device, threads).split_keys, 0);
    }
  }
  d.num_splits = 4;  // of 1500 keys, in steps of 128
  EXPECT_EQ(plan_cpu(AttentionProblem::make(d), device, 1).split_keys, 384);
  d.num_splits = 1;
  d.seqlen_q = 1;
  EXPECT_EQ(plan_cpu(AttentionProblem::make(d), device, 8).split_keys, 0);
}

}  // namespace
}  // namespace fa4::internal
