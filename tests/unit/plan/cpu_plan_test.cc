#include <gtest/gtest.h>

#include "core/error.h"
#include "plan/cpu_backward_spec.h"
#include "plan/cpu_kernel_spec.h"
#include "plan/cpu_tuning.h"

namespace fa4::internal {
namespace {

AttentionProblem problem_of(DType dtype, int64_t batch = 1, int64_t seqlen_q = 1024,
                            int64_t heads_q = 8, int64_t heads_kv = 8) {
  ProblemDesc desc;
  desc.dtype = dtype;
  desc.batch = batch;
  desc.seqlen_q = seqlen_q;
  desc.seqlen_k = 1024;
  desc.heads_q = heads_q;
  desc.heads_kv = heads_kv;
  desc.head_dim = 128;
  return AttentionProblem::make(desc);
}

DeviceSpec cpu_with(CpuFeatures features, int num_threads = 2) {
  DeviceSpec device;
  device.name = "cpu";
  device.model = "a test's CPU";
  device.cpu = features;
  device.num_threads = num_threads;
  return device;
}

CpuFeatures all_features() {
  CpuFeatures f;
  f.avx2 = f.avx512 = f.avx512_bf16 = f.avx512_fp16 = f.amx_bf16 = true;
  return f;
}

TEST(CpuPlan, NamesAndTheirParse) {
  for (CpuIsa isa : {CpuIsa::kScalar, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAvx512Bf16,
                     CpuIsa::kAvx512Fp16, CpuIsa::kAmxBf16, CpuIsa::kAmxModel}) {
    EXPECT_EQ(parse_cpu_isa(name_of(isa)), isa);
  }
  EXPECT_EQ(name_of(CpuIsa::kAmxBf16), "amx");
  EXPECT_EQ(parse_cpu_isa("sse"), std::nullopt);
  EXPECT_EQ(parse_cpu_isa(""), std::nullopt);
}

TEST(CpuPlan, BestPathOfEveryMachine) {
  struct Row {
    bool avx2, avx512, bf16, amx;
    CpuIsa of_bf16, of_f16, of_f32;
  };
  const Row rows[] = {
      {false, false, false, false, CpuIsa::kScalar, CpuIsa::kScalar, CpuIsa::kScalar},
      {true, false, false, false, CpuIsa::kAvx2, CpuIsa::kAvx2, CpuIsa::kAvx2},
      {true, true, false, false, CpuIsa::kAvx512, CpuIsa::kAvx512, CpuIsa::kAvx512},
      {true, true, true, false, CpuIsa::kAvx512Bf16, CpuIsa::kAvx512, CpuIsa::kAvx512},
      {true, true, true, true, CpuIsa::kAmxBf16, CpuIsa::kAvx512, CpuIsa::kAvx512},
  };
  for (const Row& row : rows) {
    CpuFeatures f;
    f.avx2 = row.avx2;
    f.avx512 = row.avx512;
    f.avx512_bf16 = row.bf16;
    f.amx_bf16 = row.amx;
    const DeviceSpec device = cpu_with(f);
    EXPECT_EQ(plan_cpu(problem_of(DType::kBF16), device, 0).isa, row.of_bf16);
    EXPECT_EQ(plan_cpu(problem_of(DType::kF16), device, 0).isa, row.of_f16);
    EXPECT_EQ(plan_cpu(problem_of(DType::kF32), device, 0).isa, row.of_f32);
  }
}

TEST(CpuPlan, ForcedPathThatIsMissingIsRefusedWithTheList) {
  CpuFeatures f;
  f.avx2 = true;
  try {
    plan_cpu(problem_of(DType::kBF16), cpu_with(f), 0, CpuIsa::kAmxBf16);
    FAIL() << "planned for a machine without AMX";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotSupported);
    const std::string text = error.what();
    EXPECT_NE(text.find("cpu_isa amx"), std::string::npos) << text;
    EXPECT_NE(text.find("accepted: scalar, avx2, amx_model"), std::string::npos) << text;
  }
}

TEST(CpuPlan, ForcedPathOfABackwardIsRefusedWithTheListOfBackwards) {
  CpuFeatures f;
  f.avx2 = true;
  try {
    plan_cpu_backward(problem_of(DType::kF32), cpu_with(f), 0, CpuIsa::kAmxModel);
    FAIL() << "planned for a type that the path does not have";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("accepted for the backward: scalar, avx2"), std::string::npos) << text;
  }
}

