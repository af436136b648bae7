// Keys and values stored as e4m3, with descales: exact, wherever they lie and on any path.
#include <cmath>
#include <limits>

#include "cpu_run.h"

namespace fa4::internal {
namespace {

class CpuQuantised : public CpuPathTest {};
INSTANTIATE_TEST_SUITE_P(Paths, CpuQuantised, testing::ValuesIn(kAllPaths), path_name);

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Sequences of several lengths, which end inside of blocks and pages; one is empty. One query makes
// a direct loop, seventy make tiles.
Case quantised_case(DType dtype, int64_t seqlen_q) {
  Case c;
  c.desc.dtype = dtype;
  c.desc.kv_dtype = DType::kE4M3;
  c.desc.batch = 3;
  c.desc.seqlen_q = seqlen_q;
  c.desc.seqlen_k = 400;
  c.desc.heads_q = 4;
  c.desc.heads_kv = 2;
  c.desc.head_dim = 72;
  c.desc.head_dim_v = 40;
  c.desc.causal = true;
  c.desc.has_seqused_k = true;
  c.seqused_k = {400, 0, 201};
  c.seed = static_cast<uint64_t>(seqlen_q);
  return c;
}

void lay_on_pages(Case& c, int64_t page_size) {
  c.desc.layout_kv = Layout::kPaged;
  c.desc.page_size = page_size;
  c.desc.pages_per_seq = 400 / page_size + 1;
  c.desc.num_pages = 3 * c.desc.pages_per_seq + 2;
}

void check_case(const Case& c, CpuIsa isa) {
  const CaseTensors tensors(c);
  const AttentionProblem& p = tensors.problem();
  const CpuResult result = run_cpu(p, tensors.args(), isa, 2);
  expect_accurate(p, tensors.args(), reference_forward(p, tensors.args(), 2), result);
}

TEST_P(CpuQuantised, EveryKindOfDescaleIsAccurate) {
  for (const DType dtype : dtypes()) {
    for (const int64_t seqlen_q : {1, 5, 70}) {
      Case c = quantised_case(dtype, seqlen_q);
      check_case(c, GetParam());
      for (const Descales descales : {Descales::kContiguous, Descales::kOneNumber}) {
        for (const int64_t block : {int64_t{0}, kDescaleBlock}) {
          quantise(c.desc, block, descales);
          check_case(c, GetParam());
        }
      }
    }
  }
}

TEST_P(CpuQuantised, PagesBringTheirDescales) {
  for (const DType dtype : dtypes()) {
    for (const int64_t seqlen_q : {1, 70}) {
      for (const int64_t page_size : {1, 24, 128}) {
        Case c = quantised_case(dtype, seqlen_q);
        lay_on_pages(c, page_size);
        quantise(c.desc, page_size, Descales::kContiguous);
        check_case(c, GetParam());
        c.desc.prefix_len = 100;
        c.desc.num_pages += 100 / page_size + 1;
        c.desc.page_table_heads = 2;
        c.seqused_k = {400, 60, 201};
        check_case(c, GetParam());
        quantise(c.desc, kDescaleBlock, Descales::kContiguous);
        check_case(c, GetParam());
      }
    }
  }
}

TEST_P(CpuQuantised, MasksSoftcapSinksAndSplits) {
  for (const DType dtype : dtypes()) {
    for (const int64_t seqlen_q : {1, 70}) {
      Case c = quantised_case(dtype, seqlen_q);
      quantise(c.desc, kDescaleBlock, Descales::kContiguous);
      c.desc.window = {150, 20};
      c.desc.softcap = 5;
      c.desc.split_keys = 128;
      check_case(c, GetParam());
      c.desc.causal = false;
      c.desc.has_sink = true;
      c.desc.softmax_scale = -0.05f;
      check_case(c, GetParam());
    }
  }
}

TEST_P(CpuQuantised, ThreadsChangeNoBit) {
  for (const DType dtype : dtypes()) {
    for (const int64_t seqlen_q : {1, 70}) {
      Case c = quantised_case(dtype, seqlen_q);
      quantise(c.desc, kDescaleBlock, Descales::kContiguous);
      const CaseTensors tensors(c);
      const CpuResult one = run_cpu(tensors.problem(), tensors.args(), GetParam(), 1);
      for (const int threads : {2, 3, 7}) {
        EXPECT_TRUE(one == run_cpu(tensors.problem(), tensors.args(), GetParam(), threads))
            << name_of(dtype) << ", " << threads << " threads";
      }
    }
  }
}

// Bytes that are looked up are those that are computed.
TEST_P(CpuQuantised, LookingBytesUpChangesNoBit) {
  DeviceSpec plain = host_cpu_spec();
  plain.cpu.avx512_vbmi = false;
  for (const DType dtype : dtypes()) {
    for (const int64_t head_dim : {8, 40, 72, 256}) {
      Case c = quantised_case(dtype, 3);
      c.desc.head_dim = c.desc.head_dim_v = head_dim;
      quantise(c.desc, 0, Descales::kContiguous);
      const CaseTensors tensors(c);
      const CpuResult host = run_cpu(tensors.problem(), tensors.args(), GetParam(), 2);
      EXPECT_EQ(host.spec.looks_up_bytes,
                GetParam() == CpuIsa::kAvx512 && host_cpu_spec().cpu.avx512_vbmi);
      EXPECT_TRUE(host == run_cpu(tensors.problem(), tensors.args(), GetParam(), 2, plain));
    }
  }
}

// `rows` queries of zeros over `keys` keys of zeros: out is the values' mean.
struct Mean {
  Mean(DType dtype, int64_t rows, int64_t keys) {
    ProblemDesc d;
    d.dtype = dtype;
    d.out_dtype = DType::kF32;
    d.batch = d.heads_q = d.heads_kv = 1;
    d.seqlen_q = rows;
    d.seqlen_k = keys;
    d.head_dim = 8;
    d.head_dim_v = 256;
    d.causal = keys > 1;
    quantise(d, keys > 1 ? kDescaleBlock : 0, Descales::kContiguous);
    problem = AttentionProblem::make(d);
    q.assign(static_cast<size_t>(rows * 8 * 4), 0);
    k.assign(static_cast<size_t>(keys * 8), 0);
    for (int64_t i = 0; i < keys * 256; ++i) v.push_back(static_cast<uint8_t>(i % 256));
    k_descale.assign(static_cast<size_t>(keys / kDescaleBlock + 1), 1.0f);
    v_descale = k_descale;
  }
  CpuResult run(CpuIsa isa) const {
    ForwardArgs args;
    args.q = q.data();
    args.k = k.data();
    args.v = v.data();
    args.k_descale = k_descale.data();
    args.v_descale = v_descale.data();
    return run_cpu(problem, args, isa);
  }
  static float out(const CpuResult& result, int64_t row, int64_t d) {
    return load_as_float(DType::kF32, result.out.data(), row * 256 + d);
  }

