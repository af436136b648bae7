#include "plan/sm100_tuning.h"

#include <algorithm>
#include <array>
#include <limits>

namespace fa4::internal {
namespace {

constexpr int64_t kTile = sm100::kTileRows;
constexpr int64_t kAny = std::numeric_limits<int64_t>::max();

// No Blackwell has run these: they follow from shared memory and from the pipeline.
constexpr const char* kShortQuery = "one Q tile holds the query; K and V fill the rest";
constexpr const char* kTwoTiles = "two Q tiles take turns; K and V fill what they leave";
constexpr const char* kPair = "a pair of CTAs loads each K and V once: half the traffic of two";
constexpr std::array kRows = {
    Sm100TuningRow{64, 64, 0, kTile, false, 1, 1, 12, 96, 96, true, kShortQuery},
    Sm100TuningRow{64, 64, 0, kAny, false, 2, 1, 10, 96, 96, true, kTwoTiles},
    Sm100TuningRow{96, 96, 0, kTile, false, 1, 1, 7, 64, 96, false, kShortQuery},
    Sm100TuningRow{96, 96, 0, kAny, false, 2, 1, 5, 64, 96, false, kTwoTiles},
    Sm100TuningRow{128, 128, 0, kTile, false, 1, 1, 5, 64, 96, false, kShortQuery},
    Sm100TuningRow{128, 128, 2 * kTile + 1, kAny, true, 2, 2, 6, 64, 96, false, kPair},
    Sm100TuningRow{128, 128, 0, kAny, false, 2, 1, 3, 64, 96, false, kTwoTiles},
    Sm100TuningRow{192, 128, 2 * kTile + 1, kAny, true, 2, 2, 5, 64, 96, false, kPair},
    Sm100TuningRow{192, 128, 0, kAny, false, 2, 1, 3, 64, 96, false,
                   "K V K fit beside two Q that out replaces"},
};

// Shares: the shortest predicted period of 8 to 20 pairs (docs/kernels/fwd_sm100.md).
constexpr const char* kShared = "the exponential unit is as busy as the tensor cores: FMA helps it";
constexpr const char* kFastUnit = "the exponential unit is twice as fast as sm_100a's";
constexpr std::array kExponentials = {
    Sm100ExponentialRow{"sm_100a", Element::kBF16, 64, 20, kShared},
    Sm100ExponentialRow{"sm_100a", Element::kBF16, 96, 20, kShared},
    Sm100ExponentialRow{"sm_100a", Element::kBF16, 128, 20, kShared},
    Sm100ExponentialRow{"sm_100a", Element::kBF16, 192, 16, kShared},
    Sm100ExponentialRow{"sm_100a", Element::kF16, 64, 20, kShared},
    Sm100ExponentialRow{"sm_100a", Element::kF16, 96, 20, kShared},
    Sm100ExponentialRow{"sm_100a", Element::kF16, 128, 20, kShared},
    Sm100ExponentialRow{"sm_100a", Element::kF16, 192, 16, kShared},
    Sm100ExponentialRow{"sm_103a", Element::kBF16, 64, 0, kFastUnit},
    Sm100ExponentialRow{"sm_103a", Element::kBF16, 96, 0, kFastUnit},
    Sm100ExponentialRow{"sm_103a", Element::kBF16, 128, 0, kFastUnit},
    Sm100ExponentialRow{"sm_103a", Element::kBF16, 192, 0, kFastUnit},
    Sm100ExponentialRow{"sm_103a", Element::kF16, 64, 0, kFastUnit},
    Sm100ExponentialRow{"sm_103a", Element::kF16, 96, 0, kFastUnit},
    Sm100ExponentialRow{"sm_103a", Element::kF16, 128, 0, kFastUnit},
    Sm100ExponentialRow{"sm_103a", Element::kF16, 192, 0, kFastUnit},
};

}  // namespace

bool is_sm100(const std::string& architecture) {
  return architecture == "sm_100a" || architecture == "sm_103a";
}

std::span<const Sm100TuningRow> sm100_tuning_rows() { return kRows; }
std::span<const Sm100ExponentialRow> sm100_exponential_rows() { return kExponentials; }

const Sm100TuningRow* find_sm100_tuning(int64_t head_dim, int64_t head_dim_v, int64_t rows,
                                        bool uniform) {
  for (const Sm100TuningRow& row : kRows) {
    const bool holds = head_dim <= row.head_dim && head_dim_v <= row.head_dim_v;
    const bool fits = rows >= row.min_rows && rows <= row.max_rows && (uniform || !row.uniform);
    if (holds && fits) return &row;
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
          .cta_group = row.cta_group,
          .kv_stages = row.kv_stages,
          .first_keys = row.first_keys,
          .next_keys = row.next_keys,
          .polynomial_pairs =
              find_sm100_exponential(architecture, element, row.head_dim).polynomial_pairs,
          .p_apart = row.p_apart,
          .softcap = softcap};
}

}  // namespace fa4::internal