TEST(CpuPlan, ForcedPathWithoutTheDtypeIsRefused) {
  EXPECT_THROW(plan_cpu(problem_of(DType::kF32), cpu_with(all_features()), 0, CpuIsa::kAmxBf16),
               Error);
  EXPECT_THROW(plan_cpu(problem_of(DType::kF16), cpu_with(all_features()), 0, CpuIsa::kAvx512Bf16),
               Error);
}

TEST(CpuPlan, ThreadsDefaultToTheDevices) {
  const DeviceSpec device = cpu_with(all_features(), 24);
  EXPECT_EQ(plan_cpu(problem_of(DType::kBF16), device, 0).num_threads, 24);
  EXPECT_EQ(plan_cpu(problem_of(DType::kBF16), device, 3).num_threads, 3);
}

TEST(CpuPlan, EveryTileFitsItsPath) {
  for (CpuIsa isa :
       {CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAvx512Bf16, CpuIsa::kAmxBf16, CpuIsa::kAmxModel}) {
    const DType dtype = isa_supports(isa, DType::kF32) ? DType::kF32 : DType::kBF16;
    for (int64_t seqlen_q : {1, 7, 100, 5000}) {
      for (int threads : {1, 2, 64}) {
        const CpuKernelSpec spec =
            plan_cpu(problem_of(dtype, 1, seqlen_q, 4, 2), cpu_with(all_features()), threads, isa);
        const CpuTuning& tuning = cpu_tuning(isa, 128);
        EXPECT_GE(spec.tile_m, 1);
        EXPECT_LE(spec.tile_m, tuning.tile_m);
        EXPECT_EQ(spec.tile_m % tuning.row_step, 0);
        EXPECT_EQ(spec.tile_n % 64, 0);
        const bool one_tile = seqlen_q * 2 <= spec.tile_m;
        EXPECT_EQ(spec.heads_per_wave == 0, one_tile);
        EXPECT_LE(spec.heads_per_wave, 2);
      }
    }
  }
}

TEST(CpuPlan, WorkspaceHoldsAllPartsAndGrowsWithThreads) {
  const AttentionProblem problem = problem_of(DType::kBF16);
  for (CpuIsa isa : {CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAvx512Bf16, CpuIsa::kAmxModel}) {
    size_t before = 0;
    for (int threads : {1, 2, 5}) {
      CpuKernelSpec spec = plan_cpu(problem, cpu_with(all_features()), threads, isa);
      spec.tile_m = 96;
      const CpuScratch scratch = cpu_scratch(problem, spec);
      EXPECT_EQ(cpu_workspace_bytes(problem, spec), scratch.total_bytes);
      EXPECT_EQ(scratch.total_bytes % 256, 0u);
      EXPECT_EQ(scratch.q_offset % 256 + scratch.s_offset % 256 + scratch.p_offset % 256, 0u);
      EXPECT_EQ(scratch.o_offset % 256 + scratch.stats_offset % 256, 0u);
      EXPECT_LE(scratch.o_offset + 96 * 128 * 4, scratch.stats_offset);
      EXPECT_GT(scratch.total_bytes, before);
      before = scratch.total_bytes;
    }
  }
  const CpuKernelSpec scalar = plan_cpu(problem, cpu_with({}), 2);
  EXPECT_EQ(cpu_workspace_bytes(problem, scalar), 0u);
}