  AttentionProblem problem;
  std::vector<uint8_t> q, k, v;
  std::vector<float> k_descale, v_descale;
};

TEST_P(CpuQuantised, EveryByteIsItsValue) {
  for (const DType dtype : dtypes()) {
    for (const int64_t rows : {1, 70}) {
      for (const float descale : {1.0f, 0.375f, kInfinity, -kInfinity, kNan}) {
        Mean mean(dtype, rows, 1);
        mean.v_descale[0] = descale;
        const CpuResult result = mean.run(GetParam());
        for (int64_t d = 0; d < 256; ++d) {
          const float expected = e4m3_to_float(static_cast<uint8_t>(d)) * descale;
          const float out = Mean::out(result, rows - 1, d);
          if (std::isnan(expected)) {
            EXPECT_TRUE(std::isnan(out)) << d;
          } else if (std::isinf(expected)) {
            EXPECT_EQ(out, expected) << d;
          } else {  // the only weight may be off by the exponential's error
            EXPECT_NEAR(out, expected, std::fabs(expected) * 0x1p-12) << d << name_of(dtype);
          }
        }
      }
    }
  }
}

// A block whose descale is not a number reaches the rows that see it, and no other.
TEST_P(CpuQuantised, DescalesThatARowDoesNotSeeReachNothing) {
  for (const DType dtype : dtypes()) {
    for (const int64_t rows : {12, 200}) {  // the last of which sees 200 keys
      for (const bool of_keys : {false, true}) {
        Mean mean(dtype, rows, 200);
        (of_keys ? mean.k_descale : mean.v_descale)[1] = kNan;
        for (int64_t n = 0; n < 200; ++n) {
          mean.v[static_cast<size_t>(n * 256 + 127)] = 0;  // no byte itself is NaN
          mean.v[static_cast<size_t>(n * 256 + 255)] = 0;
        }
        const CpuResult result = mean.run(GetParam());
        for (int64_t i = 0; i < rows; ++i) {
          const bool sees = i + 200 - rows >= kDescaleBlock;
          EXPECT_EQ(std::isnan(Mean::out(result, i, 3)), sees) << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace fa4::internal
