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
// clang-format off
constexpr std::array kRows = {
    Sm100TuningRow{
        .head_dim = 64, .head_dim_v = 64, .min_rows = 0, .max_rows = kTile, .uniform = false,
        .q_tiles = 1, .cta_group = 1, .kv_stages = 12,
        .p_parts = {{96, 128}}, .p_apart = true,
        .reason = kShortQuery},
    Sm100TuningRow{
        .head_dim = 64, .head_dim_v = 64, .min_rows = 0, .max_rows = kAny, .uniform = false,
        .q_tiles = 2, .cta_group = 1, .kv_stages = 10,
        .p_parts = {{96, 128}}, .p_apart = true,
        .reason = kTwoTiles},
    Sm100TuningRow{
        .head_dim = 96, .head_dim_v = 96, .min_rows = 0, .max_rows = kTile, .uniform = false,
        .q_tiles = 1, .cta_group = 1, .kv_stages = 7,
        .p_parts = {{64, 96, 128}}, .p_apart = false,
        .reason = kShortQuery},
    Sm100TuningRow{
        .head_dim = 96, .head_dim_v = 96, .min_rows = 0, .max_rows = kAny, .uniform = false,
        .q_tiles = 2, .cta_group = 1, .kv_stages = 5,
        .p_parts = {{64, 96, 128}}, .p_apart = false,
        .reason = kTwoTiles},
    Sm100TuningRow{
        .head_dim = 128, .head_dim_v = 128, .min_rows = 0, .max_rows = kTile, .uniform = false,
        .q_tiles = 1, .cta_group = 1, .kv_stages = 5,
        .p_parts = {{64, 96, 128}}, .p_apart = false,
        .reason = kShortQuery},
    Sm100TuningRow{
        .head_dim = 128, .head_dim_v = 128, .min_rows = 2 * kTile + 1, .max_rows = kAny, .uniform = true,
        .q_tiles = 2, .cta_group = 2, .kv_stages = 6,
        .p_parts = {{64, 96, 128}}, .p_apart = false,
        .reason = kPair},
    Sm100TuningRow{
        .head_dim = 128, .head_dim_v = 128, .min_rows = 0, .max_rows = kAny, .uniform = false,
        .q_tiles = 2, .cta_group = 1, .kv_stages = 3,
        .p_parts = {{64, 96, 128}}, .p_apart = false,
        .reason = kTwoTiles},
    Sm100TuningRow{
        .head_dim = 192, .head_dim_v = 128, .min_rows = 2 * kTile + 1, .max_rows = kAny, .uniform = true,
        .q_tiles = 2, .cta_group = 2, .kv_stages = 5,
        .p_parts = {{64, 96, 128}}, .p_apart = false,
        .reason = kPair},
    Sm100TuningRow{
        .head_dim = 192, .head_dim_v = 128, .min_rows = 0, .max_rows = kAny, .uniform = false,
        .q_tiles = 2, .cta_group = 1, .kv_stages = 3,
        .p_parts = {{64, 96, 128}}, .p_apart = false,
        .reason = "K V K fit beside two Q that out replaces"},
    Sm100TuningRow{
        .head_dim = 256, .head_dim_v = 256, .min_rows = kTile + 1, .max_rows = kAny, .uniform = true,
        .q_tiles = 1, .cta_group = 2, .kv_stages = 5,
        .p_parts = {{64, 96, 128}}, .p_apart = true,
        .reason = "out fills half of tensor memory: a Q tile a CTA, and half of K and V"},
    Sm100TuningRow{
        .head_dim = 256, .head_dim_v = 256, .min_rows = 0, .max_rows = kAny, .uniform = false,
        .q_tiles = 1, .cta_group = 1, .kv_stages = 2,
        .p_parts = {{64, 96, 128}}, .p_apart = true,
        .reason = "out fills half of tensor memory: one Q tile, which out replaces"},
};

