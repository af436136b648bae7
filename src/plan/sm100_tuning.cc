#include "plan/sm100_tuning.h"

#include <algorithm>
#include <array>

namespace fa4::internal {
namespace {

constexpr int64_t kOneTile = sm100::kTileRows;

// No Blackwell has run these: they follow from shared memory and from the pipeline.
constexpr std::array kRows = {
    Sm100TuningRow{64, 64, kOneTile, 1, 12, "one Q tile holds the query; K and V fill the rest"},
    Sm100TuningRow{64, 64, 0, 2, 10, "K and V fill what two Q tiles leave"},
    Sm100TuningRow{96, 96, kOneTile, 1, 7, "one Q tile holds the query; K and V fill the rest"},
    Sm100TuningRow{96, 96, 0, 2, 5, "K and V fill what two Q tiles leave"},
    Sm100TuningRow{128, 128, kOneTile, 1, 5, "one Q tile holds the query; K and V fill the rest"},
    Sm100TuningRow{128, 128, 0, 2, 3, "K and V fill what two Q tiles leave"},
};

constexpr const char* kShared = "the exponential unit is as busy as the tensor cores: FMA helps it";
constexpr const char* kFastUnit = "the exponential unit is twice as fast as sm_100a's";
constexpr std::array kExponentials = {
    Sm100ExponentialRow{"sm_100a", Element::kBF16, 64, 8, kShared},
    Sm100ExponentialRow{"sm_100a", Element::kBF16, 96, 8, kShared},
    Sm100ExponentialRow{"sm_100a", Element::kBF16, 128, 8, kShared},
    Sm100ExponentialRow{"sm_100a", Element::kF16, 64, 8, kShared},
    Sm100ExponentialRow{"sm_100a", Element::kF16, 96, 8, kShared},
    Sm100ExponentialRow{"sm_100a", Element::kF16, 128, 8, kShared},
    Sm100ExponentialRow{"sm_103a", Element::kBF16, 64, 0, kFastUnit},
    Sm100ExponentialRow{"sm_103a", Element::kBF16, 96, 0, kFastUnit},
    Sm100ExponentialRow{"sm_103a", Element::kBF16, 128, 0, kFastUnit},
    Sm100ExponentialRow{"sm_103a", Element::kF16, 64, 0, kFastUnit},
    Sm100ExponentialRow{"sm_103a", Element::kF16, 96, 0, kFastUnit},
    Sm100ExponentialRow{"sm_103a", Element::kF16, 128, 0, kFastUnit},
};

}  // namespace

bool is_sm100(const std::string& architecture) {
  return architecture == "sm_100a" || architecture == "sm_103a";
}

std::span<const Sm100TuningRow> sm100_tuning_rows() { return kRows; }
std::span<const Sm100ExponentialRow> sm100_exponential_rows() { return kExponentials; }

const Sm100TuningRow* find_sm100_tuning(int64_t head_dim, int64_t head_dim_v, int64_t rows) {
  for (const Sm100TuningRow& row : kRows) {
    const bool holds = head_dim <= row.head_dim && head_dim_v <= row.head_dim_v;
    if (holds && (row.max_rows == 0 || rows <= row.max_rows)) return &row;
  }
  return nullptr;
}

const Sm100ExponentialRow& find_sm100_exponential(const std::string& architecture, Element element,
                                                  int head_dim) {
  return *std::find_if(kExponentials.begin(), kExponentials.end(),
                       [&](const Sm100ExponentialRow& row) {
                         return architecture == row.architecture && element == row.element &&
                                head_dim == row.head_dim;
                       });
}

sm100::FwdTraits traits_of(const Sm100TuningRow& row, const std::string& architecture,
                           Element element, bool softcap) {
  return {.element = element,
          .head_dim = row.head_dim,
          .head_dim_v = row.head_dim_v,
          .q_tiles = row.q_tiles,
          .kv_stages = row.kv_stages,
          .polynomial_pairs =
              find_sm100_exponential(architecture, element, row.head_dim).polynomial_pairs,
          .softcap = softcap};
}

}  // namespace fa4::internal