// What the backward's loops write, part by part: each ends where the next begins, or before.
TEST(CpuPlan, BackwardScratchHoldsEveryPart) {
  const AttentionProblem problem = problem_of(DType::kBF16);
  const size_t d = 128;
  for (CpuIsa isa : {CpuIsa::kAvx512Bf16, CpuIsa::kAmxBf16, CpuIsa::kAmxModel}) {
    const CpuBackwardSpec spec = plan_cpu_backward(problem, cpu_with(all_features()), 2, isa);
    const CpuBackwardScratch s = cpu_backward_scratch(problem, spec);
    const size_t rows = static_cast<size_t>(spec.tile_m), keys = static_cast<size_t>(spec.tile_n);
    const bool tiled = cpu_packing(isa).tile_rows > 0;
    const size_t score_bytes = tiled ? 2 * 32 * 32 * 4 : rows * static_cast<size_t>(s.s_stride) * 4;
    EXPECT_LE(s.k_panels + keys * d * 2, s.dk);
    EXPECT_LE(s.dk + keys * d * 4, s.dv);
    EXPECT_LE(s.dv + keys * d * 4, s.s);
    EXPECT_LE(s.s + score_bytes, s.dp);
    EXPECT_LE(s.dp + score_bytes, s.p_pairs);
    EXPECT_LE(s.p_pairs + rows * keys * 2, s.ds_pairs);
    EXPECT_LE(s.ds_pairs + rows * keys * 2, s.ds);
    EXPECT_LE(s.ds + rows * keys * 2, s.bytes_per_thread);
    EXPECT_LE(s.q + rows * d * 2, s.dout);
    EXPECT_LE(s.q_panels + rows * d * 2, s.dout_panels);
    EXPECT_LE(s.dout_panels + rows * d * 2, s.lse);
    EXPECT_LE(s.dq + rows * d * 4, s.bytes_per_block);
    if (tiled) {
      EXPECT_EQ(spec.tile_m % 32 + spec.tile_n % 32, 0);
      EXPECT_EQ(s.dq_columns % 32 + s.dv_columns % 32, 0);
      EXPECT_EQ(s.dp - s.s, score_bytes);
    }
  }
}

TEST(CpuPlan, FewRowsPackTheirOwnBlocks) {
  const CpuKernelSpec spec =
      plan_cpu(problem_of(DType::kBF16, 4, 1), cpu_with(all_features()), 2, CpuIsa::kAvx512Bf16);
  EXPECT_EQ(spec.heads_per_wave, 0);
  EXPECT_EQ(spec.tile_m, 6);
  EXPECT_EQ(cpu_scratch(problem_of(DType::kBF16, 4, 1), spec).bytes_per_head, 0u);
}

// The stride of the keys of pages of one key; a sanitizer sees what overflows.
TEST(CpuPlan, AStrideThatReachesNothingMayBeAny) {
  ProblemDesc desc;
  desc.batch = desc.seqlen_q = 1;
  desc.heads_q = desc.heads_kv = 64;
  desc.head_dim = 64;
  desc.layout_kv = Layout::kPaged;
  desc.page_size = 1;
  desc.seqlen_k = desc.pages_per_seq = desc.num_pages = 65536;
  for (const int64_t any : {INT64_MIN, INT64_MAX}) {
    desc.k = {64 * 64, any, 64};
    const AttentionProblem problem = AttentionProblem::make(desc);
    EXPECT_EQ(plan_cpu(problem, cpu_with(all_features(), 8), 8, {}).heads_together, 8);
  }
}

// Sums of parts for maxima that no execution need reach: their bytes would not fit 64 bits.
TEST(CpuPlan, SumsOfManyPartsAreNotKept) {
  ProblemDesc desc = problem_of(DType::kBF16, 1 << 24, 1, 1 << 16, 1 << 16);
  desc.layout_q = desc.layout_kv = Layout::kPacked;
  desc.q = desc.k = desc.v = desc.out = desc.dout = desc.dq = desc.dk = desc.dv = {};
  desc.seqlen_k = 1 << 30;
  desc.head_dim = desc.head_dim_v = 8;
  desc.total_q = 2;
  desc.total_k = 4096;
  const CpuKernelSpec spec =
      plan_cpu(AttentionProblem::make(desc), cpu_with(all_features()), /*num_threads=*/2);
  EXPECT_TRUE(spec.direct);
  EXPECT_FALSE(spec.parts_are_tasks);
}

TEST(CpuPlan, EveryRowOfTheTableSaysWhy) {
  for (CpuIsa isa : {CpuIsa::kScalar, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAvx512Bf16,
                     CpuIsa::kAmxBf16, CpuIsa::kAmxModel}) {
    EXPECT_EQ(cpu_tuning(isa, 256).isa, isa);
    EXPECT_GT(std::string(cpu_tuning(isa, 64).why).size(), 10u);
  }
}

}  // namespace
}  // namespace fa4::internal