// P beside S: a block takes a CTA 1492 clocks at head_dim 128 by the model, over it 2364, and its
// bytes 2240.
constexpr std::array kPartRows = {
    Sm100PartRow{
        .head_dim = 64, .head_dim_v = 64, .kv_stages = 13, .p_parts = {{96, 128}},
        .reason = "208 KB of keys and values under way"},
    Sm100PartRow{
        .head_dim = 96, .head_dim_v = 96, .kv_stages = 8, .p_parts = {{64, 96, 128}},
        .reason = "192 KB of keys and values under way"},
    Sm100PartRow{
        .head_dim = 128, .head_dim_v = 128, .kv_stages = 6, .p_parts = {{64, 96, 128}},
        .reason = "192 KB of keys and values under way"},
    Sm100PartRow{
        .head_dim = 192, .head_dim_v = 128, .kv_stages = 3, .p_parts = {{96, 128}},
        .reason = "K V K, 128 KB, fit beside one Q; a fourth stage would not"},
    Sm100PartRow{
        .head_dim = 256, .head_dim_v = 256, .kv_stages = 2, .p_parts = {{64, 96, 128}},
        .reason = "a block of keys and one of values, 128 KB, fit beside one Q"},
};
// clang-format on

// Shares: the shortest predicted period of 8 to 20 pairs (docs/kernels/fwd_sm100_evidence.md).
constexpr const char* kShared = "the exponential unit is as busy as the tensor cores: FMA helps it";
constexpr const char* kTensorCores =
    "the tensor cores are the busiest: the exponential unit has time for all";
constexpr const char* kFastUnit = "the exponential unit is twice as fast as sm_100a's";
// clang-format off
constexpr std::array kExponentials = {
    Sm100ExponentialRow{
        .architecture = "sm_100a", .head_dim = 64, .polynomial_pairs = 20, .reason = kShared},
    Sm100ExponentialRow{
        .architecture = "sm_100a", .head_dim = 96, .polynomial_pairs = 20, .reason = kShared},
    Sm100ExponentialRow{
        .architecture = "sm_100a", .head_dim = 128, .polynomial_pairs = 20, .reason = kShared},
    Sm100ExponentialRow{
        .architecture = "sm_100a", .head_dim = 192, .polynomial_pairs = 16, .reason = kShared},
    Sm100ExponentialRow{
        .architecture = "sm_100a", .head_dim = 256, .polynomial_pairs = 0, .reason = kTensorCores},
    Sm100ExponentialRow{
        .architecture = "sm_103a", .head_dim = 64, .polynomial_pairs = 0, .reason = kFastUnit},
    Sm100ExponentialRow{
        .architecture = "sm_103a", .head_dim = 96, .polynomial_pairs = 0, .reason = kFastUnit},
    Sm100ExponentialRow{
        .architecture = "sm_103a", .head_dim = 128, .polynomial_pairs = 0, .reason = kFastUnit},
    Sm100ExponentialRow{
        .architecture = "sm_103a", .head_dim = 192, .polynomial_pairs = 0, .reason = kFastUnit},
    Sm100ExponentialRow{
        .architecture = "sm_103a", .head_dim = 256, .polynomial_pairs = 0, .reason = kFastUnit},
};
// clang-format on

}  // namespace

bool is_sm100(const std::string& architecture) {
  return architecture == "sm_100a" || architecture == "sm_103a";
}

std::span<const Sm100TuningRow> sm100_tuning_rows() { return kRows; }
std::span<const Sm100PartRow> sm100_part_rows() { return kPartRows; }
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

const Sm100PartRow* find_sm100_part_row(int64_t head_dim, int64_t head_dim_v) {
  for (const Sm100PartRow& row : kPartRows) {
    if (head_dim <= row.head_dim && head_dim_v <= row.head_dim_v) return &row;
  }
  return nullptr;
}

const Sm100ExponentialRow& find_sm100_exponential(const std::string& architecture, int head_dim) {
  return *std::find_if(kExponentials.begin(), kExponentials.end(),
                       [&](const Sm100ExponentialRow& row) {
                         return architecture == row.architecture && head_dim == row.head_dim;
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
          .p_parts = row.p_parts,
          .polynomial_pairs = find_sm100_exponential(architecture, row.head_dim).polynomial_pairs,
          .p_apart = row.p_apart,
          .softcap = softcap};
}

sm100::FwdTraits traits_of(const Sm100PartRow& row, const std::string& architecture,
                           Element element, bool softcap) {
  return {.element = element,
          .head_dim = row.head_dim,
          .head_dim_v = row.head_dim_v,
          .q_tiles = 1,
          .kv_stages = row.kv_stages,
          .p_parts = row.p_parts,
          .polynomial_pairs = find_sm100_exponential(architecture, row.head_dim).polynomial_pairs,
          .p_apart = true,
          .softcap = softcap,
          .parts = true};
}

}  // namespace fa4::internal
