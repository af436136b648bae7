#include "plan/sm90_tuning.h"

#include <array>

namespace fa4::internal {
namespace {

// Measured on one H200, variants and cuDNN interleaved in one run (docs/performance.md).
constexpr std::array kRows = {
    Sm90TuningRow{64, 64, false, 257, 192, 128, 2,
                  "three warpgroups share each block: 1.08 to 1.22 x 128 x 128"},
    Sm90TuningRow{64, 64, false, 0, 128, 128, 3,
                  "no tile is two thirds empty: 1.25 x 192 x 128 at 256 keys"},
    Sm90TuningRow{64, 64, true, 2048, 192, 128, 2, "1.02 to 1.15 x 128 x 128"},
    Sm90TuningRow{64, 64, true, 0, 128, 128, 3,
                  "less work hidden in a diagonal; third Q 1.26, 1.06, 1.02 x at 256 .. 1024"},
    Sm90TuningRow{96, 96, false, 0, 192, 96, 2, "1.06 x 128 x 160"},
    Sm90TuningRow{96, 96, true, 0, 192, 96, 2, "1.06 x 128 x 160"},
    Sm90TuningRow{128, 128, false, 2048, 128, 160, 2, "1.02 to 1.04 x 128 x 128 when power-bound"},
    Sm90TuningRow{128, 128, false, 0, 128, 128, 3,
                  "fills short sequences better than 128 x 160; third Q 1.06 x at 256 keys"},
    Sm90TuningRow{128, 128, true, 0, 128, 128, 3,
                  "less work hidden in a diagonal; third Q 1.07, 1.06, 1.01 x at 256 .. 1024"},
    Sm90TuningRow{192, 128, false, 0, 128, 96, 2,
                  "two Q leave room for 96 keys: 1.06 x 128 keys with one Q"},
    Sm90TuningRow{192, 128, true, 0, 128, 96, 2, "1.06 x 128 keys with one Q"},
    Sm90TuningRow{192, 192, false, 0, 128, 112, 1, "fills shared memory with two stages"},
    Sm90TuningRow{192, 192, true, 0, 128, 112, 1, "as without a mask"},
    Sm90TuningRow{256, 256, false, 0, 128, 80, 1, "fills shared memory with two stages"},
    Sm90TuningRow{256, 256, true, 0, 128, 80, 1, "as without a mask"},
};

}  // namespace

std::span<const Sm90TuningRow> sm90_tuning_rows() { return kRows; }

const Sm90TuningRow* find_sm90_tuning(int64_t head_dim, int64_t head_dim_v, bool masked,
                                      int64_t seqlen_k) {
  for (const Sm90TuningRow& row : kRows) {
    const bool holds = head_dim <= row.head_dim && head_dim_v <= row.head_dim_v;
    if (holds && row.masked == masked && seqlen_k >= row.min_seqlen_k) return &row;
  }
  return nullptr;
}

FwdTraits traits_of(const Sm90TuningRow& row, Element element, bool softcap) {
  return {.element = element,
          .head_dim = row.head_dim,
          .head_dim_v = row.head_dim_v,
          .tile_m = row.tile_m,
          .tile_n = row.tile_n,
          .q_stages = row.q_stages,
          .softcap = softcap};
}

}  // namespace fa4::internal
