#include "plan/cpu_tuning.h"

namespace fa4::internal {
namespace {

constexpr int64_t kAny = 256;

constexpr CpuTuning kRows[] = {
    {CpuIsa::kScalar, kAny, 16, 64, 1, 1, "one row at a time; scores of 64 keys on the stack"},
    {CpuIsa::kAvx2, kAny, 96, 128, 6, 24,
     "6 x 2 ymm of sums; a 16-key panel of k stays in L1. Zen 2, one thread, 2048 keys, bf16, d "
     "128 "
     "and d 64, GFLOP/s: 96 x 128 78, 78; 96 x 256 81, 79; 192 x 128 80, 76; 48 x 128 83, 77"},
    {CpuIsa::kAvx512, kAny, 192, 256, 6, 24,
     "6 x 4 zmm of sums; scores of a block stay in L2. f32, 2 threads, 4096 keys, d 128, GFLOP/s: "
     "Xeon (model 207) 96 x 128 314, 192 x 128 326, 192 x 256 329; Zen 4 under load 80 to 82, "
     "-, 84"},
    {CpuIsa::kAvx512Bf16, kAny, 192, 256, 6, 24,
     "6 x 4 zmm of sums, a 64-key panel of k in 16 KB. Zen 4, 2 threads, 8192 keys, d 128 and d "
     "64, GFLOP/s: 192 x 128 392, 354; 96 x 128 382; 384 x 128 395; 192 x 256 400, 366"},
    {CpuIsa::kAmxBf16, kAny, 1024, 256, 32, 32,
     "2 x 2 tiles of sums; keys and values of a block are fetched once for all rows. Xeon (model "
     "207), 2 threads, 8192 keys, d 128 and d 64, GFLOP/s: 256 x 256 2343, 1785; 256 x 512 2444, "
     "1701; 512 x 128 2232, 1680; 512 x 256 2396, 1747; 1024 x 128 2090, 1521; 1024 x 256 2488, "
     "1793"},
    {CpuIsa::kAmxModel, kAny, 64, 128, 32, 32, "small: every edge in a small test"},
};

}  // namespace

const CpuTuning& cpu_tuning(CpuIsa isa, int64_t head_dim) {
  for (const CpuTuning& row : kRows) {
    if (row.isa == isa && head_dim <= row.head_dim) return row;
  }
  return kRows[0];
}

std::optional<CpuIsa> direct_path(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kScalar:
    case CpuIsa::kAmxModel: return {};
    case CpuIsa::kAvx2: return CpuIsa::kAvx2;
    case CpuIsa::kAvx512:
    case CpuIsa::kAvx512Fp16:
    case CpuIsa::kAvx512Bf16:
    case CpuIsa::kAmxBf16: return CpuIsa::kAvx512;
  }
  return {};
}

CpuPacking cpu_packing(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kScalar: return {1, 1, 1, 1, 0};
    case CpuIsa::kAvx2: return {8, 1, 1, 8, 0};
    case CpuIsa::kAvx512:
    case CpuIsa::kAvx512Fp16: return {16, 1, 1, 16, 0};
    case CpuIsa::kAvx512Bf16: return {16, 2, 2, 16, 0};
    case CpuIsa::kAmxBf16:
    case CpuIsa::kAmxModel: return {16, 2, 32, 32, 32};
  }
  return {1, 1, 1, 1, 0};
}

}  // namespace fa4::internal
